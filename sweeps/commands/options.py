"""The options every command shares, and how a failure is told: one sentence, no traceback."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearkv.sweeps.evaluation.evaluate import Columns
    from nearkv.sweeps.space.study import Study


USAGE: Any = typer.BadParameter.__base__
"""What the parser raises for words it cannot use; typer gives it no name of its own."""


class Commands(TyperGroup):
    """A group of commands that turns every failure a user can cause into one sentence."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command line; a standard output that takes no more is told like any other failure."""
        try:
            try:
                return super().main(*arguments, **settings)
            finally:
                if sys.stdout:
                    sys.stdout.flush()
        except BrokenPipeError:
            _silence()
            sys.exit(0)
        except OSError as problem:
            _silence()
            place = str(problem.filename) if problem.filename else "standard output"
            _complain(f"{place} cannot be used ({problem.strerror}); choose another")
            sys.exit(2)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; bad input exits with 2, Ctrl-C with 130; warnings go to standard error."""
        from nearkv.hardware.errors import NearkvError, NearkvWarning

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", NearkvWarning)
                warnings.showwarning = _print_warning
                return super().invoke(ctx)
        except USAGE as problem:
            if (
                type(problem).__name__ == "NoArgsIsHelpError"
            ):  # a group that was called alone shows its help
                raise
            requested, place = _said(problem), problem.ctx.command_path if problem.ctx else "nearkv"
            _complain(f"{requested}; see `{place} --help`")
            raise typer.Exit(2) from None
        except NearkvError as problem:
            _complain(str(problem))
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stopped:
            _complain(stopped.args[0] if stopped.args else "stopped")
            raise typer.Exit(130) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that words ask for; no word of theirs may be empty.

        Raises:
            InputError: one is.
        """
        from nearkv.hardware.errors import InputError

        for before, word in zip(["", *args], args, strict=False):
            option, _, value = (
                word.partition("=") if word.startswith("--") and "=" in word else (before, "", word)
            )
            if not value.strip(" ,"):
                raise InputError(
                    f"{option} {value!r}".strip()
                    + ": names nothing; give it a value, or leave it out"
                )
        return super().resolve_command(ctx, args)


def _said(problem: Any) -> str:
    """What the parser says of a value, in our words where it speaks of its own types."""
    requested: str = problem.format_message().rstrip(".")
    kind = re.search(r"valid (integer|number)", requested)
    if not kind or not problem.param:
        return requested
    return f"{problem.param.opts[0]} takes a {'whole number' if kind[1] == 'integer' else 'number'}"


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one sentence on standard error."""
    _complain(f"warning: {message}")


def _complain(sentence: str) -> None:
    """Say why a command fails; its exit code tells whoever does not listen."""
    with suppress(OSError):
        typer.echo(f"nearkv: {sentence}", err=True)


def _silence() -> None:
    """Point standard output nowhere, so that the interpreter's last flush has nothing to complain of."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def group(about: str) -> typer.Typer:
    """A group of commands; plain help text starts at once and pipes."""
    return typer.Typer(
        cls=Commands, help=about, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def show(
    rows: Sequence[dict[str, Any]], form: str, columns: Sequence[str] = (), title: str = ""
) -> None:
    """Print rows in the format asked for."""
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.table import check_format, render

    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    typer.echo(render(rows, check_format(form), columns, title), nl=False)


BRIEF = [
    *(
        "system",
        "model",
        "platform",
        "trace",
        "batch",
        "context_tok",
        "output_tok",
        "alpha",
        "devices",
    ),
    *(
        "n_attention",
        "n_qkv",
        "n_fc",
        "status",
        "reason",
        "short_of",
        "short_gb",
        "batch_run",
        "prefill_s",
        "step_ms",
        "decode_tok_s",
    ),
    *("throughput_tok_s", "energy_j_tok", "memory_energy_j_tok", "tbt_ms", "tok_s_per_kusd"),
    *("kv_gpu_gb", "kv_host_gb", "kv_drive_gb", "speedup", "total_speedup"),
]
"""Columns a terminal shows of a result; CSV and JSON hold all."""


def show_columns(found: Columns, form: str, only: str = "", usual: Sequence[str] = BRIEF) -> None:
    """Print a result in the format asked for, all formats with the same columns where some were chosen."""
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.table import MOST_SHOWN, records, select

    chosen = select(found, only)
    if len(next(iter(chosen.values()))) <= MOST_SHOWN or form == "json":
        show(records(chosen), form, () if only else usual)
    elif form == "csv":
        from nearkv.sweeps.jobs.arrow import table_of
        from nearkv.sweeps.jobs.encode import ENCODERS

        typer.echo(ENCODERS["csv"](table_of(chosen), True), nl=False)
    else:
        raise InputError(
            f"more than {MOST_SHOWN:,} rows are too many to read; print them with --format csv or json"
        )


System = Annotated[str, typer.Argument(help="A system; see `nearkv systems`.")]
Systems = Annotated[
    list[str], typer.Argument(help="Systems; the first is what the others are compared with.")
]
Named = Annotated[
    str, typer.Option("--system", help="Systems apart by commas; see `nearkv systems`.")
]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="PART.KEY=VALUE", help="Replace a number: csd.count=4,8,16."),
]
Llm = Annotated[
    str,
    typer.Option(
        "--model", help="Models apart by commas; see `nearkv models`. Or path/config.json."
    ),
]
Bed = Annotated[
    str, typer.Option("--platform", help="Test beds apart by commas; see `nearkv hardware`.")
]
Format = Annotated[str, typer.Option("--format", help="table, csv, json, markdown or latex.")]
Only = Annotated[
    str, typer.Option("--columns", help="Show only these, apart by commas: system,model,speedup.")
]
Out = Annotated[
    str,
    typer.Option(
        "--output-file",
        "-o",
        metavar="FILE",
        help="Write or replace FILE.csv, .jsonl or .parquet, and beside it where its numbers come from.",
    ),
]
Top = Annotated[int | None, typer.Option(metavar="N", help="Keep only the N best rows.")]
By = Annotated[
    str,
    typer.Option(metavar="COLUMN", help="What --top and --best-per compare by; throughput_tok_s."),
]
BestPer = Annotated[
    str, typer.Option(metavar="COLUMNS", help="Keep only the best row for each of their values.")
]
Jobs = Annotated[int, typer.Option(metavar="N", help="Processes that evaluate.")]
Scheduler = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Evaluate on a Dask cluster: tcp://host:8786.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a file that was not finished.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Write even more than 10^9 rows, or than the disk seems to hold."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show neither estimate nor progress.")]


def axes(
    model: Annotated[
        str, typer.Option(help="Models apart by commas; see `nearkv models`. Or path/config.json.")
    ] = "",
    batch: Annotated[str, typer.Option(help="Sequences served together: 16 or 1:64:x2.")] = "16",
    context: Annotated[
        str, typer.Option(help="Prompt tokens a sequence: 64k or 8k:128k:x2.")
    ] = "32k",
    output: Annotated[str, typer.Option(help="Tokens each sequence generates.")] = "64",
    platform: Annotated[
        str, typer.Option(help="Test beds apart by commas; default: the paper's own.")
    ] = "",
    sets: Set = [],
    knobs: Annotated[
        list[str],
        typer.Option("--knob", metavar="KNOB=VALUE", help="Value, list, rule or auto: alpha=0.5."),
    ] = [],
    trace: Annotated[
        str,
        typer.Option(
            help="Traces in place of lengths: openr1,dolphin or FILE.csv of input_tok,output_tok."
        ),
    ] = "",
    method: Annotated[
        str, typer.Option(help="With a trace: fluid, or simulate to play its queue.")
    ] = "fluid",
    seed: Annotated[int, typer.Option(help="Of the requests drawn from a trace.", min=0)] = 0,
) -> Study:
    """Collect the axes of a study that has no systems yet.

    Raises:
        InputError: an option that is not NAME=VALUE, or given twice.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.space.study import Study, comma_list, pairs

    if output.endswith((".csv", ".jsonl", ".parquet")):
        raise InputError(
            f"--output {output!r}: is the number of tokens; -o {output} names the file"
        )
    for option, text in (("--platform", platform), ("--trace", trace)):
        if text and not comma_list(text):
            raise InputError(
                f"{option} {text!r}: names nothing; leave it out, or give names apart by commas"
            )
    return Study(
        (),
        comma_list(model),
        batch,
        context,
        output,
        comma_list(platform),
        pairs(sets, "--set"),
        pairs(knobs, "--knob"),
        comma_list(trace),
        method,
        seed,
    )


@functools.cache
def _hints_of_axes() -> dict[str, Any]:
    return get_type_hints(axes, {**globals(), "Study": Any}, include_extras=True)


def with_axes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose first argument is a study the options that describe one."""
    shared = inspect.signature(axes, eval_str=False).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        study = axes(**{name: given.pop(name) for name in shared})
        command(study, **given)

    hints = _hints_of_axes() | get_type_hints(
        command, {**command.__globals__, "Study": Any}, include_extras=True
    )
    keyword = [
        p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in (*shared.values(), *own)
    ]
    wrapped.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in keyword}
    return wrapped

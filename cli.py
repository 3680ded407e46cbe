"""The command line: its commands in the order of their use, and the handling of every failure."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nearkv.hardware.errors import (
    RENAMED,
    InputError,
    NearkvError,
    NearkvWarning,
    UnmetError,
    unknown,
)
from nearkv.sweeps.commands import (
    catalogues,
    design,
    estimate,
    evidence,
    plot,
    questions,
    reuse,
    solve,
)
from nearkv.sweeps.commands.messages import NO_ANSWER, tell, telling_time

USAGE: Any = typer.BadParameter.__base__
"""Error that Typer raises for words it cannot use; it exports no name of it."""
FAULT, BAD_INPUT, STOPPED = 1, 2, 130
"""Exit codes; 1 is also for a check that failed, and `messages.NO_ANSWER` is one more."""
LONGEST_MESSAGE = 1_000
"""Characters of the longest sentence that is printed."""
ORDER: list[str] = []
"""Commands in the order of their use, in which they are added below."""


class Command(TyperCommand):
    """A command that refuses an option without a value, and one whose first value is lost."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse words, after a look at the values that Typer would drop without a word."""
        stated, _, order = self.make_parser(ctx).parse_args(list(args))
        for parameter in self.params:
            option = parameter.opts[0]
            values = stated.get(parameter.name)
            for value in values if isinstance(values, list | tuple) else [values]:
                if isinstance(value, str) and not value.strip(" ,"):
                    place = f"{option} {value!r}" if option.startswith("-") else repr(value)
                    raise InputError(f"{place} is empty; give it a value, or leave it out")
            if order.count(parameter) > 1 and not getattr(parameter, "multiple", False):
                raise InputError(
                    f"{option} is given twice; give it once, with commas between values"
                )
        return super().parse_args(ctx, args)


class CommandGroup(TyperGroup):
    """A group of commands; an unknown one is refused with the nearest name."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with the whole first line of their help, which Typer would cut."""
        rows = []
        for name in self.list_commands(ctx):
            help_text = self.commands[name].help or ""
            rows.append((name, help_text.partition("\n")[0]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that words ask for.

        Raises:
            InputError: there is none of that name.
        """
        if args[0] not in self.commands and not args[0].startswith("-"):
            place = ctx.command_path.partition(" ")[2]
            raise unknown("command", args[0], self.commands, place)
        return super().resolve_command(ctx, args)


class Nearkv(CommandGroup):
    """Runs commands; every failure is one sentence on standard error, and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands in the order of their use, groups among them."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def main(
        self, args: Any = None, *_: Any, standalone_mode: bool = True, **__: Any
    ) -> Any:
        """Run the command line, and leave with its exit code.

        Typer's own would lose the message of a command that Ctrl-C ends.
        """
        words = list(sys.argv[1:] if args is None else args)
        code = 0
        if isinstance(
            sys.stdout, io.TextIOWrapper
        ):  # show "?" for letters a terminal lacks
            sys.stdout.reconfigure(errors="replace")
        with warnings.catch_warnings():
            warnings.simplefilter("always", NearkvWarning)
            warnings.showwarning = _once_printed()
            try:
                # `python -m nearkv` is called so, too, in advice
                with self.make_context("nearkv", words) as ctx, telling_time(words):
                    self.invoke(ctx)
                if sys.stdout:
                    sys.stdout.flush()
            except BrokenPipeError:  # the reader of the output has seen enough
                _silence()
            except typer.Exit as left:
                code = left.exit_code
            except KeyboardInterrupt as stopped:
                complain(str(stopped) or "stopped; nothing was written")
                code = STOPPED
            except Exception as problem:
                code = _failure(problem)
        if standalone_mode or code:
            sys.exit(code)


def _failure(problem: Exception) -> int:
    """Say what went wrong, and return the exit code."""
    if type(problem).__name__ == "NoArgsIsHelpError":
        problem.show()  # type: ignore[attr-defined]
    elif isinstance(problem, USAGE):
        complain(_usage(problem))
    elif isinstance(problem, NearkvError):
        complain(str(problem))
        return NO_ANSWER if isinstance(problem, UnmetError) else BAD_INPUT
    elif isinstance(problem, MemoryError):
        complain(
            "not enough memory; ask for fewer design points, or write them with sweep -o"
        )
    elif isinstance(problem, OSError):
        _silence()
        place = str(problem.filename) if problem.filename else "standard output"
        complain(f"{place} cannot be used ({problem.strerror}); choose another")
    else:
        if os.environ.get("NEARKV_TRACEBACK"):
            traceback.print_exception(problem)
        fault = f"{type(problem).__name__}: {problem}"
        complain(f"a fault of nearkv, {fault}; NEARKV_TRACEBACK=1 shows where")
        return FAULT
    return BAD_INPUT


def complain(sentence: str) -> None:
    """Print a sentence on standard error, without characters that move a terminal's cursor."""
    shown = (
        sentence if len(sentence) <= LONGEST_MESSAGE else f"{sentence[:LONGEST_MESSAGE]}..."
    )
    tell(f"nearkv: {shown}")


def _once_printed() -> Callable[..., None]:
    """Printer of nearkv's warnings, each once: Python's own rule forgets with every filter.

    What a library warns of is no news to a user.
    """
    printed: set[str] = set()

    def print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        if isinstance(message, NearkvWarning) and str(message) not in printed:
            complain(f"warning: {message}")
        printed.add(str(message))

    return print_warning


def _usage(problem: Any) -> str:
    """Name the fault in the words of a command line, and where to read how they are meant."""
    sentence = problem.format_message().rstrip(".")
    if number := re.search(r"valid (integer|number)", sentence):
        needed = "whole number" if number[1] == "integer" else "number"
        sentence = f"{problem.param.opts[0]} takes a {needed}"
    renamed = RENAMED.get(getattr(problem, "option_name", ""))
    parameters = problem.ctx.command.params if problem.ctx else []
    if any(renamed in parameter.opts for parameter in parameters):
        sentence = f"{problem.option_name} is {renamed} now"
    if "extra argument" in sentence and "=" in sentence:
        sentence += "; repeat --set, --knob or --zip in front of each NAME=VALUE"
    if isinstance(getattr(problem.ctx, "command", None), TyperGroup):
        sentence += "; options follow the command"
    place = problem.ctx.command_path if problem.ctx else "nearkv"
    return f"{sentence}; see `{place} --help`"


def _silence() -> None:
    """Point standard output nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def group(
    text: str, *, alone: bool = False, cls: type[TyperGroup] = CommandGroup
) -> typer.Typer:
    """A group of commands.

    Args:
        text: its help.
        alone: its name without a command does something.
        cls: how its commands are found.
    """
    return typer.Typer(
        cls=cls,
        help=text,
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=alone,
        no_args_is_help=not alone,
        add_completion=False,
        rich_markup_mode=None,  # plain help starts at once and pipes
        pretty_exceptions_enable=False,
    )


app = group(
    "Predict how long-context LLM inference behaves on heterogeneous memory, "
    "and pick what is best.\n\n"
    "Exit codes: 0 answered; 1 a check failed, or a fault of nearkv; 2 bad input; "
    "3 the only row is infeasible, not modelled or never meets its SLO; 130 Ctrl-C.\n\n"
    "Example: nearkv compare flexgen-ssd hilos --model opt-66b --context 64k",
    cls=Nearkv,
)


def _print_version(is_stated: bool) -> None:
    if is_stated:
        from importlib.metadata import version

        typer.echo(f"nearkv {version('nearkv')}")
        raise typer.Exit


@app.callback()
def nearkv(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options of `nearkv` itself."""


def add(place: typer.Typer, *commands: Any, **named: Any) -> None:
    """Add commands under the names of their functions, or under names of their own."""
    names = {command.__name__.replace("_", "-"): command for command in commands}
    for name, command in {**names, **named}.items():
        place.command(name, cls=Command)(command)
        if place is app:
            ORDER.append(name)


def add_group(
    name: str, text: str, *commands: Any, alone: Any = None, **named: Any
) -> None:
    """Add a group of commands; with `alone`, its name without a command runs that."""
    place = group(text, alone=bool(alone))
    ORDER.append(name)
    if alone:
        place.callback()(alone)
    add(place, *commands, **named)
    app.add_typer(place, name=name)


add(app, estimate.estimate, questions.compare, questions.sweep)
add_group(
    "solve",
    "Find the best value of a knob, its bound if it has one, and what the paper's rule picks.\n\n"
    "Example: nearkv solve alpha --model opt-66b --context 32k",
    solve.alpha,
    solve.beta,
    solve.spill,
    solve.knob,
    solve.mapping,
    solve.subbatch,
    solve.placement,
    solve.batch,
    solve.hardware,
    reuse.tiers,
    solve.crossover,
)
add(app, questions.pareto, questions.sensitivity, design.design, reuse.reuse)
add_group(
    "plot",
    "Draw a table that another command wrote: bars, lines, maps and more.\n\n"
    "Example: nearkv plot bars out.csv --value decode_tok_s -o bars.pdf",
    plot.bars,
    plot.lines,
    plot.breakdown,
    plot.pareto,
    plot.tornado,
    plot.roofline,
    plot.footprint,
    plot.parity,
    map=plot.policy_map,
    reuse=reuse.picture,
)
add(app, plot.figure, plot.report)
add(app, evidence.validate, evidence.calibrate, evidence.coverage)
add_group(
    "systems",
    "List the systems; `systems show NAME` prints one with its knobs.\n\n"
    "Example: nearkv systems --format markdown",
    alone=catalogues.systems,
    show=catalogues.show_system,
    new=catalogues.new_system_file,
    check=catalogues.check_systems,
)
add_group(
    "models",
    "List the models; `models show NAME` prints every number.\n\n"
    "Example: nearkv models --format json",
    alone=catalogues.models,
    show=catalogues.show_model,
    new=catalogues.new_model_file,
    check=catalogues.check_model,
)
add_group(
    "hardware",
    "List platforms and parts; `hardware show NAME` prints every number.\n\n"
    "Example: nearkv hardware --format csv",
    alone=catalogues.hardware,
    show=catalogues.show_hardware,
    keys=catalogues.keys,
    formats=catalogues.formats,
    new=catalogues.new_platform_file,
    check=catalogues.check_hardware,
)
add_group(
    "columns",
    "List the columns of results; `columns show NAME` prints what one means.\n\n"
    "Example: nearkv columns --format markdown",
    alone=catalogues.columns,
    show=catalogues.show_column,
)


if __name__ == "__main__":
    app()

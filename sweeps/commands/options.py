"""The options that commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from nearkv.sweeps.commands.bands import Band, Samples, check_draws

if TYPE_CHECKING:
    from nearkv.sweeps.space.study import Study

TABLE_FILES = (".csv", ".jsonl", ".parquet")

System = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="A system; `nearkv systems` lists them.")
]
Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM...", help="Systems; the first is what the others are compared with."
    ),
]
Named = Annotated[
    str,
    typer.Option(
        "--system",
        metavar="SYSTEMS",
        help="Comma-separated systems; `nearkv systems` lists them.",
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="ROLE.KEY=VALUES",
        help="Replace a hardware number: csd.count=4,8,16.",
    ),
]
Knobs = Annotated[
    list[str],
    typer.Option(
        "--knob",
        metavar="KNOB=VALUES",
        help="Values, a rule of the paper, or auto: alpha=0.5.",
    ),
]
Llm = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODELS",
        help="Comma-separated models, as `nearkv models` lists them, or path/config.json.",
    ),
]
Batch = Annotated[
    str,
    typer.Option(
        "--batch", metavar="SIZES", help="Sequences served together: 16, 1,8,64 or 1:64:x2."
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        metavar="SIZES",
        help="Prompt tokens of each sequence: 64k or 8k:128k:x2.",
    ),
]
OutputTokens = Annotated[
    str,
    typer.Option(
        "--output-tokens", metavar="SIZES", help="Tokens that each sequence generates."
    ),
]
Bed = Annotated[
    str,
    typer.Option(
        "--platform",
        metavar="PLATFORMS",
        help="Comma-separated platforms, as `nearkv hardware` lists them, or path/file.toml; "
        "default: that of each system's paper.",
    ),
]
Traces = Annotated[
    str,
    typer.Option(
        "--trace",
        metavar="TRACES",
        help="Requests in place of lengths: openr1,dolphin, or FILE.csv of input_tok,output_tok.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="With a trace: fluid (averages), or simulate (its queue, event by event).",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="NUMBER",
        min=0,
        help="Of the requests drawn from a trace, and of the draws of --band.",
    ),
]
Parts = Annotated[
    list[str],
    typer.Option(
        "--part",
        metavar="ROLE=PARTS",
        help="Swap a part of the platform: gpu=a100-40gb,h200-sxm or csd=./mine.toml.",
    ),
]
Plugins = Annotated[
    list[str],
    typer.Option(
        "--plugin", metavar="FILE.py", help="A file that registers systems of your own."
    ),
]
StudyFile = Annotated[
    str,
    typer.Argument(
        metavar="[STUDY.toml]", help="A study, in place of the options of its axes."
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="table, csv, json, markdown or latex."),
]
Only = Annotated[
    str,
    typer.Option("--columns", metavar="COLUMNS", help="Only these: system,model,speedup."),
]
Breakdown = Annotated[
    bool, typer.Option("--breakdown", help="Add the seconds of each resource as columns.")
]
Of = Annotated[str, typer.Option("--of", metavar="COLUMN", help="The column to look at.")]
Out = Annotated[
    str,
    typer.Option(
        "--output-file",
        "-o",
        metavar="FILE",
        help="Write FILE.csv, .jsonl or .parquet, and where its numbers come from beside it; "
        "compare and sweep also draw FILE.pdf, .svg or .png.",
    ),
]


def axes(
    model: Llm = "",
    batch: Batch = "16",
    context: Context = "32k",
    output: OutputTokens = "64",
    platform: Bed = "",
    sets: Set = [],
    knobs: Knobs = [],
    trace: Traces = "",
    method: Method = "fluid",
    seed: Seed = 0,
    band: Band = 0.0,
    samples: Samples = 1024,
    parts: Parts = [],
    plugins: Plugins = [],
) -> Study:
    """Collect the axes of a study that has no systems yet.

    Raises:
        InputError: an option that is not NAME=VALUE, that is given twice, or that is empty.
    """
    from nearkv.sweeps.runtime.plugin_files import load_plugins
    from nearkv.sweeps.space.study import Study, comma_list, pairs

    check_draws(seed, samples, bool(band), bool(trace))
    load_plugins(plugins)
    _check_texts(output, platform, trace)
    return Study(
        systems=(),
        models=comma_list(model),
        batch=batch,
        context=context,
        output=output,
        platforms=comma_list(platform),
        sets=pairs(sets, "--set"),
        knobs=pairs(knobs, "--knob"),
        traces=comma_list(trace),
        method=method,
        seed=seed,
        band=band,
        samples=samples,
        plugins=tuple(plugins),
        parts=pairs(parts, "--part"),
    )


def _check_texts(output: str, platform: str, trace: str) -> None:
    """Refuse options that cannot mean anything.

    Raises:
        InputError: naming the option.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.space.study import comma_list

    if output.endswith(TABLE_FILES):
        place = f"--output-tokens {output!r}"
        raise InputError(f"{place}: is a number of tokens; -o {output} names the file")
    for option, text in (("--platform", platform), ("--trace", trace)):
        if text and not comma_list(text):
            raise InputError(f"{option} {text!r}: is empty; give a name, or leave it out")


def with_axes(command: Callable[..., None]) -> Callable[..., None]:
    """Mark a command whose first argument is a study: it gets the options that describe one."""
    command.takes_axes = True  # type: ignore[attr-defined]
    return command


def bound(command: Callable[..., None]) -> Callable[..., None]:
    """A command as the parser calls it, its study made of the options of `axes`."""
    if not getattr(command, "takes_axes", False):
        return command
    shared = inspect.signature(axes).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def called(**options: Any) -> None:
        study = axes(**{name: options.pop(name) for name in shared})
        command(study, **options)

    hints = {**_hints_of(axes), **_hints_of(command)}
    keywords = []
    for parameter in (*shared.values(), *own):
        keyword = parameter.replace(
            kind=parameter.KEYWORD_ONLY, annotation=hints[parameter.name]
        )
        keywords.append(keyword)
    called.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    called.__annotations__ = {keyword.name: keyword.annotation for keyword in keywords}
    return called


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    names = {**function.__globals__, "Study": Any}
    return get_type_hints(function, names, include_extras=True)

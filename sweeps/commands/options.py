"""The options that commands share, and what they say together: a study, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.study.axes import AXES, StudyAxis
from nearkv.sweeps.study.sizes import comma_list, pairs

if TYPE_CHECKING:
    from nearkv.sweeps.study.study import Study


def option(metavar: str, what: str, *names: str, **others: Any) -> Any:
    """An option of a command.

    Args:
        metavar: what its value is, in capitals.
        what: its line of the help.
        names: as it is typed, where that is not the name of its argument.
        others: as Typer takes them.
    """
    return typer.Option(*names, metavar=metavar, help=what, **others)


def flag(name: str, what: str) -> Any:
    """An option that is yes where it is given, and its line of the help."""
    return typer.Option(name, help=what)


def argument(metavar: str, what: str) -> Any:
    """A word of a command without an option before it, and its line of the help."""
    return typer.Argument(metavar=metavar, help=what)


SystemArgument = Annotated[
    str, argument("SYSTEM", "A system; `nearkv systems` lists them.")
]
Systems = Annotated[
    list[str],
    argument("SYSTEM", "Systems; the first is what the others are compared with."),
]
Installable = Annotated[
    bool,
    flag("--installable", "Only systems that run on machines one can buy: engines."),
]
SystemNames = Annotated[
    str, option("SYSTEMS", "Comma-separated systems; `nearkv systems` lists them.")
]
StatedPlatforms = Annotated[
    str,
    option(
        "PLATFORMS",
        "Comma-separated platforms, as `nearkv hardware` lists them, or path/file.toml.",
    ),
]
OneModel = Annotated[
    str, option("MODEL", "One model, as `nearkv models` lists them, or path/config.json.")
]
OnePlatform = Annotated[
    str,
    option("PLATFORM", "One platform, as `nearkv hardware` lists them, or path/file.toml."),
]
SetOnce = Annotated[
    list[str],
    option(
        "ROLE.KEY=VALUE", "Replace a hardware number by one value: csd.count=16.", "--set"
    ),
]
OnePart = Annotated[
    list[str],
    option(
        "ROLE=PART",
        "Swap a part of the platform for one: gpu=h200-sxm or csd=./mine.toml.",
        "--part",
    ),
]
StudyFile = Annotated[
    str,
    argument(
        "STUDY.toml",
        "A study file, or a study of the catalogue (inf2-fig10), in place of the axes.",
    ),
]
Format = Annotated[
    str, option("FORMAT", "table, csv, json, markdown or latex.", "--format")
]
ColumnsOption = Annotated[str, option("COLUMNS", "Show only these: system,model,speedup.")]
Breakdown = Annotated[
    bool, flag("--breakdown", "Add the seconds of each resource as columns.")
]
Of = Annotated[str, option("COLUMN", "The column that is asked about.")]
Yes = Annotated[
    bool,
    flag(
        "--yes",
        "Begin with more than 10^9 rows to write, 10^10 to compare, or a small disk.",
    ),
]


@dataclass(frozen=True)
class View:
    """Presentation of a table, and the options that ask for it.

    Attributes:
        form: `--format`; empty for the command's own.
        columns: `--columns`, comma-separated.
        file: `-o`.
        pivot: `--pivot`.
        caption, label: of a LaTeX table.
    """

    columns: ColumnsOption = ""
    form: Format = ""
    file: Annotated[
        str,
        option(
            "FILE",
            "Write FILE.csv, .jsonl, .parquet, .json, .md or .tex, and its sources beside it.",
            "--output-file",
            "-o",
        ),
    ] = ""
    pivot: Annotated[
        str,
        option(
            "COLUMN",
            "Make a column of each value of this one: context_tok. Cells show the answers among "
            "--columns.",
        ),
    ] = ""
    caption: Annotated[
        str, option("TEXT", "Caption of the table, with --format latex or -o FILE.tex.")
    ] = ""
    label: Annotated[str, option("NAME", "Label of the table, as --caption.")] = ""

    @property
    def written(self) -> str:
        """Columns of a file of data: all of them where those named fill the cells of a pivot."""
        return "" if self.pivot else self.columns

    @property
    def is_for_people(self) -> bool:
        """True if a terminal's table is asked for."""
        return self.form in ("", "table")


LOAD = ("per_round", "rate", "users", "slo")
"""Axes of a batch in rounds, of requests that arrive, and of what is asked of their answers."""


def axes(*fields: str, **defaults: Any) -> Callable[[], None]:
    """Options of axes of a study, for `with_options`.

    Args:
        fields: of `Study`.
        defaults: in place of those of the axes, by field; `...` where one must be given.
    """

    def group() -> None:
        """Hold the options in its signature."""

    chosen = [axis for axis in AXES if axis.field in fields]
    options = [_option_of(axis, defaults.get(axis.field, axis.default)) for axis in chosen]
    vars(group)["__signature__"] = Signature(options)
    return group


def _option_of(axis: StudyAxis, default: Any) -> Parameter:
    """The option of an axis as a parameter of a command."""
    kind: Any = type(axis.default)
    if axis.is_repeated:
        kind, default = list[str], list(default)
    elif axis.default is None:
        kind = float | None
    words = option(axis.metavar, axis.help, axis.option)
    return Parameter(
        axis.parameter,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, words],
    )


of_study = axes(*(axis.field for axis in AXES if axis.field not in LOAD))
of_load = axes(*LOAD)


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Parameters of a function, by name; many commands have those of one group."""
    return signature(function, eval_str=True).parameters


def with_options(
    *groups: Callable[..., Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the parameters of groups to a command, behind its own; its context alone holds them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = _parameters(command)
        taken = dict(own)
        for group in groups:
            for name, parameter in _parameters(group).items():
                taken.setdefault(name, parameter)

        @wraps(command)
        def run(line: typer.Context, **values: Any) -> None:
            if line.invoked_subcommand:  # a list behind whose name a command stands
                check_bare(line)
            else:
                command(line, **{name: values[name] for name in values.keys() & own.keys()})

        by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in taken.values()]
        vars(run)["__signature__"] = Signature(by_name)
        return run

    return decorate


def arguments(line: typer.Context, without: Callable[..., Any] = View) -> dict[str, Any]:
    """Values of the options of a command, by name, as a function of `nearkv` takes it.

    Args:
        line: of the command.
        without: options that say something else, how a table is shown.

    Raises:
        InputError: an option that is not NAME=VALUE, or that is given twice.
    """
    left_out = signature(without).parameters
    stated = {name: value for name, value in line.params.items() if name not in left_out}
    for name in ("sets", "knobs", "parts"):
        if name in stated:
            stated[name] = pairs(stated[name], f"--{name.removesuffix('s')}")
    return stated


def study_of(line: typer.Context, systems: str | Sequence[str]) -> Study:
    """The study that the options of a command describe.

    Args:
        line: of a command that takes all options of a study.
        systems: names; comma-separated where they are one text.

    Raises:
        InputError: an option that is not NAME=VALUE, that is given twice, or that cannot be read.
    """
    from nearkv.sweeps.study.own_systems import load_plugins
    from nearkv.sweeps.study.study import stated_study

    stated = arguments(line)
    if stated["plugins"]:
        load_plugins(stated["plugins"])
    stated["zipped"] = pairs(" ".join(stated["zipped"]).split(), "--zip")
    fields: dict[str, Any] = {"systems": systems, "models": ""}
    for axis in AXES:
        value = stated.get(axis.parameter)
        if value or value == 0:
            fields[axis.field] = value
    return stated_study(**fields | {"band": stated["band"]})


def study_or_file(line: typer.Context, path: str, systems: str) -> Study:
    """The study of a file as the options vary it, or of the options where no file is named.

    Raises:
        InputError: either cannot be read.
    """
    from nearkv.sweeps.study.study_files import either

    return either(path, study_of(line, systems), stated_words(line))


def chosen_of(line: typer.Context, systems: Sequence[str]) -> Sequence[str]:
    """Systems as they are named; with --installable those of them, or of all, that can be.

    Raises:
        InputError: no system is left, or a name is unknown.
    """
    from nearkv.costmodel.model.registry import engines
    from nearkv.sweeps.study.own_systems import load_plugins

    if not line.params["installable"]:
        return systems
    load_plugins(line.params["plugins"])
    return engines(systems)


def stated_words(line: typer.Context) -> dict[str, str]:
    """Words of the command line about a study, by the field of `Study` that it sets."""
    fields = {axis.parameter: axis.field for axis in AXES}
    fields["system"] = "systems"
    words = {}
    for parameter in line.command.params:
        name = str(parameter.name)
        source = line.get_parameter_source(name)
        if name in fields and source and source.name == "COMMANDLINE":
            value = line.params[name]
            texts = value if isinstance(value, list | tuple) else [value]
            if value is True:  # its name says all
                texts = []
            words[fields[name]] = " ".join([parameter.opts[0], *map(str, texts)])
    return words


def view_of(line: typer.Context) -> View:
    """Presentation of a command's table; a format is checked before any work.

    Raises:
        InputError: an unknown format, or a caption or a label that no format prints.
    """
    from nearkv.sweeps.tables.formats import check_format

    view = View(**{name: line.params[name] for name in signature(View).parameters})
    if view.form:
        check_format(view.form)
    is_latex = view.form == "latex" or view.file.endswith(".tex")
    if (view.caption or view.label) and not is_latex:
        advice = "add --format latex, or -o FILE.tex"
        raise InputError(f"--caption and --label are of LaTeX tables; {advice}")
    return view


def check_bare(line: typer.Context) -> None:
    """Refuse options of a list that stand before the command that prints something else.

    Raises:
        InputError: there is one.
    """
    view = view_of(line)
    if view != View():
        option = f"--format {view.form}" if view.form else "options"
        place = f"{line.invoked_subcommand} NAME {option}"
        raise InputError(f"{option}: put it behind the command, as in {place}")


def check_shown(view: View, study: Study, breakdown: bool = False) -> None:
    """Refuse, before any work, columns of no answer and those that one option names alone.

    Raises:
        InputError: a column that no answer has, a breakdown that --columns does not name, or a
            breakdown of a queue.
    """
    columns = view.columns
    _check_known(study, view.columns, "--columns")
    _check_known(study, view.pivot, "--pivot")
    if breakdown and study.method == "simulate":
        raise InputError(
            "--breakdown needs --method fluid; a queue has no time per resource"
        )
    if breakdown and columns and "time_s:" not in columns:
        raise InputError(
            "--columns leaves out what --breakdown adds; name time_s:RESOURCE too"
        )


def _check_known(study: Study, columns: str, where: str) -> None:
    """Refuse names of columns that begin as none of an answer; a user's system has its own.

    Raises:
        InputError: there is such a name.
    """
    from nearkv.costmodel.model.registry import find_system
    from nearkv.sweeps.evaluate.catalogue import column_rows

    systems = [find_system(name) for name in study.systems]
    if not columns or any(system.plugin for system in systems):
        return
    known = [str(row["column"]) for row in column_rows()]
    known += [name for system in systems for name in system.knobs]
    begins = tuple(name.partition(":")[0] for name in known)
    for name in comma_list(columns):
        # a number of the machine is called by its role and its unit
        if "." not in name and not name.startswith(begins):
            raise unknown("column", name, known, where)

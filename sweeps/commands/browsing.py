"""Commands that list and show what is known: systems, models, platforms and parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nearkv.sweeps.commands.bundles import bound
from nearkv.sweeps.commands.failures import Registry
from nearkv.sweeps.commands.options import Plugins, SetOnce, System
from nearkv.sweeps.commands.printing import show_rows
from nearkv.sweeps.commands.views import View

NUMBERS = ("part", "key", "value", "unit", "kind", "source", "at", "range", "si", "note")
"""Columns of a number, the most important first."""

systems = Registry(
    "List the systems; `systems show NAME` prints one with its knobs.\n\n"
    "Example: nearkv systems --format markdown",
    alone=True,
)
models = Registry(
    "List the models; `models show NAME` prints every number.\n\n"
    "Example: nearkv models --format json",
    alone=True,
)
hardware = Registry(
    "List platforms and parts; `hardware show NAME` prints every number.\n\n"
    "Example: nearkv hardware --format csv",
    alone=True,
)

columns = Registry(
    "List the columns of results; `columns show NAME` prints what one means.\n\n"
    "Example: nearkv columns --format markdown",
    alone=True,
)

ColumnName = Annotated[str, typer.Argument(metavar="COLUMN", help="A column of a result.")]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model, or path/config.json.")
]
PlatformOrPart = Annotated[
    str, typer.Argument(metavar="NAME", help="A platform or a part, or path/file.toml.")
]
KindOfPart = Annotated[
    str, typer.Argument(metavar="KIND", help="A kind of part: gpu, csd, ...")
]
NewPlatform = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the new platform.")
]
BasePlatform = Annotated[
    str, typer.Option("--from", metavar="NAME", help="Platform to start from.")
]
NewSystem = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the new system, as in my-system.")
]
OwnSystem = Annotated[
    str, typer.Argument(metavar="FILE.py", help="A file that registers systems.")
]
OwnFile = Annotated[str, typer.Argument(metavar="FILE.toml", help="A part or a platform.")]


def list_systems(ctx: typer.Context, view: View, plugins: Plugins = []) -> None:
    """List the systems, each with the paper it comes from and its knobs."""
    from nearkv.sweeps.evaluate.catalogue import system_rows
    from nearkv.sweeps.study.plugin_files import load_plugins

    load_plugins(plugins)
    if listed(ctx, view):
        rows = system_rows()
        below = [
            f"{len(rows)} systems; `nearkv systems show NAME` prints the knobs of one."
        ]
        columns = ("system", "what", "paper", "platform", "knobs")
        show_rows(rows, view, columns, below=below)


def show_system(view: View, name: System, plugins: Plugins = []) -> None:
    """Print a system's knobs: range, default, the paper's rules.

    Example: nearkv systems show hilos
    """
    from nearkv.sweeps.evaluate.catalogue import knob_rows, summary_of
    from nearkv.sweeps.study.plugin_files import load_plugins

    load_plugins(plugins)
    columns = ("knob", "values", "default", "what", "rules")
    show_rows(knob_rows(name), view, columns, title=summary_of(name))


def new_system(name: NewSystem) -> None:
    """Write a system that works as it is, as a commented example, and its test.

    Example: nearkv systems new my-system
    """
    from nearkv.sweeps.study import own_system

    files = own_system.new_system(name)
    for file, text in files.items():
        write_new(Path(file), text)
    system, test = files
    typer.echo(f"wrote {system} and {test}; use it as --plugin {system}")


def check_systems(file: OwnSystem) -> None:
    """Try the systems of a file against the contracts of all systems; exit 1 where one breaks.

    Example: nearkv systems check my_system.py
    """
    from nearkv.costmodel.model.registry import systems
    from nearkv.sweeps.study.plugin_files import load_plugins, read_plugin
    from nearkv.sweeps.validation.contracts import violations

    load_plugins([file])
    plugin = read_plugin(file)
    broken = False
    for name, system in systems().items():
        if system.plugin != plugin:
            continue
        sentences = violations(system)
        for sentence in sentences or ["keeps every contract"]:
            typer.echo(f"{name}: {sentence}")
        broken = broken or bool(sentences)
    if broken:
        raise typer.Exit(1)


def list_models(ctx: typer.Context, view: View) -> None:
    """List the models with their shapes."""
    from nearkv.sweeps.evaluate.models import model_rows

    if listed(ctx, view):
        rows = model_rows()
        below = [
            f"{len(rows)} models; `nearkv models show NAME` prints every number of one."
        ]
        show_rows(rows, view, below=below)


def show_model(view: View, name: Model) -> None:
    """Print parameters, weights, KV cache and layers of a model, and every number's source.

    Example: nearkv models show mixtral-8x7b
    """
    from nearkv.sweeps.evaluate.models import model_numbers

    rows = model_numbers(name)
    show_rows(rows, view, below=[kinds_of(rows)])


def list_hardware(ctx: typer.Context, view: View) -> None:
    """List the platforms and the parts they are made of."""
    from nearkv.sweeps.evaluate.catalogue import hardware_rows

    if listed(ctx, view):
        rows = hardware_rows()
        below = [
            f"{len(rows)} names; `nearkv hardware show NAME` prints every number of one."
        ]
        show_rows(rows, view, ("name", "kind", "what", "roles"), below=below)


def show_hardware(view: View, name: PlatformOrPart, sets: SetOnce = []) -> None:
    """Print every number of a platform or part with unit, kind and source.

    Example: nearkv hardware show hilos-a100 --set csd.count=16
    """
    from nearkv.sweeps.evaluate.catalogue import hardware_numbers
    from nearkv.sweeps.study.study import pairs

    rows = hardware_numbers(name, pairs(sets, "--set"))
    show_rows(rows, view, NUMBERS, below=[kinds_of(rows)])


def kinds_of(rows: Sequence[dict[str, Any]]) -> str:
    """How many numbers there are, and where they come from."""
    counts = Counter(row["kind"] for row in rows)
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    return f"{len(rows)} numbers: {parts}."


def list_columns(ctx: typer.Context, view: View) -> None:
    """List the columns of results with unit and definition."""
    from nearkv.sweeps.evaluate.catalogue import column_rows

    if listed(ctx, view):
        rows = column_rows()
        below = [f"{len(rows)} columns; `nearkv columns show NAME` prints what one means."]
        show_rows(rows, view, below=below)


def show_column(view: View, name: ColumnName) -> None:
    """Print what a column means.

    Example: nearkv columns show step_ms
    """
    from nearkv.sweeps.evaluate.catalogue import column_row

    show_rows([column_row(name)], view)


def listed(ctx: typer.Context, view: View) -> bool:
    """Whether a catalogue is to be listed: its name stands without a command.

    Raises:
        InputError: an option stands before the command that prints.
    """
    from nearkv.hardware.errors import InputError

    if ctx.invoked_subcommand and view != View():
        option = f"--format {view.form}" if view.form else "options"
        place = f"{ctx.invoked_subcommand} NAME {option}"
        raise InputError(f"{option}: put it behind the command, as in {place}")
    return ctx.invoked_subcommand is None


def keys(view: View, kind: KindOfPart) -> None:
    """List the numbers that a kind of part has: unit, meaning, usual range, systems that read it.

    Example: nearkv hardware keys gpu
    """
    from nearkv.hardware.own import key_rows
    from nearkv.sweeps.evaluate.readers import readers

    rows = key_rows(kind)
    by_key = readers(kind)
    for row in rows:
        row["used_by"] = ", ".join(by_key.get(str(row["key"]), []))
    show_rows(rows, view)


def new_hardware(name: NewPlatform, base: BasePlatform = "hilos-a100") -> None:
    """Write NAME.toml, a platform that works as it is, its numbers as comments to change.

    Example: nearkv hardware new my-machine --from hilos-a100
    """
    from nearkv.hardware.own import new_platform

    write_own(name, lambda stem: new_platform(stem, base), "--platform")


def write_own(name: str, text_of: Callable[[str], str], option: str) -> None:
    """Write NAME.toml, and say which option takes it.

    Args:
        name: of the file, with or without its ending.
        text_of: the text, from the name without its ending.
        option: what takes the file.

    Raises:
        InputError: the file exists, or cannot be written.
    """
    file = Path(f"{name.removesuffix('.toml')}.toml")
    write_new(file, text_of(file.stem))
    typer.echo(f"wrote {file}; use it as {option} {file}")


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist yet.

    Raises:
        InputError: it does, or cannot be written.
    """
    import os

    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluate.provenance import write_text

    if os.path.lexists(file):
        raise InputError(f"{file}: cannot be written (File exists); choose another name")
    write_text(file, text)


def check_hardware(file: OwnFile) -> None:
    """Say all that is wrong with a part or platform file; exit 1 where something is.

    Example: nearkv hardware check my-machine.toml
    """
    from nearkv.hardware.own import problems

    say_problems(file, problems(Path(file)))


def say_problems(file: str, sentences: Sequence[str]) -> None:
    """Print what is wrong with a file of the user's; exit 1 where something is."""
    for sentence in sentences or [f"{file}: nothing is wrong"]:
        typer.echo(sentence)
    if sentences:
        raise typer.Exit(1)


columns.callback()(bound(list_columns))
columns.add(show_column, "show")
systems.callback()(bound(list_systems))
systems.add(show_system, "show")
systems.add(new_system, "new")
systems.add(check_systems, "check")
models.callback()(bound(list_models))
models.add(show_model, "show")
hardware.callback()(bound(list_hardware))
hardware.add(show_hardware, "show")
hardware.add(keys, "keys")
hardware.add(new_hardware, "new")
hardware.add(check_hardware, "check")

"""The commands `nearkv systems`, `models`, `hardware` and `columns`: what there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.files import report_problems, write_new, write_toml
from nearkv.sweeps.commands.messages import printable
from nearkv.sweeps.commands.options import argument, option
from nearkv.sweeps.commands.printing import print_table

if TYPE_CHECKING:
    from nearkv.sweeps.tables.table import Rows


@options.with_options(options.axes("plugins"), options.View)
def systems(
    line: typer.Context,
    platform: options.OnePlatform = "",
    installable: options.Installable = False,
) -> None:
    """List the systems, each with the paper it comes from and its knobs.

    With --platform, which of them run on it, and what it lacks for the others.
    """
    from nearkv.costmodel.model.registry import ENGINE
    from nearkv.sweeps.api.tables import Findings
    from nearkv.sweeps.evaluate.catalogue import system_rows
    from nearkv.sweeps.study.own_systems import load_plugins

    view = options.view_of(line)
    load_plugins(line.params["plugins"])
    rows = system_rows(platform)
    if installable:
        rows = [row for row in rows if row["origin"] == ENGINE]
    usual = "system,origin,what,paper,platform,knobs"
    if platform:
        usual = "system,origin,runs,lacks,what"
    below = [f"{len(rows)} systems; `nearkv systems show NAME` prints the knobs of one."]
    if platform:
        running = sum(row["runs"] == "yes" for row in rows)
        below = [f"{running} of {len(rows)} systems run on {platform}."]
    print_table(Findings(rows), view, usual, below=below)


@options.with_options(options.axes("plugins"), options.View)
def show_system(line: typer.Context, name: options.SystemArgument) -> None:
    """Print a system's knobs: range, default, the paper's rules; then what is not monotone.

    Example: nearkv systems show hilos
    """
    from nearkv.sweeps.evaluate.catalogue import knob_rows, reversals_of, summary_of
    from nearkv.sweeps.study.own_systems import load_plugins

    load_plugins(line.params["plugins"])
    usual = "knob,values,default,published,what,rules"
    below, title = reversals_of(name), summary_of(name)
    print_table(knob_rows(name), options.view_of(line), usual, title=title, below=below)


def new_system_file(
    name: Annotated[str, argument("NAME", "Name of the new system, as in my-system.")],
) -> None:
    """Write a system that works as it is, as a commented example, and its test.

    Example: nearkv systems new my-system
    """
    from nearkv.sweeps.study.own_systems import new_system

    files = new_system(name)
    for file, text in files.items():
        write_new(Path(file), text)
    system, test = files
    typer.echo(f"wrote {system} and {test}; use it as --plugin {system}")


def check_systems(
    file: Annotated[str, argument("FILE.py", "A file that registers systems.")],
) -> None:
    """Try the systems of a file against the contracts of all systems; exit 1 where one breaks.

    Example: nearkv systems check my_system.py
    """
    from nearkv.costmodel.model.registry import systems
    from nearkv.sweeps.study.own_systems import load_plugins, read_plugin
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


def print_names(line: typer.Context, rows: Rows, shown: str, usual: str = "") -> None:
    """Print a catalogue; below it how many names there are, and what is shown of each."""
    show = f"`nearkv {line.command.name} show NAME` prints {shown}."
    below = [f"{len(rows)} names; {show}"]
    print_table(rows, options.view_of(line), usual, below=below)


@options.with_options(options.View)
def models(line: typer.Context) -> None:
    """List the models with their shapes."""
    from nearkv.sweeps.evaluate.models import model_rows

    print_names(line, model_rows(), "every number of one")


@options.with_options(options.View)
def show_model(
    line: typer.Context,
    name: Annotated[str, argument("MODEL", "A model, or path/config.json.")],
) -> None:
    """Print parameters, weights, KV cache and layers of a model, and every number's source.

    Example: nearkv models show mixtral-8x7b
    """
    from nearkv.sweeps.commands.below import counted_by
    from nearkv.sweeps.evaluate.models import model_numbers

    rows = model_numbers(name)
    print_table(rows, options.view_of(line), below=[counted_by(rows, "kind", "number")])


def new_model_file(
    name: Annotated[str, argument("NAME", "Name of the new model.")],
    base: Annotated[str, option("NAME", "Model to start from.", "--from")] = "llama2-7b",
) -> None:
    """Write NAME.toml, a model that works as it is, each number with its meaning.

    Example: nearkv models new my-model --from llama2-7b
    """
    from nearkv.hardware import own

    write_toml(name, lambda stem: own.new_model(stem, base), "--model")


def check_model(
    file: Annotated[str, argument("FILE", "A model as FILE.toml, or a config.json.")],
) -> None:
    """Say all that is wrong with a model file; exit 1 where something is.

    Example: nearkv models check my-model.toml
    """
    from nearkv.hardware.own import model_problems

    report_problems(file, model_problems(Path(file)))


NUMBER_COLUMNS = "part,key,value,unit,kind,source,at,range,si,note"
"""Columns of a number, the most important first."""


@options.with_options(options.View)
def hardware(line: typer.Context) -> None:
    """List the platforms and the parts they are made of."""
    from nearkv.sweeps.evaluate.catalogue import hardware_rows

    usual = "name,kind,what,roles"
    print_names(line, hardware_rows(), "every number of one", usual)


@options.with_options(options.View)
def show_hardware(
    line: typer.Context,
    name: Annotated[str, argument("NAME", "A platform or a part, or path/file.toml.")],
    sets: options.SetOnce = [],
) -> None:
    """Print every number of a platform or part with unit, kind and source.

    Example: nearkv hardware show hilos-a100 --set csd.count=16
    """
    from nearkv.sweeps.commands.below import counted_by
    from nearkv.sweeps.evaluate.catalogue import hardware_numbers
    from nearkv.sweeps.study.sizes import pairs

    rows, view = hardware_numbers(name, pairs(sets, "--set")), options.view_of(line)
    print_table(rows, view, NUMBER_COLUMNS, below=[counted_by(rows, "kind", "number")])


@options.with_options(options.View)
def keys(
    line: typer.Context,
    kind: Annotated[
        str,
        argument("KIND", "A kind of part, or a role of one: gpu, ssd, ..."),
    ],
) -> None:
    """List the numbers that a kind of part has: unit, meaning, usual range, systems that read it.

    Example: nearkv hardware keys gpu
    """
    from nearkv.hardware.own import key_rows, type_of
    from nearkv.sweeps.evaluate.catalogue import readers

    part_type = type_of(kind)
    rows = key_rows(part_type)
    by_key = readers(part_type)
    for row in rows:
        row["used_by"] = ", ".join(by_key.get(str(row["key"]), []))
    print_table(rows, options.view_of(line))


@options.with_options(options.View)
def formats(line: typer.Context) -> None:
    """List the formats that --set precision.weight=NAME takes: bits, products, what each is.

    Example: nearkv hardware formats
    """
    from nearkv.hardware.formats import format_rows

    print_table(format_rows(), options.view_of(line))


def new_platform_file(
    name: Annotated[str, argument("NAME", "Name of the new platform.")],
    base: Annotated[
        str, option("NAME", "Platform to start from.", "--from")
    ] = "hilos-a100",
) -> None:
    """Write NAME.toml, a platform that works as it is, its numbers as comments to change.

    Example: nearkv hardware new my-machine --from hilos-a100
    """
    from nearkv.hardware.own import new_platform

    write_toml(name, lambda stem: new_platform(stem, base), "--platform")


def check_hardware(
    file: Annotated[str, argument("FILE.toml", "A part or a platform.")],
) -> None:
    """Say all that is wrong with a part or platform file; exit 1 where something is.

    Where nothing is, say which of its numbers were measured on another chip.

    Example: nearkv hardware check my-machine.toml
    """
    from nearkv.hardware.own import of_siblings, problems

    faults = problems(Path(file))
    report_problems(file, faults)
    for sentence in of_siblings(Path(file)):
        typer.echo(printable(sentence))


@options.with_options(options.View)
def columns(line: typer.Context) -> None:
    """List the columns of results with unit and definition."""
    from nearkv.sweeps.evaluate.catalogue import column_rows

    print_names(line, column_rows(), "what one means")


@options.with_options(options.View)
def show_column(
    line: typer.Context,
    name: Annotated[str, argument("COLUMN", "A column of a result.")],
) -> None:
    """Print what a column means.

    Example: nearkv columns show step_ms
    """
    from nearkv.sweeps.evaluate.catalogue import column_row

    print_table([column_row(name)], options.view_of(line))

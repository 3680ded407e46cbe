"""The commands `nearkv systems`: what is modelled, and systems of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument
from nearkv.sweeps.commands.printing import print_table, write_new


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
    from nearkv.sweeps.api import catalogues

    view = options.view_of(line)
    table = catalogues.systems(plugin=line.params["plugins"], platform=platform)
    if installable:
        table = table[table["origin"] == ENGINE]
    usual = "system,origin,what,paper,platform,knobs"
    if platform:
        usual = "system,origin,runs,lacks,what"
    below = [f"{len(table)} systems; `nearkv systems show NAME` prints the knobs of one."]
    if platform:
        running = (table["runs"] == "yes").sum()
        below = [f"{running} of {len(table)} systems run on {platform}."]
    print_table(table, view, usual, below=below)


@options.with_options(options.axes("plugins"), options.View)
def show(line: typer.Context, name: options.SystemArgument) -> None:
    """Print a system's knobs: range, default, the paper's rules; then what is not monotone.

    Example: nearkv systems show hilos
    """
    from nearkv.sweeps.evaluate.catalogue import knob_rows, reversals_of, summary_of
    from nearkv.sweeps.study.own_systems import load_plugins

    load_plugins(line.params["plugins"])
    usual = "knob,values,default,published,what,rules"
    below, title = reversals_of(name), summary_of(name)
    print_table(knob_rows(name), options.view_of(line), usual, title=title, below=below)


def new(
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


def check(
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

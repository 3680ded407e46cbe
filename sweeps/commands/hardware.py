"""The commands `nearkv hardware`: platforms and parts with their numbers, and one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument, option
from nearkv.sweeps.commands.printing import (
    counted_by,
    print_table,
    printable,
    report_problems,
    write_toml,
)

NUMBERS = "part,key,value,unit,kind,source,at,range,si,note"
"""Columns of a number, the most important first."""


@options.with_options(options.View)
def hardware(line: typer.Context) -> None:
    """List the platforms and the parts they are made of."""
    from nearkv.sweeps.evaluate.catalogue import hardware_rows

    view = options.view_of(line)
    rows = hardware_rows()
    below = [f"{len(rows)} names; `nearkv hardware show NAME` prints every number of one."]
    print_table(rows, view, "name,kind,what,roles", below=below)


@options.with_options(options.View)
def show(
    line: typer.Context,
    name: Annotated[str, argument("NAME", "A platform or a part, or path/file.toml.")],
    sets: options.SetOnce = [],
) -> None:
    """Print every number of a platform or part with unit, kind and source.

    Example: nearkv hardware show hilos-a100 --set csd.count=16
    """
    from nearkv.sweeps.evaluate.catalogue import hardware_numbers
    from nearkv.sweeps.study.sizes import pairs

    rows = hardware_numbers(name, pairs(sets, "--set"))
    print_table(
        rows, options.view_of(line), NUMBERS, below=[counted_by(rows, "kind", "number")]
    )


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


def new(
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


def check(
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

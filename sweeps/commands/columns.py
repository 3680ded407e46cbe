"""The commands `nearkv columns`: what the columns of results mean."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument
from nearkv.sweeps.commands.printing import print_table


@options.with_options(options.View)
def columns(line: typer.Context) -> None:
    """List the columns of results with unit and definition."""
    from nearkv.sweeps.api import catalogues

    view = options.view_of(line)
    table = catalogues.columns()
    below = [f"{len(table)} columns; `nearkv columns show NAME` prints what one means."]
    print_table(table, view, below=below)


@options.with_options(options.View)
def show(
    line: typer.Context,
    name: Annotated[str, argument("COLUMN", "A column of a result.")],
) -> None:
    """Print what a column means.

    Example: nearkv columns show step_ms
    """
    from nearkv.sweeps.evaluate.catalogue import column_row

    print_table([column_row(name)], options.view_of(line))

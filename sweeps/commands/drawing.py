"""Draw what a command answers: a figure in a file, or a chart on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.options import View
from nearkv.sweeps.commands.writing import text_format

if TYPE_CHECKING:
    from nearkv.sweeps.evaluate.evaluate import Columns
    from nearkv.sweeps.study.study import Study

ENDINGS = (".pdf", ".svg", ".png")
"""Files of these endings are figures."""

SPEED = "throughput_tok_s"
"""What is drawn where --columns names no column of numbers."""

WIDEST_CHART = 100
"""Characters of a chart's line where a terminal, or a pipe, takes more."""

Chart = Annotated[
    bool,
    typer.Option(
        "--chart", help="Print bars of the first of --columns in place of a table."
    ),
]


def is_figure(file: str) -> bool:
    """Return whether a file's name asks for a figure."""
    return Path(file).suffix.lower() in ENDINGS


def check_figure(file: str) -> None:
    """Refuse a place for a figure before anything is computed for it.

    Raises:
        InputError: it cannot be written, or the drawing library is not installed.
    """
    from nearkv.sweeps.evaluate.provenance import check_writable, place_of
    from nearkv.sweeps.figures.style import load_pyplot

    check_writable(place_of(file))
    load_pyplot().switch_backend("agg")


def check_chart(view: View, breakdown: bool = False) -> None:
    """Refuse a chart beside what prints or writes a table for readers.

    Raises:
        InputError: a format, such a file, or a breakdown that no file takes.
    """
    from nearkv.hardware.errors import InputError

    if not view.is_for_people:
        raise InputError("--chart draws with letters; leave out --format")
    if breakdown and not view.file:
        raise InputError("--chart draws one column; leave out --breakdown")
    if view.pivot:
        raise InputError("--chart prints no table to pivot; leave out --pivot")
    if text_format(view.file):
        raise InputError(
            f"--chart prints no table for -o {view.file}; leave out one of them"
        )


def drawn_column(columns: Columns, only: str) -> str:
    """Return the column that is drawn: the first of --columns that holds numbers.

    Raises:
        InputError: --columns names no such column, or one that does not exist.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.figures.series import AXES
    from nearkv.sweeps.tables.table import select

    if not only:
        return SPEED
    for name, values in select(columns, only).items():
        if values.dtype.kind in "if" and name not in AXES:
            return name
    raise InputError(f"--columns {only}: holds no numbers to draw; name one, as {SPEED}")


def write_figure(
    columns: Columns, study: Study, file: str, only: str = "", baseline: str = ""
) -> None:
    """Write the figure that suits what a study varies.

    Args:
        columns: the table of the study.
        study: whose axes the figure shows.
        file: where to write; its ending says PDF, SVG or PNG.
        only: --columns; the first that holds numbers is drawn, all seconds by resource as a stack.
        baseline: system that the bars are divided by.
    """
    import pandas as pd

    from nearkv.sweeps.figures.breakdown import PREFIX, breakdown
    from nearkv.sweeps.figures.plot import suitable
    from nearkv.sweeps.figures.style import load_pyplot, save
    from nearkv.sweeps.tables.table import varying

    table = pd.DataFrame(columns)
    if any(name.startswith(PREFIX) for name in columns):
        axes = breakdown(table)
    else:
        value = drawn_column(columns, only)
        axes = suitable(table, value, varying(columns, study), baseline)
    figure: Any = axes.figure
    save(figure, file)
    load_pyplot().close(figure)
    typer.echo(f"wrote {file}", err=True)


def print_chart(columns: Columns, study: Study, only: str) -> None:
    """Print a bar a row, named by what the study varies."""
    from nearkv.sweeps.figures.chart import chart
    from nearkv.sweeps.tables.table import records, varying
    from nearkv.sweeps.tables.terminal import width_of_output

    value = drawn_column(columns, only)
    names = varying(columns, study) or ["system"]
    width = min(width_of_output(), WIDEST_CHART)
    for line in chart(records(columns), value, names, width):
        typer.echo(line)

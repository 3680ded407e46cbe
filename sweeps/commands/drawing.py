"""Draw what a command answers: a figure in a file, or a chart on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.api.tables import Findings
from nearkv.sweeps.commands.files import text_format
from nearkv.sweeps.commands.messages import tell
from nearkv.sweeps.commands.options import View
from nearkv.sweeps.evaluate.columns import TIME_PREFIX
from nearkv.sweeps.evaluate.provenance import check_writable, place_of
from nearkv.sweeps.figures.chart import chart
from nearkv.sweeps.figures.series import drawn_column
from nearkv.sweeps.figures.style import check_format, load_pyplot, save
from nearkv.sweeps.study.study import Study, sizes_by_default
from nearkv.sweeps.tables.labels import label_of
from nearkv.sweeps.tables.pivot import pivoted
from nearkv.sweeps.tables.table import marked, varying
from nearkv.sweeps.tables.terminal import width_of_output
from nearkv.sweeps.tables.unequal import unequal

if TYPE_CHECKING:
    import pandas as pd

WIDEST_CHART = 100
"""Characters of a chart's line where a terminal, or a pipe, takes more."""


def check_figure(file: str) -> None:
    """Refuse a place for a figure before anything is computed for it.

    Raises:
        InputError: it cannot be written, or the drawing library is not installed.
    """
    check_format(file)
    check_writable(place_of(file))
    load_pyplot().switch_backend("agg")


def check_chart(view: View, breakdown: bool = False) -> None:
    """Refuse a chart beside what prints or writes a table for readers.

    Raises:
        InputError: a format, such a file, or a breakdown that no file takes.
    """
    if not view.is_for_people:
        raise InputError("--chart draws with letters; leave out --format")
    if breakdown and not view.file:
        raise InputError("--chart draws one column; leave out --breakdown")
    if text_format(view.file):
        raise InputError(
            f"--chart prints no table for -o {view.file}; leave out one of them"
        )


def draw_table(
    table: pd.DataFrame, study: Study, file: str, only: str = "", baseline: str = ""
) -> None:
    """Write the figure that suits what a study varies.

    Args:
        table: of the study.
        study: whose axes the figure shows.
        file: where to write; its ending says PDF, SVG or PNG.
        only: --columns; the first that holds numbers is drawn, all seconds by resource as a stack.
        baseline: system that the bars are divided by.
    """
    from nearkv.sweeps.figures.breakdown import breakdown
    from nearkv.sweeps.figures.plot import suitable

    if any(str(name).startswith(TIME_PREFIX) for name in table):
        axes = breakdown(table)
    else:
        value = drawn_column(table, only)
        axes = suitable(table, value, varying(table, study), baseline)
    save_figure(axes.figure, file)


def save_figure(figure: Any, file: str, about: str = "") -> None:
    """Write a figure, close it, and say so, with a remark about it."""
    save(figure, file)
    load_pyplot().close(figure)
    tell(f"wrote {file}{about}")


def print_chart(found: Findings, study: Study, view: View) -> None:
    """Print a bar a row, named by what the study varies, and the answer in a sentence."""
    table = found.table()
    names = varying(table, study) or ["system"]
    value = drawn_column(table, view.columns)
    rows, title, values = marked(found.rows), label_of(value), [value]
    if view.pivot:
        arranged = pivoted(rows, view.pivot, [value], names)
        rows, title = arranged.rows, arranged.title
        names = [name for name in rows[0] if name in table]
        values = [name for name in rows[0] if name not in table]
    bars = chart(rows, values, names, min(width_of_output(), WIDEST_CHART))
    shown = [*names, *values]
    sentences = [
        *unequal(found.rows, shown),
        *sizes_by_default(study, found.columns, shown),
    ]
    for line in (title, *bars, *found.conclusion, *sentences):
        typer.echo(line)

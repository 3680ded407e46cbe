"""Charts in plain text, for a quick look in a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from nearkv.hardware.errors import check_known
from nearkv.sweeps.figures.series import finite
from nearkv.sweeps.tables.table import MARKS, Rows


def chart(
    rows: Rows,
    values: Sequence[str],
    names: Sequence[str],
    width: int = 80,
) -> list[str]:
    """Return one line per row: its name, and for each value a bar as long as it, and the value.

    Args:
        rows: rows of a table.
        values: the columns whose values are bars, on one scale; of several, a line names each.
        names: columns that name a row; those that are alike in all rows are left out.
        width: characters of a line.

    Raises:
        InputError: no row has a column.
    """
    columns = sorted(set().union(*rows))
    check_known("column", values, columns, "--chart")
    differing = [name for name in names if len({str(row.get(name)) for row in rows}) > 1]
    naming = differing or names[:1]
    numbers = [finite(row.get(value)) for row in rows for value in values]
    longest = max((number for number in numbers if number > 0), default=1.0)
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    grid.show_header = len(values) > 1
    grid.add_column()
    for value in values:
        grid.add_column(value, ratio=1)
        grid.add_column(justify="right")
    for row in rows:
        cells: list[Bar | str] = []
        for value in values:
            cells += _bar_and_number(row, value, longest)
        words = [str(row[name]) for name in naming if row.get(name) is not None]
        grid.add_row(" ".join(words), *cells)
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(grid)
    return captured.get().splitlines()


def _bar_and_number(
    row: Mapping[str, Any], value: str, longest: float
) -> tuple[Bar | str, str]:
    """Return a bar and its number, or what stands in their place."""
    cell = row.get(value)
    number = finite(cell)
    if math.isnan(number):
        mark = cell if isinstance(cell, str) else MARKS.get(str(row.get("status")), "-")
        return "", mark
    return Bar(longest, 0, number), f"{number:.4g}"

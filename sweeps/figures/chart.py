"""Charts in plain text, for a quick look in a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from nearkv.hardware.errors import unknown
from nearkv.sweeps.figures.series import finite
from nearkv.sweeps.tables.labels import label_of
from nearkv.sweeps.tables.table import MARKS


def chart(
    rows: Sequence[Mapping[str, Any]], value: str, names: Sequence[str], width: int = 80
) -> list[str]:
    """Return one line per row: its name, a bar as long as its value, the value.

    Args:
        rows: rows of a table.
        value: the column whose values are the bars.
        names: columns that name a row; those that are alike in all rows are left out.
        width: characters of a line.

    Raises:
        InputError: no row has the column.
    """
    columns = sorted(set().union(*rows))
    if value not in columns:
        raise unknown("column", value, columns, "--chart")
    differing = []
    for name in names:
        values = {str(row.get(name)) for row in rows}
        if len(values) > 1:
            differing.append(name)
    naming = differing or names[:1]
    numbers = [finite(row.get(value)) for row in rows]
    longest = max((number for number in numbers if number > 0), default=1.0)
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column()
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    for row, number in zip(rows, numbers, strict=True):
        words = [str(row[name]) for name in naming if row.get(name) is not None]
        title = " ".join(words)
        if math.isnan(number):
            grid.add_row(title, "", MARKS.get(str(row.get("status")), "-"))
        else:
            grid.add_row(title, Bar(longest, 0, number), f"{number:.4g}")
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(grid)
    return [label_of(value), *captured.get().splitlines()]

"""Show columns: a terminal table, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nearkv.hardware.errors import once, unknown
from nearkv.sweeps.evaluation.evaluate import Columns

FORMATS = ("table", "csv", "json", "markdown", "latex")
LARGEST_WHOLE = 2**53
"""From here on not every whole number is a float; such a number is shown as the float it is."""
MOST_SHOWN = 10_000
"""Rows that anybody reads; laying out more for a terminal would take minutes."""
KEY = ("system", "model", "platform", "trace", "batch", "context_tok", "output_tok")
"""What names a row; where one value serves all rows, the terminal table says it once."""


def check_format(name: str) -> str:
    """Refuse a format nobody writes.

    Raises:
        InputError: not one of `FORMATS`.
    """
    if name not in FORMATS:
        raise unknown("format", name, FORMATS, "--format")
    return name


def select(columns: Columns, only: str) -> Columns:
    """Keep the columns named, apart by commas, in that order; all where none is named.

    Raises:
        InputError: a name that is no column, or comes twice.
    """
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    for name in once(chosen, "--columns"):
        if name not in columns:
            raise unknown("column", name, columns, "--columns")
    return {name: columns[name] for name in chosen} if chosen else columns


def plain(value: Any) -> Any:
    """A cell as Python and JSON know it: whole numbers without a point, no NaN and no infinity."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        if not math.isfinite(value):
            return value if value == math.inf else None
        return int(value) if value.is_integer() and abs(value) < LARGEST_WHOLE else value
    return value


def records(columns: Columns) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain values."""
    listed = {name: [plain(cell) for cell in values] for name, values in columns.items()}
    return [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]


def render(
    rows: Sequence[dict[str, Any]], form: str, show: Iterable[str] = (), title: str = ""
) -> str:
    """Lay rows out in a format.

    Args:
        rows: one dictionary a row, all with the same keys.
        form: one of `FORMATS`.
        show: columns the terminal table, Markdown and LaTeX show; CSV and JSON always hold all.
        title: put above the terminal table.

    Returns:
        The text, ending in a newline.
    """
    if form == "json":
        finite = [
            {name: None if cell == math.inf else cell for name, cell in row.items()} for row in rows
        ]
        return json.dumps(finite, indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(rows)
    names = (
        [name for name in rows[0] if not (chosen := set(show)) or name in chosen] if rows else []
    )
    if form == "table":
        return _terminal(rows, names, title)
    from tabulate import tabulate

    cells = [
        [_cell(row[name]).replace("|", r"\|" if form == "markdown" else "|") for name in names]
        for row in rows
    ]
    layout = "github" if form == "markdown" else "latex_booktabs"
    return str(tabulate(cells, headers=names, tablefmt=layout, disable_numparse=True)) + "\n"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    import csv

    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        rounded = float(f"{value:.4g}")
        return f"{rounded:,.0f}" if 1e4 <= abs(rounded) < 1e9 else f"{rounded:.4g}"
    return str(value)


def _terminal(rows: Sequence[dict[str, Any]], names: list[str], title: str) -> str:
    from rich.console import Console
    from rich.table import Table

    same = [
        n for n in names if n in KEY and len(rows) > 1 and len({str(row[n]) for row in rows}) == 1
    ]
    blank = [n for n in names if all(row[n] in (None, "") for row in rows)]
    caption = ", ".join(f"{name} {rows[0][name]}" for name in same)
    grid = Table(
        title=title or None, caption=caption or None, title_justify="left", caption_justify="left"
    )
    kept = [name for name in names if name not in same and name not in blank]
    for name in kept:
        numeric = any(
            isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows
        )
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_cell(row[name]) for name in kept))
    screen = Console(file=(text := io.StringIO()), width=_width(), markup=False, highlight=False)
    screen.print(grid)
    return text.getvalue()


def _width() -> int:
    """Columns of the terminal; wide where output is piped, so that nothing wraps."""
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else 220


def indented(rows: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Rows whose path is shown as a tree: its last name, further in the deeper it lies."""
    return [
        {**row, key: "  " * (depth := row[key].count("/")) + row[key].split("/")[depth]}
        for row in rows
    ]

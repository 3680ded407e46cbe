"""Show columns: a terminal table, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import once, unknown
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.terminal import lay_out
from nearkv.sweeps.tables.text_columns import cell_text, is_number

if TYPE_CHECKING:
    from nearkv.sweeps.tables.latex import Paper

FORMATS = ("table", "csv", "json", "markdown", "latex")
LARGEST_WHOLE = 2**53
"""From here on not every whole number is a float; such a number is shown as the float it is."""
MOST_SHOWN = 10_000
"""Rows that anybody reads; laying out more for a terminal would take minutes."""


def check_format(name: str) -> str:
    """Refuse a format nobody writes.

    Raises:
        InputError: not one of `FORMATS`.
    """
    if name not in FORMATS:
        raise unknown("format", name, FORMATS, "--format")
    return name


def select(columns: Columns, only: str) -> Columns:
    """Keep the columns of a comma-separated list, in that order; all where it is empty.

    Raises:
        InputError: a name that is no column, or comes twice.
    """
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    check_columns(columns, chosen)
    return {name: columns[name] for name in chosen} if chosen else columns


def check_columns(known: Iterable[str], names: Sequence[str]) -> None:
    """Refuse names that are no columns, or come twice.

    Raises:
        InputError: there is such a name.
    """
    known = list(known)
    for name in once(names, "--columns"):
        if name not in known:
            raise unknown("column", name, known, "--columns")


def varying(columns: Columns, study: Study) -> list[str]:
    """Columns of what the study varies: its systems, models, workloads, numbers and knobs."""
    names: set[str] = set()
    if len(study.systems) > 1:
        names.add("system")
    if len(study.platforms) > 1:
        names.add("platform")
    for name, text in study.knobs.items():
        is_list = "," in text or ":" in text
        if is_list:
            names.add(name)
    names |= {f"{role}.part" for role, text in study.parts.items() if "," in text}
    values: dict[str, set[str]] = {}
    for block in blocks(study):
        values.setdefault("platform", set()).add(block.platform.name)
        for axis in block.display_grid.axes:
            points = list(map(str, axis.values))
            if axis.name in ("model", "trace"):
                points = list(axis.labels)
            values.setdefault(axis.name, set()).update(points)
    if not study.zipped:
        values.pop("platform", None)
    names |= {name for name, points in values.items() if len(points) > 1}
    return [name for name in columns if name in names]


def is_whole(values: NDArray[np.generic]) -> bool:
    """Whether finite numbers may all be written as whole ones."""
    numbers = values.astype(float)
    exact = np.abs(numbers) < LARGEST_WHOLE
    return bool(np.all(exact & (numbers == np.trunc(numbers))))


def plain(value: Any) -> Any:
    """A cell as Python and JSON know it: whole numbers without a point, no NaN and no infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return value if value == math.inf else None
    if value.is_integer() and abs(value) < LARGEST_WHOLE:
        return int(value)
    return value


def records(columns: Columns) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain values."""
    listed = [list(map(plain, values.tolist())) for values in columns.values()]
    rows = zip(*listed, strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def render(
    rows: Sequence[dict[str, Any]],
    form: str,
    show: Iterable[str] = (),
    title: str = "",
    pinned: Iterable[str] = (),
    paper: Paper | None = None,
    below: Iterable[str] = (),
) -> str:
    """Lay rows out in a format.

    Args:
        rows: one dictionary per row, all with the same keys.
        form: one of `FORMATS`.
        show: columns that a terminal, Markdown and LaTeX show; CSV and JSON always hold all.
        title: put above the terminal's table.
        pinned: columns that a terminal shows whatever fits.
        paper: how a paper prints the table, for LaTeX.
        below: sentences that end the terminal's table.

    Returns:
        The text, ending in a newline.
    """
    if form == "json":
        import json

        finite = [_finite(row) for row in rows]
        return json.dumps(finite, indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(rows)
    if form == "table":
        return lay_out(rows, show, pinned, title, below)
    if form == "latex":
        from nearkv.sweeps.tables.latex import Paper, latex_of

        order, always = list(show), list(pinned)
        return latex_of(rows, order, always, paper or Paper())
    chosen = {*show, *pinned} if show else set()
    names = list(rows[0]) if rows else []
    if chosen:
        names = [name for name in names if name in chosen]
    return _markdown(rows, names)


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON knows it."""
    return {name: None if cell == math.inf else cell for name, cell in row.items()}


def _markdown(rows: Sequence[dict[str, Any]], names: list[str]) -> str:
    from tabulate import tabulate

    cells = [[_escaped(row[name]) for name in names] for row in rows]
    sides = ["right" if _is_number(rows, name) else "left" for name in names]
    text = tabulate(cells, names, tablefmt="github", disable_numparse=True, colalign=sides)
    return f"{text}\n"


def _escaped(cell: Any) -> str:
    return cell_text(cell).replace("|", r"\|")


def _is_number(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return any(is_number(row[name]) for row in rows)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    import csv

    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def indented(rows: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Rows whose path is shown as a tree: its last name, further in the deeper it lies."""
    tree = []
    for row in rows:
        *above, name = row[key].split("/")
        tree.append({**row, key: "  " * len(above) + name})
    return tree

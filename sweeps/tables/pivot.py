"""Turn the values of a column into columns, as papers print tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.tables.layout import KEY, is_numeric
from nearkv.sweeps.tables.table import Display, Row, Rows, cell_text, check_columns

SPEED = "throughput_tok_s"
"""Column of the cells where no column of numbers is named."""


def pivoted(rows: Rows, by: str, named: Sequence[str], axes: Sequence[str]) -> Display:
    """A table with a column for each value of one of its columns.

    Args:
        rows: all with the same keys.
        by: the column whose values become columns.
        named: columns asked for; those of answers fill the cells, each in rows of its own; those
            of names name a row.
        axes: columns that vary; they name a row too.

    Raises:
        InputError: no such column, an axis that is an answer, or rows that nothing tells apart.
    """
    check_columns(rows[0], named)
    check_known("column", [by], rows[0], "--pivot")
    _check_axis(rows, by, axes)
    values = _value_columns(rows, by, named, axes)
    texts = [name for name in named if name in KEY or not is_numeric(rows, name)]
    naming = dict.fromkeys([*axes, *texts])
    index = [name for name in naming if name not in (by, *values)]
    if not index and "system" in rows[0]:
        index = ["system"]
    heads = dict.fromkeys(cell_text(row[by]) for row in rows)
    lines: dict[str, Row] = {}
    for value, row in product(values, rows):
        names = {name: row[name] for name in index}
        if len(values) > 1:
            names = {"answer": value, **names}
        blank = {**names, **dict.fromkeys(heads)}
        line = lines.setdefault(str(names), blank)
        head = cell_text(row[by])
        if line[head] is not None:
            advice = "name what tells them apart with --columns"
            raise InputError(f"--pivot {by}: several rows have {by} {head}; {advice}")
        line[head] = row[value]
    wide = list(lines.values())
    title = f"{' and '.join(values)} by {by}"
    for name in KEY:
        held = {str(row.get(name)) for row in rows}
        if len(held) == 1 and name not in wide[0] and rows[0].get(name):
            title += f", {name} {cell_text(rows[0][name])}"
    return Display(wide, pinned=tuple(wide[0]), title=title)


def _value_columns(
    rows: Rows, by: str, named: Sequence[str], axes: Sequence[str]
) -> list[str]:
    """The columns that fill the cells: those named that hold numbers and are no axis.

    Raises:
        InputError: no such column.
    """
    taken = {by, *axes, *KEY}
    values = [name for name in named if name not in taken and is_numeric(rows, name)]
    if not values and SPEED not in rows[0]:
        raise InputError(f"--pivot {by}: name the column of its cells with --columns")
    return values or [SPEED]


def _check_axis(rows: Rows, by: str, axes: Sequence[str]) -> None:
    """Refuse a column of answers, whose every value would be a column.

    Raises:
        InputError: `by` is such a column.
    """
    if by in axes or by in KEY or not axes:
        return
    values = {row[by] for row in rows}
    if len(values) > 1 and any(isinstance(value, float) for value in values):
        choice = ", ".join(axes)
        raise InputError(f"--pivot {by} is an answer; what varies is {choice}")

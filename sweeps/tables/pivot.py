"""Turn the values of a column into columns, as papers print tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.tables.layout import KEY
from nearkv.sweeps.tables.text_columns import cell_text, is_number

Row = Mapping[str, Any]

SPEED = "throughput_tok_s"
"""What cells hold where no column of numbers is named."""


def value_column(
    rows: Sequence[Row], by: str, named: Sequence[str], axes: Sequence[str]
) -> str:
    """The column that fills the cells: the first named one of numbers that is no axis.

    Raises:
        InputError: no such column.
    """
    taken = {by, *axes, *KEY}
    numbers = [name for name in named if any(is_number(row[name]) for row in rows)]
    values = [name for name in numbers if name not in taken]
    if len(values) > 1:
        listed = " and ".join(values)
        raise InputError(f"--pivot {by}: cells hold one column; choose between {listed}")
    if values:
        return values[0]
    if SPEED not in rows[0]:
        raise InputError(f"--pivot {by}: name the column of its cells with --columns")
    return SPEED


def pivoted(
    rows: Sequence[Row], by: str, value: str, named: Sequence[str], axes: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows with a column for each value of one of their columns.

    Args:
        rows: all with the same keys.
        by: the column whose values become columns.
        value: the column whose values fill them.
        named: columns asked for; those that hold names, and the axes, name a row.
        axes: columns that vary.

    Raises:
        InputError: no such column, or rows that nothing tells apart.
    """
    if by not in rows[0]:
        raise unknown("column", by, rows[0], "--pivot")
    _check_axis(rows, by, axes)
    index = _index(rows, by, value, named, axes)
    heads = dict.fromkeys(cell_text(row[by]) for row in rows)
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        names = {name: row[name] for name in index}
        line = lines.setdefault(str(names), {**names, **dict.fromkeys(heads)})
        head = cell_text(row[by])
        if line[head] is not None:
            advice = "name what tells them apart with --columns"
            raise InputError(f"--pivot {by}: several rows have {by} {head}; {advice}")
        line[head] = row[value]
    return list(lines.values())


def _check_axis(rows: Sequence[Row], by: str, axes: Sequence[str]) -> None:
    """Refuse a column of answers, whose every value would be a column.

    Raises:
        InputError: `by` is such a column.
    """
    if by in axes or by in KEY or not axes:
        return
    values = {row[by] for row in rows}
    has_fractions = any(isinstance(value, float) for value in values)
    if has_fractions and len(values) > 1:
        choice = ", ".join(axes)
        raise InputError(f"--pivot {by}: is an answer; what varies is {choice}")


def _index(
    rows: Sequence[Row], by: str, value: str, named: Sequence[str], axes: Sequence[str]
) -> list[str]:
    """Columns that name a row: what varies, and names that are asked for."""
    index = dict.fromkeys(axes)
    for name in named:
        if name in KEY or not any(is_number(row[name]) for row in rows):
            index[name] = None
    index.pop(by, None)
    index.pop(value, None)
    return list(index) or ["system"]

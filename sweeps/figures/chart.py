"""Charts in plain text, for a quick look in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearkv.hardware.errors import unknown
from nearkv.sweeps.figures.series import MARKS
from nearkv.sweeps.tables.labels import label_of

EIGHTHS = " ▏▎▍▌▋▊▉█"
"""Blocks of 0 to 8 eighths of a character."""

LEAST_BAR = 10
"""Characters of the longest bar, however narrow the terminal."""


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
    titles = _titles(rows, names)
    numbers = np.array([_number(row.get(value)) for row in rows])
    texts = [_text(row, number) for row, number in zip(rows, numbers, strict=True)]
    left = max(map(len, titles))
    right = max(map(len, texts))
    room = max(width - left - right - 2, LEAST_BAR)
    drawn = np.isfinite(numbers)
    longest = np.max(numbers, where=drawn, initial=0.0)
    scale = room / longest if longest > 0 else 0.0
    lines = [label_of(value)]
    for title, number, text in zip(titles, numbers, texts, strict=True):
        bar = _bar(number * scale)
        lines.append(f"{title:<{left}} {bar:<{room}} {text:>{right}}")
    return lines


def _titles(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return what tells each row apart: its values of the columns that differ."""
    differing = []
    for name in names:
        values = {str(row.get(name)) for row in rows}
        if len(values) > 1:
            differing.append(name)
    shown = differing or names[:1]
    titles = []
    for row in rows:
        words = [str(row[name]) for name in shown if row.get(name) is not None]
        titles.append(" ".join(words))
    return titles


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float | np.number) else float("nan")


def _text(row: Mapping[str, Any], number: float) -> str:
    if np.isfinite(number):
        return f"{number:.4g}"
    return MARKS.get(str(row.get("status")), "-")


def _bar(length: float) -> str:
    """Return a bar of so many characters, to an eighth of one."""
    if not np.isfinite(length):
        return ""
    eighths = round(length * 8)
    rest = EIGHTHS[eighths % 8].strip()
    return EIGHTHS[8] * (eighths // 8) + rest

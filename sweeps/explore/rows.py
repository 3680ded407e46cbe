"""Tables of answers as rows: one mapping per row, all with the same keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.tables.table import is_number

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]


def aligned(rows: Rows) -> Rows:
    """Give every row the keys of all; what a row lacks is None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def rows_of(table: Columns) -> Iterator[dict[str, Any]]:
    """The rows of a table, one mapping per design point."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def columns_of(rows: Rows) -> Columns:
    """Rows as columns: numbers, where all that is not blank is one, else text."""
    columns: Columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        numeric = [value for value in values if is_number(value)]
        if numeric and len(numeric) == sum(value not in (None, "") for value in values):
            numbers = [value if is_number(value) else math.nan for value in values]
            columns[name] = np.array(numbers, float)
        else:
            columns[name] = np.array([_plain_text(value) for value in values])
    return columns


def _plain_text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


MOST = 6
"""Sentences below a table."""


def sentences(rows: Iterable[str]) -> list[str]:
    """The first sentences, each once."""
    distinct = list(dict.fromkeys(rows))
    return distinct[:MOST]


def lacks_answer(row: Row, name: str) -> str:
    """A sentence about a point without an answer; empty where it has one."""
    if row["status"] == "ok":
        return ""
    return f"{name}: {row['status']}; {row['reason'] or 'memory is short'}."

"""Answers as rows, one mapping each, and sentences about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nearkv.sweeps.evaluate.evaluate import Columns

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]
MOST = 6
"""Sentences below a table."""


def rows_of(table: Columns) -> Iterator[dict[str, Any]]:
    """The rows of a table, one mapping per design point."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def sentences(rows: Iterable[str]) -> list[str]:
    """The first sentences, each once."""
    distinct = list(dict.fromkeys(rows))
    return distinct[:MOST]


def lacks_answer(row: Row, name: str) -> str:
    """A sentence about a point without an answer; empty where it has one."""
    if row["status"] == "ok":
        return ""
    return f"{name}: {row['status']}; {row['reason'] or 'memory is short'}."

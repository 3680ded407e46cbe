"""Tables of answers as rows: one mapping per row, all with the same keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nearkv.sweeps.evaluation.evaluate import Columns

Rows = list[dict[str, Any]]


def aligned(rows: Rows) -> Rows:
    """The same rows with the keys of all; what a row lacks is None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def rows_of(table: Columns) -> Iterator[dict[str, Any]]:
    """The rows of a table, one mapping per design point."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def distinct(sentences: Iterable[str]) -> list[str]:
    """The same sentences in order, each once."""
    return list(dict.fromkeys(sentences))

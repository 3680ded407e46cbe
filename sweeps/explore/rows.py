"""Answers as rows, one mapping each, and sentences about them."""

from __future__ import annotations

from collections.abc import Iterable

from nearkv.sweeps.tables.table import Row

MOST_EXPLAINED = 6
"""Sentences below a table."""


def sentences(texts: Iterable[str]) -> list[str]:
    """The first sentences, each once; rows of which there is nothing to say have empty ones."""
    distinct = dict.fromkeys(filter(None, texts))
    return list(distinct)[:MOST_EXPLAINED]


def lacks_answer(row: Row, name: str) -> str:
    """A sentence about a point without an answer; empty where it has one."""
    if row["status"] == "ok":
        return ""
    return f"{name}: {row['status']}; {row['reason'] or 'memory is short'}."

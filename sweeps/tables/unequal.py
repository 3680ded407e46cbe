"""Sentences on what makes the rows of rivals unequal, for what shows a part of their columns."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nearkv.sweeps.tables.table import Rows, is_number, reach

_TOLD = {
    "platform": "on {}",
    "machine": "{}",
    "attention_on": "attention on {}",
    "bits": "{} bit",
    "note": "{}",
}
"""Column that makes rows unequal -> its words."""
_MEASURED = {"cost_usd": "USD", "power_w": "W"}
"""Column of what that costs -> its unit."""
_SAID_ELSEWHERE = ("on ", "costs ")
"""Beginnings of notes that a comparison makes of the columns above."""
_OF_A_PART = ": rates as on "
"""Within notes on parts, which say nothing of a rival."""


def unequal(rows: Rows, shown: Collection[str]) -> list[str]:
    """A sentence a rival on all in which it is not the others' equal.

    Args:
        rows: with all columns.
        shown: columns that a reader sees.

    Returns:
        None where the rivals are alike, or a reader sees where they are not.
    """
    by_rival: dict[tuple[str, str], Rows] = {}
    for row in rows:
        rival = str(row.get("system", "")), str(row.get("platform", ""))
        by_rival.setdefault(rival, []).append(row)
    rivals = by_rival.values()
    hidden = [
        column
        for column in _TOLD
        if column not in shown and len({tuple(_texts(own, column)) for own in rivals}) > 1
    ]
    if not hidden:
        return []
    usual = set.intersection(*({*_texts(own, "note")} for own in rivals))
    sentences = []
    for (system, _), own in by_rival.items():
        clauses = []
        for column in hidden:
            texts = [text for text in _texts(own, column) if text not in usual]
            word = "; " if column == "note" else " or "
            clauses.append(_TOLD[column].format(word.join(texts)) if texts else "")
        for column, unit in _MEASURED.items():
            clauses.append("" if column in shown else _range(own, column, unit))
        sentences.append(f"{system}: {'; '.join(filter(None, clauses))}.")
    return sentences


def _texts(rows: Rows, column: str) -> list[str]:
    """Texts of a column, each once; sentences of notes one by one."""
    cells = [str(row.get(column) or "") for row in rows]
    if column == "note":
        notes = [note for cell in cells for note in cell.split("; ")]
        own = [note for note in notes if not note.startswith(_SAID_ELSEWHERE)]
        cells = [note for note in own if _OF_A_PART not in note]
    return list(dict.fromkeys(filter(None, cells)))


def _range(rows: Rows, column: str, unit: str) -> str:
    """Values of a column of numbers with their unit; empty where none has one."""
    numbers = [row.get(column) for row in rows]
    values = np.array([number for number in numbers if is_number(number)], dtype=float)
    finite = values[np.isfinite(values)]
    return f"{reach(finite)} {unit}" if finite.size else ""

"""Layout of a table: the columns that a reader sees, and which sentences stand below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearkv.sweeps.tables.table import Display, Row, Rows, cell_text, is_number

KEY = (
    "system",
    "model",
    "platform",
    "part",
    "trace",
    "batch",
    "per_round",
    "rate_req_s",
    "users",
    "context_tok",
    "output_tokens",
    "paper",
)
"""Columns that name a row; a line beside the table says once what is one value in all rows."""
SENTENCES = ("reason", "note")
"""Columns of sentences: cells hold numbers, the sentences stand below the table."""
MOST_SENTENCES = 24
"""Sentences at most that stand below a table; of more, cells hold the text itself."""
COLUMN_GAP = 2
"""Characters between two columns."""
WRAPPED = 24
"""Characters that a column of longer texts needs at least; it wraps within what is left."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table that fit a line.

    Attributes:
        rows: cells of sentences are numbers of `notes`.
        widths: characters that each column needs, of what fits and what was asked for.
        common: the values that all rows share, in words.
        notes: the sentences that cells number.
        left_out: columns that do not fit.
    """

    rows: Rows
    widths: dict[str, int]
    common: str
    notes: list[str]
    left_out: list[str]


def layout(shown: Display, width: int) -> Layout:
    """Choose the columns of several rows.

    Args:
        shown: at least one row.
        width: characters of a line.
    """
    rows, pinned = shown.rows, shown.pinned
    common = {
        name: cell_text(rows[0][name])
        for name in shown.names
        if name in KEY and name not in pinned and len({str(row[name]) for row in rows}) == 1
    }
    filled = [
        name
        for name in shown.names
        if name in pinned or any(row[name] not in (None, "") for row in rows)
    ]
    names = [name for name in filled if name not in common]
    rows, notes = _numbered(rows, [name for name in names if name in SENTENCES])
    if notes:  # what all rows share leaves nothing to number
        numberless = [name for name in SENTENCES if all(not row.get(name) for row in rows)]
        names = [name for name in names if name not in numberless]
    always = {*pinned, *(SENTENCES if notes else ())}
    importance = {name: place for place, name in enumerate(shown.usual)}
    ranked = sorted(names, key=lambda name: (name not in always, importance.get(name, -1)))
    most = (
        width - COLUMN_GAP
    ) // 2  # so that any column fits beside one that names the row
    widths = {name: min(width_of(rows, name), most) for name in names}
    kept, free = set[str](), width + COLUMN_GAP
    for name in ranked:
        if name in always or widths[name] + COLUMN_GAP <= free:
            kept.add(name)
            free -= widths[name] + COLUMN_GAP
    left_out = [name for name in names if name not in kept]
    shared = ", ".join(f"{name} {text}" for name, text in common.items())
    fitting = {name: widths[name] for name in names if name in kept}
    return Layout(rows, fitting, shared, notes, left_out)


def _numbered(rows: Rows, names: Sequence[str]) -> tuple[Rows, list[str]]:
    """Rows whose sentences are replaced by their numbers, and the numbered sentences.

    A sentence that all rows share is printed once, without a number.
    """
    everywhere: dict[str, None] = {}
    for name in names:
        common = set.intersection(*({*_sentences(row, name)} for row in rows))
        everywhere |= {part: None for part in _sentences(rows[0], name) if part in common}
    places: dict[str, int] = {}
    numbered: Rows = []
    for row in rows:
        numbers = {}
        for name in names:
            rest = [part for part in _sentences(row, name) if part not in everywhere]
            own = [places.setdefault(sentence, len(places) + 1) for sentence in rest]
            numbers[name] = ",".join(map(str, sorted(own)))
        numbered.append({**row, **numbers})
    if len(places) > MOST_SENTENCES:
        return rows, []
    numbered_sentences = [f"{number}: {sentence}" for sentence, number in places.items()]
    return numbered, [
        *(f"all rows: {sentence}" for sentence in everywhere),
        *numbered_sentences,
    ]


def _sentences(row: Row, name: str) -> list[str]:
    """The sentences of a cell."""
    return [part for part in str(row[name] or "").split("; ") if part]


def wraps(rows: Rows, name: str) -> bool:
    """True if a column holds texts of several words that may stand on several lines."""
    texts = [str(row[name]) for row in rows if not is_number(row[name])]
    return any(len(text) > WRAPPED and " " in text.strip() for text in texts)


def width_of(rows: Rows, name: str) -> int:
    """Characters that a column needs; of texts that may wrap, the least."""
    widest = max(len(cell_text(row[name])) for row in rows)
    if wraps(rows, name):
        words = [len(word) for row in rows for word in str(row[name]).split()]
        widest = min(widest, max(WRAPPED, *words))
    return max(len(name), widest)


def is_numeric(rows: Rows, name: str) -> bool:
    """True if a column holds numbers, which stand on the right."""
    return any(is_number(row[name]) for row in rows)

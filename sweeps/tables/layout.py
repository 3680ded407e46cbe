"""Which columns of a table a reader sees, and which sentences stand below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearkv.sweeps.tables.text_columns import (
    GAP,
    Column,
    Row,
    cell_text,
    column_of,
    fitting,
    width_of,
)

KEY = (
    "system",
    "model",
    "platform",
    "part",
    "trace",
    "batch",
    "context_tok",
    "output_tokens",
    "paper",
)
"""What names a row; where one value serves all rows, a line beside the table says it once."""
SENTENCES = ("reason", "note")
"""Columns of sentences: cells hold numbers, the sentences stand below the table."""
DESCRIPTIONS = ("what", "claim")
"""Columns that describe a row: where they do not fit beside it, they stand below it."""
MOST_SENTENCES = 9
"""More sentences than this are no help below a table."""


@dataclass(frozen=True)
class Layout:
    """A table as readers see it.

    Attributes:
        rows: cells of sentences are numbers of sentences.
        same: what all rows have in common, by column.
        columns: what fits a line, and what was asked for.
        description: the column that describes a row and does not fit beside it; empty for none.
        sentences: those that cells number.
        left_out: columns that do not fit.
    """

    rows: Sequence[Row]
    same: Mapping[str, str]
    columns: list[Column]
    description: str
    sentences: list[str]
    left_out: list[str]


def layout(
    rows: Sequence[Row], order: Sequence[str], pinned: Sequence[str], width: int
) -> Layout:
    """Choose the columns of several rows.

    Args:
        rows: all with the same keys.
        order: columns to show, the most important first; all where none is named.
        pinned: columns to show whatever their width.
        width: characters of a line.
    """
    chosen = named(rows[0], order, pinned)
    same = [name for name in chosen if name in KEY and _is_same(rows, name)]
    same = [name for name in same if name not in pinned]
    shown = [name for name in chosen if name not in same]
    shown = [name for name in shown if name in pinned or not _is_blank(rows, name)]
    marked, sentences = _marked(rows, [name for name in shown if name in SENTENCES])
    importance = {name: place for place, name in enumerate(order)}
    ranked = sorted(shown, key=lambda name: importance.get(name, -1))
    columns = {name: column_of(marked, name) for name in shown}
    description = _description(columns, ranked, width)
    ranked = [name for name in ranked if name != description]
    numbered = [name for name in shown if name in SENTENCES and sentences]
    kept = fitting([columns[name] for name in ranked], [*pinned, *numbered], width)
    fits = {column.name for column in kept}
    return Layout(
        rows=marked,
        same={name: cell_text(rows[0][name]) for name in same},
        columns=[columns[name] for name in shown if name in fits],
        description=description,
        sentences=sentences,
        left_out=[name for name in shown if name not in fits and name != description],
    )


def named(row: Row, order: Sequence[str], pinned: Sequence[str]) -> list[str]:
    """Names of the columns that may be shown, in the order of the table."""
    kept = {*order, *pinned}
    return [name for name in row if not order or name in kept]


def _is_same(rows: Sequence[Row], name: str) -> bool:
    return len({str(row[name]) for row in rows}) == 1


def _is_blank(rows: Sequence[Row], name: str) -> bool:
    return all(row[name] in (None, "") for row in rows)


def _marked(rows: Sequence[Row], names: Sequence[str]) -> tuple[Sequence[Row], list[str]]:
    """Rows whose sentences are numbers of sentences, and these with their numbers."""
    places: dict[str, int] = {}
    marked: list[Row] = []
    for row in rows:
        marks = {}
        for name in names:
            parts = [part for part in str(row[name] or "").split("; ") if part]
            numbers = [places.setdefault(part, len(places) + 1) for part in parts]
            marks[name] = ",".join(map(str, numbers))
        marked.append({**row, **marks})
    if len(places) > MOST_SENTENCES:
        return rows, []
    return marked, [f"{number}: {sentence}" for sentence, number in places.items()]


def _description(columns: Mapping[str, Column], ranked: Sequence[str], width: int) -> str:
    """The column that stands below each row, as it is too wide beside it; empty for none."""
    for name in DESCRIPTIONS:
        if name not in columns:
            continue
        before = ranked[: ranked.index(name) + 1]
        if width_of(columns[other] for other in before) > width + len(GAP):
            return name
    return ""

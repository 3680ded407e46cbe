"""Lay a table out for a terminal: what varies, in columns that fit; what does not, in a line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

KEY = ("system", "model", "platform", "trace", "batch", "context_tok", "output_tok")
"""What names a row; where one value serves all rows, a line above the table says it once."""
GAP = "  "
PIPED = 220
"""Characters of a line where output goes to no terminal, unless COLUMNS says how many."""
SHORTEST = 24
"""A sentence in the last column is cut to no fewer characters than this."""
NARROW, BOLD, RED, YELLOW, RESET = "…", "\033[1m", "\033[31m", "\033[33m", "\033[0m"


def width_of_output() -> int:
    """Characters of a line: the terminal's; many where output is piped, so that nothing is cut."""
    return shutil.get_terminal_size(fallback=(PIPED, 24)).columns


def wrapped(text: str) -> str:
    """A text in lines that fit."""
    return "\n".join(textwrap.wrap(text, width_of_output(), break_long_words=False))


def is_terminal() -> bool:
    """Whether somebody looks at standard output."""
    return bool(sys.stdout and sys.stdout.isatty())


def cell_text(value: Any) -> str:
    """A cell as people read it: four digits of a fraction, a dash where there is nothing."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        rounded = float(f"{value:.4g}")
        long = 1e4 <= abs(rounded) < 1e9
        return f"{rounded:,.0f}" if long else f"{rounded:.4g}"
    return str(value)


def is_number(value: object) -> bool:
    """Whether a cell is a number; yes and no are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Column:
    """One column as text, all cells of one width.

    Attributes:
        name: its header.
        cells: text of each row, not padded.
        right: numbers stand on the right.
    """

    name: str
    cells: tuple[str, ...]
    right: bool

    @property
    def width(self) -> int:
        """Characters of the widest cell."""
        return max(len(text) for text in (self.name, *self.cells))

    @property
    def is_prose(self) -> bool:
        """Whether it holds sentences, which may be cut, and no names, which may not."""
        return not self.right and any(text.count(" ") > 2 for text in self.cells)

    def cut(self, width: int) -> Column:
        """The same column, its sentences no longer than so many characters."""
        cells = tuple(_shortened(text, width) for text in self.cells)
        return Column(self.name, cells, self.right)

    def padded(self) -> list[str]:
        """The header and every cell, filled up with blanks."""
        adjust = str.rjust if self.right else str.ljust
        width = self.width
        return [adjust(text, width) for text in (self.name, *self.cells)]


def lay_out(
    rows: Sequence[Row],
    names: Iterable[str] = (),
    pinned: Iterable[str] = (),
    title: str = "",
) -> str:
    """Lay rows out for a terminal.

    Args:
        rows: one mapping per row, all with the same keys.
        names: columns to show, the most important first, as far as they fit; all where none
            is named.
        pinned: columns to show whatever their width: those that vary or were asked for.
        title: put above.

    Returns:
        The text, ending in a newline. One row is shown upright.
    """
    if not rows:
        return f"{title}\n" if title else "no rows\n"
    order = list(names)
    kept = {*order, *pinned}
    chosen = [name for name in rows[0] if not order or name in kept]
    lines = [title] if title else []
    if len(rows) == 1:
        lines += _upright(rows[0], chosen, set(pinned))
        return "\n".join(lines) + "\n"
    same = [name for name in chosen if name in KEY and _is_same(rows, name)]
    same = [name for name in same if name not in pinned]
    if same:
        known = (f"{name} {cell_text(rows[0][name])}" for name in same)
        lines.append(wrapped(", ".join(known)))
    shown = [name for name in chosen if name not in same]
    shown = [name for name in shown if name in pinned or not _is_blank(rows, name)]
    columns = {name: _column(rows, name) for name in shown}
    importance = {name: place for place, name in enumerate(order)}
    ranked = sorted(shown, key=lambda name: importance.get(name, -1))
    fitting = _fitting([columns[name] for name in ranked], set(pinned))
    lines += _lines([fitting[name] for name in shown if name in fitting])
    left_out = [name for name in shown if name not in fitting]
    if left_out:
        lines.append(wrapped(f"also: {', '.join(left_out)} (--columns, --format csv)"))
    return "\n".join(lines) + "\n"


def _is_same(rows: Sequence[Row], name: str) -> bool:
    return len({str(row[name]) for row in rows}) == 1


def _is_blank(rows: Sequence[Row], name: str) -> bool:
    return all(row[name] in (None, "") for row in rows)


def _column(rows: Sequence[Row], name: str) -> Column:
    values = [row[name] for row in rows]
    numeric = any(is_number(value) for value in values)
    cells = tuple(cell_text(value) for value in values)
    return Column(name, cells, numeric)


def _fitting(ranked: list[Column], pinned: set[str]) -> dict[str, Column]:
    """The columns that fit beside the pinned ones, the first first; sentences may be cut."""
    room = width_of_output() + len(GAP)
    fitting = {column.name: column for column in ranked if column.name in pinned}
    room -= sum(column.width + len(GAP) for column in fitting.values())
    for column in ranked:
        most = room - len(GAP)
        if column.name in pinned:
            continue
        shown = column
        if column.is_prose and column.width > most >= SHORTEST:
            shown = column.cut(most)
        if shown.width <= most:
            fitting[column.name] = shown
            room = most - shown.width
    return fitting


def _shortened(text: str, width: int) -> str:
    """A sentence that fits, or its beginning up to a whole word."""
    if len(text) <= width:
        return text
    beginning = text[: width - len(NARROW)]
    words, _, _ = beginning.rpartition(" ")
    return words.rstrip(" ,;:") + NARROW


def _lines(columns: list[Column]) -> list[str]:
    padded = [column.padded() for column in columns]
    header, *body = [GAP.join(cells) for cells in zip(*padded, strict=True)]
    rule = GAP.join("-" * column.width for column in columns)
    lines = [header.rstrip(), rule]
    status = next((column for column in columns if column.name == "status"), None)
    for index, line in enumerate(body):
        has_answer = status is None or status.cells[index] == "ok"
        lines.append(_coloured(line.rstrip(), "" if has_answer else RED))
    return lines


def _coloured(text: str, colour: str) -> str:
    return f"{colour}{text}{RESET}" if colour and is_terminal() else text


def _upright(row: Row, names: list[str], pinned: set[str]) -> list[str]:
    """One row, a line per quantity; blank ones are left out."""
    shown = [name for name in names if name in pinned or row[name] not in (None, "")]
    longest = max((len(name) for name in shown), default=0)
    lines = []
    for name in shown:
        text = cell_text(row[name])
        lines.append(name.ljust(longest) + GAP + text)
    return lines

"""Cells and columns of a table as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

GAP = "  "


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


def three_digits(value: float) -> str:
    """A positive number in three digits, a large one in full: 0.0123, 4.93, 1,570.

    >>> three_digits(1567.3)
    '1,570'
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1e3 <= rounded < 1e9 else f"{rounded:.3g}"


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the singular where it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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

    def padded(self) -> list[str]:
        """The header, a rule and every cell, filled up with blanks."""
        adjust = str.rjust if self.right else str.ljust
        width = self.width
        header, *cells = [adjust(text, width) for text in (self.name, *self.cells)]
        return [header, "-" * width, *cells]


def column_of(rows: Sequence[Row], name: str) -> Column:
    """A column of some rows."""
    values = [row[name] for row in rows]
    cells = tuple(cell_text(value) for value in values)
    return Column(name, cells, any(is_number(value) for value in values))


def width_of(columns: Iterable[Column]) -> int:
    """Characters of a line of columns, with the gap behind each."""
    return sum(column.width + len(GAP) for column in columns)


def fitting(columns: Sequence[Column], pinned: Iterable[str], width: int) -> list[Column]:
    """The columns that fit a line beside the pinned ones, the first first.

    Args:
        columns: the most important first.
        pinned: names of columns that are shown whatever fits.
        width: characters of a line.
    """
    kept = {column.name: column for column in columns if column.name in pinned}
    room = width + len(GAP) - width_of(kept.values())
    for column in columns:
        needed = width_of([column])
        if column.name not in kept and needed <= room:
            kept[column.name] = column
            room -= needed
    return list(kept.values())


def blocks_of(columns: Sequence[Column], names: int, width: int) -> list[list[Column]]:
    """Columns in as many blocks as lines of a width need; each begins with what names a row.

    Args:
        columns: in the order of the table.
        names: how many of the first columns name a row.
        width: characters of a line.
    """
    naming = list(columns[:names])
    if width_of(naming) > width // 2:
        naming = naming[:1]
    blocks = [naming]
    for column in columns[len(naming) :]:
        longer = [*blocks[-1], column]
        if width_of(longer) > width + len(GAP) and blocks[-1] != naming:
            blocks.append([*naming, column])
        else:
            blocks[-1] = longer
    return blocks

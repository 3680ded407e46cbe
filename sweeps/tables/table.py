"""Tables in memory: columns, rows, and their values as people read them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices
from nearkv.hardware.errors import check_known, once
from nearkv.sweeps.study.axes import AXES
from nearkv.sweeps.study.sizes import comma_list
from nearkv.sweeps.study.study import Study

CellArray = NDArray[np.generic]
"""Values of one column, of any type."""
Columns = dict[str, CellArray]
"""A table: each column's name and its values, all of one length."""
Row = dict[str, Any]
Rows = list[Row]

MARKS = {"infeasible": "OOM", "not-modelled": "n/m"}
"""Marks in place of an answer, by the status of its row."""
LARGEST_WHOLE = 2**53
"""Whole number from which on not all are floats; one that is larger is shown as its float."""
MOST_ROWS_SHOWN = 10_000
"""Rows that a terminal, Markdown or LaTeX shows; more are written as CSV or JSON."""


@dataclass(frozen=True)
class Categories:
    """Text at every design point, as places in a list of names.

    Attributes:
        places: broadcast over design points.
        names: the text of each place.
    """

    places: Indices
    names: tuple[str, ...]


EVERYWHERE = np.zeros((), int)
"""Places of a text that all design points have: the first of its `Categories`."""


@dataclass(frozen=True)
class Display:
    """A table for readers, in any format.

    Attributes:
        rows: all with the same keys.
        usual: columns to show, the most important first, as far as they fit; all where empty.
        pinned: columns to show at any width: those that vary or were asked for.
        title: what stands above.
        below: sentences that end it.
    """

    rows: Rows
    usual: Sequence[str] = ()
    pinned: Sequence[str] = ()
    title: str = ""
    below: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """Columns that may be shown, in the order of the table."""
        shown = {*self.usual, *self.pinned}
        return [
            name for row in self.rows[:1] for name in row if not self.usual or name in shown
        ]


def select(columns: Columns, only: str) -> Columns:
    """Keep the columns of a comma-separated list, in that order; all where it is empty.

    Raises:
        InputError: a name that is no column, or comes twice.
    """
    chosen = comma_list(only)
    check_columns(columns, chosen)
    return {name: columns[name] for name in chosen} if chosen else columns


def check_columns(known: Iterable[object], names: Sequence[str]) -> None:
    """Refuse names that are no columns, or come twice.

    Raises:
        InputError: there is such a name.
    """
    columns = list(map(str, known))
    check_known("column", once(names, "--columns"), columns, "--columns")


def varying(columns: Iterable[object], study: Study) -> list[str]:
    """Columns of what the study varies: its systems, models, workloads, numbers and knobs."""
    stated = {axis.name: getattr(study, axis.field) for axis in AXES}
    stated |= {"context_tok": study.context, "rate_req_s": study.rate}
    stated |= {"system": study.systems, **study.sets, **study.knobs, **study.zipped}
    for role, parts in {**study.parts, **study.zipped}.items():
        stated[f"{role}.part"] = parts
    names = set()
    for name, values in stated.items():
        if isinstance(values, tuple) and len({*map(str, values)}) > 1:
            names.add(name)
    numbers = tuple(f"{name}_" for name in names if "." in name)  # before their unit
    known = map(str, columns)
    return [name for name in known if name in names or name.startswith(numbers)]


def is_whole(values: CellArray) -> bool:
    """True if finite numbers may all be written as whole ones."""
    numbers = values.astype(float)
    exact = np.abs(numbers) < LARGEST_WHOLE
    return bool(np.all(exact & (numbers == np.trunc(numbers))))


def plain(value: Any) -> Any:
    """A cell as Python knows it: whole numbers without a point, None where there is no number."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return value if value == math.inf else None
    if value.is_integer() and abs(value) < LARGEST_WHOLE:
        return int(value)
    return value


def records(columns: Columns) -> Rows:
    """Rows as dictionaries of plain values."""
    listed = [list(map(plain, values.tolist())) for values in columns.values()]
    rows = zip(*listed, strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def marked(rows: Rows, named: Collection[str] = ()) -> Rows:
    """Rows whose blank answers say why they are: out of memory, or not modelled.

    Args:
        rows: all with the same keys.
        named: columns that are marked even where no row has a number.
    """
    names = list(rows[0])
    if "status" not in names:
        return rows
    behind = names[names.index("status") + 1 :]
    answers = [
        name
        for name in behind
        if name in named or any(is_number(row[name]) for row in rows)
    ]
    shown = []
    for row in rows:
        mark = MARKS.get(row["status"])
        blank = [name for name in answers if mark and row[name] is None]
        shown.append({**row, **dict.fromkeys(blank, mark)})
    return shown


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


def reach(numbers: CellArray) -> str:
    """The lowest and the highest of some positive numbers, or the one where both read alike.

    >>> reach(np.array([1.5, 0.25, 0.5]))
    '0.25 to 1.5'
    """
    known = numbers.astype(float)
    ends = map(three_digits, (np.nanmin(known), np.nanmax(known)))
    return " to ".join(dict.fromkeys(ends))


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the singular where it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def is_number(value: object) -> bool:
    """True if a cell is a number; yes and no are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def indented(rows: Rows, key: str) -> Rows:
    """Rows whose path is shown as a tree: its last name, further in the deeper it lies."""
    tree = []
    for row in rows:
        *above, name = row[key].split("/")
        tree.append({**row, key: "  " * len(above) + name})
    return tree

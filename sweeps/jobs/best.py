"""The best rows of a sweep, in bounded memory: the top few, or the best of each group.

Boxes of design points are evaluated in the columns that rows are compared by. Of each box, rows
that may be among the best are kept by their number; what two parts of a sweep keep merges into what
both do, so it does not matter which worker saw which. Of rows that compare equal the first stays.
All columns are evaluated at the end, of the rows kept alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, check_known, once
from nearkv.sweeps.evaluate.blanks import running_without, warn_of_blanks
from nearkv.sweeps.evaluate.columns import on_request
from nearkv.sweeps.evaluate.evaluate import (
    Cell,
    Columns,
    Names,
    at,
    cells,
    columns_at,
    stack,
)
from nearkv.sweeps.evaluate.slo import Target, higher_is_better
from nearkv.sweeps.jobs.plan import (
    Kind,
    Piece,
    Plan,
    chosen,
    plan,
    size_of,
    unpacked,
)
from nearkv.sweeps.jobs.progress import SweepRun, announce, progress
from nearkv.sweeps.study.grid import POINTS_AT_ONCE, Box, shape_of
from nearkv.sweeps.study.study import Block, Study

BY = "throughput_tok_s"
"""The column that rows are compared by unless another is named."""
REDUCED = 1 << 20
"""Rows of a task."""
MOST_KEPT = 1_000_000
"""More rows than this are no summary."""
MANY = 10**10
"""More design points than this take hours."""
MOST_WASTE = 4
"""Design points of a box evaluated again for each row that is kept of it [1]."""

Places = NDArray[np.intp]


@dataclass(frozen=True)
class Kept:
    """Rows that may be among the best, in order.

    Attributes:
        rows: their numbers in the sweep.
        costs: what they are compared by, less is better: (rows, columns).
        groups: what tells groups apart, a column each; none where there is one group.
    """

    rows: NDArray[np.int64]
    costs: Numbers
    groups: tuple[NDArray[np.generic], ...]

    def take(self, places: Places) -> Kept:
        """Some of them."""
        groups = tuple(group[places] for group in self.groups)
        return Kept(self.rows[places], self.costs[places], groups)

    def __add__(self, later: Kept) -> Kept:
        pairs = zip(self.groups, later.groups, strict=True)
        groups = tuple(np.concatenate(pair) for pair in pairs)
        rows = np.concatenate([self.rows, later.rows])
        return Kept(rows, np.concatenate([self.costs, later.costs]), groups)


@dataclass(frozen=True)
class Reducer(ABC):
    """Keeps the best rows.

    Attributes:
        by: columns compared by.
        per: columns whose every combination of values is a group.
        where: limits that a row must meet.
    """

    by: tuple[str, ...]
    per: tuple[str, ...] = ()
    where: tuple[Target, ...] = ()

    @abstractmethod
    def choose(self, costs: Numbers, groups: Places) -> Places:
        """Places of the rows worth keeping, in the order they are shown.

        Args:
            costs: what rows are compared by, less is better, NaN for none: (rows, columns).
            groups: number of the group of each row, in the order of the groups' values.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that must be known to choose."""
        return (*self.by, *self.per, *(limit.quantity for limit in self.where))

    def check(self, kinds: Mapping[str, Kind]) -> None:
        """Refuse columns that cannot be compared by.

        Raises:
            InputError: a column is unknown, or holds no numbers.
        """
        for name in self.by:
            check_known("column", [name], kinds, "--by")
            if kinds[name] not in ("whole", "number"):
                text = f"{name} is not a column of numbers, so no row is better by it"
                raise InputError(f"--by: {text}")
        check_known("column", self.per, kinds, "--best-per")

    def best_of_box(
        self, cells: Mapping[str, Cell], shape: tuple[int, ...], first: int
    ) -> Kept:
        """The best rows of a box of design points.

        Args:
            cells: its columns.
            shape: that all columns broadcast to.
            first: number of its first row.
        """
        costs = np.empty((*shape, len(self.by)))
        for place, name in enumerate(self.by):
            sign = -1.0 if higher_is_better(name) else 1.0
            costs[..., place] = sign * np.asarray(cells[name], np.float64)
        for limit in self.where:
            values = np.asarray(cells[limit.quantity], np.float64)
            costs[np.broadcast_to(limit.margin(values) < 0, shape)] = np.nan
        costs = costs.reshape(-1, len(self.by))
        groups = _numbered(cells[name] for name in self.per)
        places = np.sort(self.choose(costs, np.broadcast_to(groups, shape).ravel()))
        shared = tuple(at(cells[name], shape, places) for name in self.per)
        return Kept(first + places, costs[places], shared)

    def merge(self, kept: Kept | None, later: Kept) -> Kept:
        """The best rows of two parts of a sweep.

        Raises:
            InputError: too many to keep.
        """
        if kept is not None:
            both = kept + later
            later = both.take(np.sort(self.choose(both.costs, _numbered(both.groups))))
        if len(later.rows) > MOST_KEPT:
            many = f"more than {MOST_KEPT:,} rows are best"
            raise InputError(f"{many}; write all rows to a file with -o")
        return later


@dataclass(frozen=True)
class Top(Reducer):
    """The best few rows by one column.

    Attributes:
        most: how many.
    """

    most: int = 1

    def choose(self, costs: Numbers, groups: Places) -> Places:
        """The first few in order of cost, then of row."""
        known = np.flatnonzero(~np.isnan(costs[:, 0]))
        cost = costs[known, 0]
        if (
            len(cost) > self.most
        ):  # a sort of all would take longer; ties at the edge must reach it
            edge = np.partition(cost, self.most - 1)[self.most - 1]
            known = known[cost <= edge]
            cost = costs[known, 0]
        return known[np.argsort(cost, kind="stable")[: self.most]]


@dataclass(frozen=True)
class BestPer(Reducer):
    """The best row of every group by one column."""

    def choose(self, costs: Numbers, groups: Places) -> Places:
        """One row a group, in order of the groups' values."""
        cost = costs[:, 0]
        groups = np.broadcast_to(groups, cost.shape)
        least = np.full(np.max(groups, initial=-1) + 1, np.inf)
        np.fmin.at(least, groups, cost)
        candidates = np.flatnonzero(cost == least[groups])
        _, first = np.unique(groups[candidates], return_index=True)
        return candidates[first]


def _numbered(cells: Iterable[Cell | NDArray[np.generic]]) -> Places:
    """Numbers of groups in the order of their values, as large as the axes these depend on."""
    numbers = np.zeros((), np.intp)
    for cell in cells:
        values = cell.places if isinstance(cell, Names) else np.asarray(cell)
        distinct, codes = np.unique(values, return_inverse=True)
        pairs = numbers * len(distinct) + codes.reshape(values.shape)
        # numbered anew: products of many columns would outgrow an integer
        numbers = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)
    return numbers


def best(
    study: Study, reducer: Reducer, run: SweepRun, only: Sequence[str] = ()
) -> Columns:
    """Evaluate a study and return its best rows, in the order of the reducer.

    Args:
        study: what to evaluate.
        reducer: what is best.
        run: how.
        only: columns to return, in that order; where none is named all, and of those on request
            what rows are compared by.

    Returns:
        The best rows; where no design point has an answer, the first of them, whose `status` and
        `reason` say why.

    Raises:
        InputError: the study cannot be evaluated, or a column not be compared by.
    """
    requested = on_request([*only, *reducer.columns])
    rows = plan(study, extra=requested)
    shown = chosen(rows.kinds, only, requested)
    reducer.check(rows.kinds)
    numbers = best_numbers(rows, reducer, run)
    table = whole_rows(rows, numbers if len(numbers) else np.zeros(1, np.int64))
    if len(numbers):
        warn_of_blanks(rows.blocks, reducer.by, "--by")
    elif table["status"][0] == "ok" or running_without(rows.blocks, reducer.by[0]):
        raise InputError(f"no design point has {reducer.by[0]}; compare by another column")
    return {name: table[name] for name in shown}


def best_numbers(rows: Plan, reducer: Reducer, run: SweepRun) -> NDArray[np.int64]:
    """Numbers of the best rows, in the order of the reducer.

    Raises:
        InputError: too many to compare without a yes, or too many to keep.
    """
    if rows.size > MANY and not run.confirm(f"Compare {rows.size:,} design points?"):
        many = f"{rows.size:,} design points are very many to compare"
        raise InputError(f"{many}; leave out some, or begin all the same with --yes")
    task = partial(_best_of_piece, rows.packed(), reducer)
    announce(rows, task, run, "compare")
    kept: Kept | None = None
    answers = run.workers.run(task, rows.pieces(REDUCED))
    with progress(rows.size, quiet=run.quiet) as advance, closing(answers):
        for piece, best_of_piece in answers:
            kept = reducer.merge(kept, best_of_piece)
            advance(piece.rows)
    assert kept is not None, "a study has a point"
    return kept.rows[reducer.choose(kept.costs, _numbered(kept.groups))]


def _best_of_piece(packed: bytes, reducer: Reducer, piece: Piece) -> Kept:
    """Evaluate a piece of a packed plan and keep its best rows; what a worker does."""
    rows = unpacked(packed)
    kept: Kept | None = None
    first = piece.first
    for index, box in piece.boxes:
        cells = rows.cells(index, box, reducer.columns)
        kept = reducer.merge(kept, reducer.best_of_box(cells, shape_of(box), first))
        first += size_of(box)
    assert kept is not None, "a piece has a box"
    return kept


def whole_rows(rows: Plan, numbers: NDArray[np.int64]) -> Columns:
    """All columns of some rows of a sweep, in their order.

    Args:
        rows: the sweep.
        numbers: of the rows.
    """
    order = np.argsort(numbers)
    extra = on_request(rows.kinds)
    tables, first = [], 0
    for block in rows.blocks:
        start, end = np.searchsorted(numbers[order], (first, first + block.grid.size))
        for at_once in range(start, end, POINTS_AT_ONCE):
            some = order[at_once : min(at_once + POINTS_AT_ONCE, end)]
            tables.append(_rows_of_block(block, numbers[some] - first, extra))
        first += block.grid.size
    table = stack(tables)
    back = np.argsort(order)
    answer: Columns = {}
    for name, kind in rows.kinds.items():
        blank = np.full(len(numbers), "" if kind == "text" else np.nan)
        answer[name] = table[name][back] if name in table else blank
    return answer


def _rows_of_block(
    block: Block, numbers: NDArray[np.int64], extra: Sequence[str]
) -> Columns:
    """All columns of some rows of a block."""
    places = np.unravel_index(numbers, block.grid.shape)
    if block.is_closed_form:
        return columns_at(block, np.stack(places, axis=1), extra)
    # draws and events are of boxes; a simulation takes long, so no box holds a point in vain
    points = np.stack(places, axis=1)
    waste = 1 if block.method == "simulate" else MOST_WASTE
    tables, evaluated = [], []
    for box, members in boxes_around(points, np.arange(len(points)), waste):
        shape = shape_of(box)
        start = [side.start for side in box]
        inside = np.ravel_multi_index(tuple((points[members] - start).T), shape)
        answers = cells(block, box, extra=extra)
        tables.append({name: at(cell, shape, inside) for name, cell in answers.items()})
        evaluated.append(members)
    table = stack(tables)
    back = np.argsort(np.concatenate(evaluated))
    return {name: values[back] for name, values in table.items()}


def boxes_around(
    points: Places, members: Places, waste: int
) -> Iterator[tuple[Box, Places]]:
    """Boxes that cover some points of a grid, and few others: halved until they are filled.

    Args:
        points: place along each axis: (points, axes).
        members: which of them are to be covered.
        waste: points of a box at most, for each member in it.

    Yields:
        A box, and which of the members lie in it.
    """
    low = points[members].min(axis=0)
    high = points[members].max(axis=0) + 1
    sides = high - low
    if np.prod(sides) <= waste * len(members):
        yield tuple(map(slice, low.tolist(), high.tolist())), members
        return
    longest = np.argmax(sides)
    is_lower = points[members, longest] < low[longest] + sides[longest] // 2
    for half in (members[is_lower], members[~is_lower]):
        yield from boxes_around(points, half, waste)


def reducer_of(top: int | None, by: str, per: tuple[str, ...]) -> Reducer | None:
    """The reducer a user asks for, or none.

    Raises:
        InputError: two at once, or one that makes no sense.
    """
    if top is not None and per:
        raise InputError("--top and --best-per each keep other rows; choose one")
    if top is not None and not 1 <= top <= MOST_KEPT:
        raise InputError(f"--top {top}: must be 1 or more, and at most {MOST_KEPT:,}")
    if by and not (top or per):
        raise InputError(
            f"--by {by}: says what --top and --best-per compare by; give one of these"
        )
    if top:
        return Top((by or BY,), most=top)
    return BestPer((by or BY,), once(per, "--best-per")) if per else None

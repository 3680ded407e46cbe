"""Keep only the best rows of a sweep, in bounded memory: the top few, or the best of each group.

A reducer sees every row once, as the columns it compares by, and keeps row numbers. Kept rows of
two parts of a sweep merge into those of both, so it does not matter which worker saw which. Of
rows that compare equal the first stays. The rest of a kept row is evaluated again at the end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, once, unknown
from nearkv.sweeps.evaluate.bounds import points_at
from nearkv.sweeps.evaluate.cells import cells_at
from nearkv.sweeps.evaluate.evaluate import Cell, Names, at, cells
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.explore.ideals import Groups
from nearkv.sweeps.explore.pruning import Visit, rows_of
from nearkv.sweeps.jobs.kept import Kept, Limits, Mask, Numbers, Rows
from nearkv.sweeps.jobs.plan import (
    Kind,
    Piece,
    shape_of,
    unpacked,
)

MOST_KEPT = 1_000_000
"""More rows than this are no summary."""
BY = "throughput_tok_s"
"""The column that rows are compared by unless another is named."""

_BEYOND = np.iinfo(np.int64).max
"""A number that no row has."""

Cells = Mapping[str, Cell]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reducer(ABC):
    """Picks the best rows by a column.

    Attributes:
        by: the column compared by.
        per: columns whose every combination of values is a group.
    """

    by: str
    per: tuple[str, ...] = ()

    @abstractmethod
    def best(self, candidates: Kept) -> Kept:
        """The rows worth keeping, in the order they are shown."""

    def check(self, kinds: Mapping[str, Kind]) -> None:
        """Refuse columns that cannot be compared by.

        Raises:
            InputError: a column is unknown, or holds no numbers.
        """
        if self.by not in kinds:
            raise unknown("column", self.by, kinds, "--by")
        for name in self.per:
            if name not in kinds:
                raise unknown("column", name, kinds, "--best-per")
        if kinds[self.by] not in ("whole", "number"):
            text = f"{self.by} is not a column of numbers, so no row is better by it"
            raise InputError(f"--by: {text}")

    @abstractmethod
    def limits(self, kept: Kept, groups: Groups) -> Limits:
        """What rows must beat to be among the best."""

    def see(
        self, columns: Cells, shape: Shape, rows: Rows, kept: Kept | None = None
    ) -> Kept:
        """The best rows of some design points.

        Args:
            columns: their columns.
            shape: that all columns broadcast to.
            rows: their numbers.
            kept: rows seen before, which these must beat.
        """
        values = np.asarray(columns[self.by], np.float64)
        sign = -1.0 if higher_is_better(self.by) else 1.0
        costs = np.broadcast_to(sign * values, shape).ravel()
        highest = self.highest(kept) if kept else np.inf
        promising = self.promising(costs, columns, shape) & (costs <= highest)
        chosen = np.flatnonzero(promising)
        groups = tuple(at(columns[name], shape, chosen) for name in self.per)
        return self.best(Kept(rows[chosen], costs[chosen], groups))

    def highest(self, kept: Kept) -> float:
        """A cost above which no row joins these, whatever its group."""
        return np.inf

    def promising(self, costs: Numbers, columns: Cells, shape: Shape) -> Mask:
        """A quick first choice of rows, all of the best among them; never one without a number."""
        known: Mask = np.logical_not(np.isnan(costs))
        return known

    def merge(self, one: Kept | None, other: Kept) -> Kept:
        """The best rows of two parts of a sweep.

        Raises:
            InputError: too many to keep.
        """
        kept = self.best(one + other) if one else other
        if len(kept.rows) > MOST_KEPT:
            many = f"more than {MOST_KEPT:,} rows are best"
            raise InputError(f"{many}; write all rows to a file with -o")
        return kept


@dataclass(frozen=True)
class Top(Reducer):
    """The best few rows by one column.

    Attributes:
        most: how many.
    """

    most: int = 1

    def best(self, candidates: Kept) -> Kept:
        """The first few in order of cost, then of row."""
        costs = candidates.costs
        if len(costs) > 4 * self.most:  # ties at the edge must all reach the sort
            last = self.most - 1
            edge = np.partition(costs, last)[last]
            candidates = candidates.take(costs <= edge)
        order = np.lexsort((candidates.rows, candidates.costs))
        return candidates.take(order[: self.most])

    def highest(self, kept: Kept) -> float:
        """The cost of the last of them, once there are so many."""
        return float(kept.costs[-1]) if len(kept.costs) == self.most else np.inf

    def limits(self, kept: Kept, groups: Groups) -> Limits:
        """The last of them, once there are so many."""
        last = self.most - 1
        costs = np.append(kept.costs[last:], np.inf)
        rows = np.append(kept.rows[last:], _BEYOND)
        return Limits(costs[:1], rows[:1])


@dataclass(frozen=True)
class BestPer(Reducer):
    """The best row of every group by one column."""

    def promising(self, costs: Numbers, columns: Cells, shape: Shape) -> Mask:
        """Rows that no row of their group beats; groups are numbered on the axes they depend on."""
        group = np.zeros((), np.intp)
        groups = 1
        for name in self.per:
            codes, count = _codes(columns[name])
            group = group * count + codes
            groups *= count
        known = super().promising(costs, columns, shape)
        if groups > len(costs):
            return known
        least = np.full(groups, np.inf)
        of_row = np.broadcast_to(group, shape).ravel()
        np.fmin.at(least, of_row, costs)
        unbeaten: Mask = known & (costs == least[of_row])
        return unbeaten

    def best(self, candidates: Kept) -> Kept:
        """One row a group, in order of the groups' values."""
        codes = np.zeros(len(candidates.rows), np.int64)
        for group in candidates.groups:
            group_codes, count = _codes(group)
            _, codes = np.unique(codes * count + group_codes, return_inverse=True)
        order = np.lexsort((candidates.rows, candidates.costs, codes))
        changed = np.diff(codes[order]) != 0
        first_of_group = np.append(True, changed)[: len(order)]
        return candidates.take(order[first_of_group])

    def limits(self, kept: Kept, groups: Groups) -> Limits:
        """The best row of every group."""
        numbers = groups.numbers(kept.groups, len(kept.rows))
        size = int(numbers.max(initial=0)) + 1
        costs = np.full(size, np.inf)
        rows = np.full(size, _BEYOND)
        costs[numbers] = kept.costs
        rows[numbers] = kept.rows
        return Limits(costs, rows)


def _codes(cell: Cell | NDArray[np.generic]) -> tuple[NDArray[np.intp], int]:
    """Values numbered in their order, and how many there are."""
    values = cell.places if isinstance(cell, Names) else np.asarray(cell)
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.reshape(values.shape), len(distinct)


def reduced(packed: bytes, reducer: Reducer, task: Piece | Visit) -> Kept:
    """Evaluate a piece of a packed plan and keep its best rows; what a worker does."""
    kept: Kept | None = None
    rows = unpacked(packed)
    no_name = Names(np.zeros((), int), ("",))
    blank: dict[str, Cell] = {}
    for name in (reducer.by, *reducer.per):
        blank[name] = no_name if rows.kinds[name] == "text" else np.nan
    for computed, shape, numbers in _evaluated(packed, tuple(blank), task):
        seen = reducer.see({**blank, **computed}, shape, numbers, kept)
        kept = reducer.merge(kept, seen)
    assert kept is not None, "a piece has a box"
    return kept


def _evaluated(
    packed: bytes, wanted: tuple[str, ...], task: Piece | Visit
) -> Iterator[tuple[Cells, Shape, Rows]]:
    """Columns of a task, the shape they broadcast to, and the numbers of its rows."""
    if isinstance(task, Visit):
        block = unpacked(packed).blocks[task.index]
        indices = task.boxes.indices()
        computed = cells_at(block, points_at(block, indices), wanted)
        numbers = task.first_row + rows_of(block.grid, indices)
        yield computed, numbers.shape, numbers
        return
    first = task.first
    for index, box in task.boxes:
        shape = shape_of(box)
        size = math.prod(shape)
        computed = cells(unpacked(packed).blocks[index], box, wanted)
        yield computed, shape, np.arange(first, first + size)
        first += size


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
        return Top(by or BY, most=top)
    return BestPer(by or BY, once(per, "--best-per")) if per else None

"""Keep only the best rows of a sweep, in bounded memory: the top few, a Pareto frontier, the best of each group.

A reducer sees every row once, as the columns it compares by, and keeps row numbers. Kept rows of two
parts of a sweep merge into those of both, so it does not matter which worker saw which. Of rows that
compare equal the first stays. The rest of a kept row is evaluated again at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, once, unknown
from nearkv.solvers.frontier import frontier
from nearkv.sweeps.evaluation.evaluate import Cell, Names, at, cells
from nearkv.sweeps.evaluation.targets import higher_is_better
from nearkv.sweeps.jobs.plan import Kind, Piece, unpacked

MOST_KEPT = 1_000_000
"""More rows than this are no summary."""
BY = "throughput_tok_s"
"""What rows are compared by where nobody says."""


@dataclass(frozen=True)
class Kept:
    """Rows that may be among the best.

    Attributes:
        rows: their numbers in the sweep.
        costs: a row each, what they are compared by, less is better.
        groups: what tells groups apart, a column each; none where there is one group.
    """

    rows: NDArray[np.int64]
    costs: NDArray[np.float64]
    groups: tuple[NDArray[np.generic], ...] = ()

    def take(self, chosen: NDArray[np.generic]) -> Kept:
        """Some of them, by place or by mask."""
        return Kept(
            self.rows[chosen], self.costs[chosen], tuple(group[chosen] for group in self.groups)
        )

    def __add__(self, other: Kept) -> Kept:
        groups = zip(self.groups, other.groups, strict=True)
        return Kept(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.costs, other.costs]),
            tuple(np.concatenate(pair) for pair in groups),
        )


@dataclass(frozen=True)
class Reducer(ABC):
    """Picks the best rows by some columns.

    Attributes:
        by: the columns compared by.
        per: columns whose every combination of values is a group.
    """

    by: tuple[str, ...]
    per: tuple[str, ...] = ()
    option: ClassVar[str] = "--by"
    """Where the columns come from."""

    @abstractmethod
    def best(self, found: Kept) -> Kept:
        """The rows worth keeping, in the order they are shown."""

    def check(self, kinds: Mapping[str, Kind]) -> None:
        """Refuse columns that cannot be compared by.

        Raises:
            InputError: no such column, or one of no numbers.
        """
        for name in self.by:
            if name not in kinds:
                raise unknown("column", name, kinds, self.option)
            if kinds[name] not in ("whole", "number"):
                raise InputError(
                    f"{self.option}: {name} is no column of numbers, so no row is better by it"
                )
        for name in self.per:
            if name not in kinds:
                raise unknown("column", name, kinds, "--best-per")

    def see(self, found: Mapping[str, Cell], shape: tuple[int, ...], first: int) -> Kept:
        """The best rows of a box of design points."""
        costs = np.empty((*shape, len(self.by)))
        for place, name in enumerate(self.by):
            values = np.asarray(found[name], np.float64)
            costs[..., place] = -values if higher_is_better(name) else values
        costs = costs.reshape(-1, len(self.by))
        known = np.flatnonzero(self.promising(costs, found, shape))
        return self.best(
            Kept(
                first + known,
                costs[known],
                tuple(at(found[name], shape, known) for name in self.per),
            )
        )

    def promising(
        self, costs: NDArray[np.float64], found: Mapping[str, Cell], shape: tuple[int, ...]
    ) -> NDArray[np.bool_]:
        """A quick first choice of rows, all of the best among them; rows without a number are never."""
        known: NDArray[np.bool_] = np.logical_not(np.any(np.isnan(costs), axis=1))
        return known

    def merge(self, one: Kept | None, other: Kept) -> Kept:
        """The best rows of two parts of a sweep.

        Raises:
            InputError: too many to keep.
        """
        kept = self.best(one + other) if one else other
        if len(kept.rows) > MOST_KEPT:
            raise InputError(
                f"more than {MOST_KEPT:,} rows are best; write all rows to a file with -o"
            )
        return kept


@dataclass(frozen=True)
class Top(Reducer):
    """The best few rows by one column.

    Attributes:
        most: how many.
    """

    most: int = 1

    def best(self, found: Kept) -> Kept:
        """The first few in order of cost, then of row."""
        if len(found.rows) > 4 * self.most:  # ties at the edge must all reach the sort
            edge = np.partition(found.costs[:, 0], self.most - 1)[self.most - 1]
            found = found.take(found.costs[:, 0] <= edge)
        return found.take(np.lexsort((found.rows, found.costs[:, 0]))[: self.most])


@dataclass(frozen=True)
class Frontier(Reducer):
    """The rows that no other beats in every column; of equal ones the first."""

    option = "--pareto"

    def best(self, found: Kept) -> Kept:
        """The frontier, best in the first column first."""
        found = found.take(frontier(found.costs))
        found = found.take(np.lexsort((found.rows, *found.costs.T[::-1])))
        changed = np.any(np.diff(found.costs, axis=0) != 0, axis=1)
        return found.take(np.append(True, changed)[: len(found.rows)])


@dataclass(frozen=True)
class BestPer(Reducer):
    """The best row of every group by one column."""

    def promising(
        self, costs: NDArray[np.float64], found: Mapping[str, Cell], shape: tuple[int, ...]
    ) -> NDArray[np.bool_]:
        """Rows that no row of their group beats; groups are numbered on the axes they depend on."""
        group, groups = np.zeros((), np.intp), 1
        for cell in (found[name] for name in self.per):
            told = cell.places if isinstance(cell, Names) else np.asarray(cell)
            values, places = np.unique(told, return_inverse=True)
            group, groups = group * len(values) + places.reshape(told.shape), groups * len(values)
        known = super().promising(costs, found, shape)
        if groups > len(costs):
            return known
        least, mine = np.full(groups, np.inf), np.broadcast_to(group, shape).ravel()
        np.fmin.at(least, mine, costs[:, 0])
        unbeaten: NDArray[np.bool_] = known & (costs[:, 0] == least[mine])
        return unbeaten

    def best(self, found: Kept) -> Kept:
        """One row a group, in order of the groups' values."""
        codes: NDArray[np.int64] = np.zeros(len(found.rows), np.int64)
        for group in found.groups:
            values, places = np.unique(group, return_inverse=True)
            codes = np.unique(codes * len(values) + places, return_inverse=True)[
                1
            ]  # small again, so none overflows
        order = np.lexsort((found.rows, found.costs[:, 0], codes))
        changed = np.diff(codes[order]) != 0
        return found.take(order[np.append(True, changed)[: len(order)]])


def reduced(plan: bytes, reducer: Reducer, piece: Piece) -> Kept:
    """Evaluate a piece of a packed plan and keep its best rows; what a worker does."""
    kept: Kept | None = None
    first, kinds = piece.first, unpacked(plan).kinds
    nothing = {"text": Names(np.zeros((), int), ("",))}
    blank: dict[str, Cell] = {
        name: nothing.get(kinds[name], np.nan) for name in (*reducer.by, *reducer.per)
    }
    for place, box in piece.boxes:
        shape = tuple(part.stop - part.start for part in box)
        found = {**blank, **cells(unpacked(plan).laid[place], box, blank.keys())}
        kept = reducer.merge(kept, reducer.see(found, shape, first))
        first += int(np.prod(shape))
    assert kept is not None
    return kept


def reducer_of(
    top: int | None, by: str, pareto: tuple[str, ...], per: tuple[str, ...]
) -> Reducer | None:
    """The reducer a user asks for, or none.

    Raises:
        InputError: two at once, or one that makes no sense.
    """
    if (top is not None) + bool(pareto) + bool(per) > 1:
        raise InputError("--top, --pareto and --best-per each keep other rows; choose one")
    if top is not None and not 1 <= top <= MOST_KEPT:
        raise InputError(f"--top {top}: must be 1 or more, and at most {MOST_KEPT:,}")
    if pareto and (len(set(pareto)) != len(pareto) or not 2 <= len(pareto) <= 3):
        raise InputError(
            f"--pareto {','.join(pareto)!r}: name two or three columns, as in throughput_tok_s,cost_usd"
        )
    if by and not (top or per):
        raise InputError(f"--by {by}: says what --top and --best-per compare by; give one of these")
    if pareto:
        return Frontier(pareto)
    compared = (by or BY,)
    if top:
        return Top(compared, most=top)
    return BestPer(compared, once(per, "--best-per")) if per else None

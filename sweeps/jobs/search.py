"""One search: the best of all design points, evaluated in chunks, and how many end how.

Whatever is chosen is the best row of a table. Points are laid out (a grid, machines, sizes of
tiers), evaluated in chunks by what evaluates every table, limited, ranked and kept. The proof is
the count: all were tried, but for those of which it is known before that they are no better, as a
machine whose price alone is above that of the best.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.solvers.frontier import frontier
from nearkv.sweeps.evaluate.columns import Cell, at, cells_at, on_request
from nearkv.sweeps.evaluate.slo import Target, higher_is_better
from nearkv.sweeps.jobs.plan import ColumnKind
from nearkv.sweeps.study.grid import NO_NUMBERS, Block
from nearkv.sweeps.tables.table import Categories

MOST_KEPT = 1_000_000
"""More rows than this are no summary."""
MOST_POINTS = 10**7
"""More points than this, of machines or of tiers, take longer than minutes."""
DIGITS = 10
"""Significant digits to which values are compared; beyond these they tie."""
BEST = "meet every limit"
"""How a point ends that has an answer within all limits."""
NO_BETTER = "no better than the best by what is known before"
"""How a point ends that is not evaluated."""
ENDS = {"infeasible": "are short of memory", "not-modelled": "are not modelled"}
"""Status of a point without an answer -> how it ends, in words."""


@dataclass(frozen=True)
class Candidates:
    """Design points that are evaluated and compared together.

    Attributes:
        rows: number of each point in the whole search, which may broadcast to `shape`: a point
            that is tried with several values of a knob has one number.
        shape: that all columns broadcast to.
        evaluate: names of columns -> these columns.
        least: what none of them is below in the first columns compared, where that is known before
            they are evaluated.
    """

    rows: NDArray[np.int64]
    shape: tuple[int, ...]
    evaluate: Callable[[Sequence[str]], Mapping[str, Cell]]
    least: tuple[float, ...] = ()


def candidates_at(
    block: Block,
    axes: Mapping[str, Numbers],
    numbers: Mapping[str, Numbers] = NO_NUMBERS,
    least: tuple[float, ...] = (),
    read: set[str] | None = None,
) -> Candidates:
    """Design points of a block as a list, numbered from 0.

    Args:
        block: of one point, which the others differ from.
        axes: axis of the block's grid, or a knob -> its values, that broadcast to the points.
        numbers: number of the machine, `role.key` -> its values, alike [SI].
        least: as of `Candidates`.
        read: takes the name of each number that is read of the machine, `role.key`.
    """
    own = {
        name: values.ravel() for name, values in block.grid.mesh(block.grid.whole).items()
    }
    mesh = {**own, **axes}
    requested = {name: knob for name, knob in block.requested.items() if name not in axes}
    asked = replace(block, requested=requested)
    shape = np.broadcast_shapes(
        *map(np.shape, mesh.values()), *map(np.shape, numbers.values())
    )

    def evaluate(wanted: Sequence[str]) -> Mapping[str, Cell]:
        extra = on_request(wanted)
        return cells_at(asked, mesh, mesh, wanted, extra, None, numbers, read)

    return Candidates(np.arange(shape[-1]), shape, evaluate, least)


@dataclass(frozen=True)
class Kept:
    """Rows that may be among the best, in order.

    Attributes:
        rows: their numbers in the search.
        costs: what they are compared by, less is better: (rows, columns).
        groups: what tells groups apart, a column each; none where there is one group.
    """

    rows: NDArray[np.int64]
    costs: Numbers
    groups: tuple[NDArray[np.generic], ...]

    def take(self, places: Indices) -> Kept:
        """Rows selected by a mask."""
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
    def choose(self, costs: Numbers, groups: Indices) -> Indices:
        """Places of the rows worth keeping, in the order they are shown.

        Args:
            costs: what rows are compared by, less is better, NaN for none: (rows, columns).
            groups: number of the group of each row, in the order of the groups' values.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that must be known to choose."""
        return (*self.by, *self.per, *(limit.quantity for limit in self.where))

    def check(self, kinds: Mapping[str, ColumnKind]) -> None:
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

    def costs(self, cells: Mapping[str, Cell], shape: tuple[int, ...]) -> Numbers:
        """What rows are compared by, NaN where a limit is missed: (*shape, columns)."""
        costs = np.empty((*shape, len(self.by)))
        for place, name in enumerate(self.by):
            sign = -1.0 if higher_is_better(name) else 1.0
            costs[..., place] = sign * np.asarray(cells[name], np.float64)
        for limit in self.where:
            values = np.asarray(cells[limit.quantity], np.float64)
            costs[np.broadcast_to(limit.margin(values) < 0, shape)] = np.nan
        return costs

    def is_beaten(self, kept: Kept | None, least: tuple[float, ...]) -> bool:
        """True if what is kept is better than points that are not below some values."""
        return False

    def best_of(self, candidates: Candidates, cells: Mapping[str, Cell]) -> Kept:
        """The best of some candidates, by their columns."""
        shape = candidates.shape
        costs = self.costs(cells, shape)
        costs = costs.reshape(-1, costs.shape[-1])
        groups = numbered(cells[name] for name in self.per)
        places = np.sort(self.choose(costs, np.broadcast_to(groups, shape).ravel()))
        shared = tuple(at(cells[name], shape, places) for name in self.per)
        rows = np.broadcast_to(candidates.rows, shape).ravel()[places]
        return Kept(rows, costs[places], shared)

    def merge(self, kept: Kept | None, later: Kept) -> Kept:
        """The best rows of two parts of a sweep.

        Raises:
            InputError: too many to keep.
        """
        if kept is not None:
            both = kept + later
            later = both.take(np.sort(self.choose(both.costs, numbered(both.groups))))
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

    def choose(self, costs: Numbers, groups: Indices) -> Indices:
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

    def choose(self, costs: Numbers, groups: Indices) -> Indices:
        """One row a group, in order of the groups' values."""
        cost = costs[:, 0]
        groups = np.broadcast_to(groups, cost.shape)
        least = np.full(np.max(groups, initial=-1) + 1, np.inf)
        np.fmin.at(least, groups, cost)
        candidates = np.flatnonzero(cost == least[groups])
        _, first = np.unique(groups[candidates], return_index=True)
        return candidates[first]


def numbered(cells: Iterable[Cell | NDArray[np.generic]]) -> Indices:
    """Numbers of groups in the order of their values, as large as the axes these depend on."""
    numbers = np.zeros((), np.intp)
    for cell in cells:
        values = cell.places if isinstance(cell, Categories) else np.asarray(cell)
        distinct, codes = np.unique(values, return_inverse=True)
        pairs = numbers * len(distinct) + codes.reshape(values.shape)
        # numbered anew: products of many columns would outgrow an integer
        numbers = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)
    return numbers


@dataclass(frozen=True)
class Best(Reducer):
    """The best row, or the front of several columns; where all miss a limit, the one nearest to it.

    Rows that tie in what is compared are told apart by more columns, the lowest first, so that the
    order of rows decides nothing.

    Attributes:
        highest: of each column compared by, whether more is better.
        ties: columns by which rows that tie are told apart.
    """

    highest: tuple[bool, ...] = ()
    ties: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that must be known to choose, and the status of each row."""
        return (*super().columns, *self.ties, "status")

    def costs(self, cells: Mapping[str, Cell], shape: tuple[int, ...]) -> Numbers:
        """The largest excess over a limit, what rows are compared by, and what tells ties apart."""
        excess = np.zeros(shape)
        for limit in self.where:
            values = np.asarray(cells[limit.quantity], np.float64)
            excess = np.maximum(excess, -limit.margin(values))
        columns = [excess]
        for name, is_highest in zip(self.by, self.highest, strict=True):
            values = np.asarray(cells[name], np.float64)
            columns.append(-values if is_highest else values)
        for name in self.ties:
            values = np.asarray(cells[name], np.float64)
            columns.append(np.where(np.isnan(values), np.inf, values))
        columns = [np.broadcast_to(column, shape) for column in columns]
        return np.stack(columns, axis=-1)

    def choose(self, costs: Numbers, groups: Indices) -> Indices:
        """The best row of all or the front, in order; the nearest where none meets every limit."""
        end = 1 + len(self.by)
        known = np.flatnonzero(~np.isnan(costs[:, 1:end]).any(axis=1))
        within = known[costs[known, 0] == 0]
        if len(self.by) == 1 or not len(within):
            return _first(costs, known)
        front = within[frontier(costs[within, 1:end])]
        alike = np.unique(to_digits(costs[front, 1:end]), axis=0, return_inverse=True)[1]
        members = [front[alike == place] for place in range(np.max(alike, initial=-1) + 1)]
        return np.concatenate([_first(costs, each) for each in members])

    def is_beaten(self, kept: Kept | None, least: tuple[float, ...]) -> bool:
        """True if the best row is better than points that are not below some values."""
        if kept is None or not len(kept.rows) or len(self.by) > 1:
            return False
        best = to_digits(kept.costs[0, : len(least)])
        return tuple(best.tolist()) < tuple(to_digits(np.array(least)).tolist())


def to_digits(values: Numbers) -> Numbers:
    """Values to the significant digits to which they are compared."""
    has_digits = np.isfinite(values) & (values != 0)
    exponent = np.floor(np.log10(np.abs(np.where(has_digits, values, 1.0))))
    scale = 10.0 ** (DIGITS - 1 - exponent)
    rounded: Numbers = np.where(has_digits, np.round(values * scale) / scale, values)
    return rounded


def _first(costs: Numbers, rows: Indices) -> Indices:
    """The row with the least first column, of rows that tie in it that with the next; or none."""
    for column in costs.T:
        if len(rows) > 1:
            values = to_digits(column[rows])
            rows = rows[values == np.min(values)]
    return rows[:1]


def check_points(count: int, axes: Mapping[str, int], noun: str) -> None:
    """Refuse more points than can be tried in minutes.

    Args:
        count: of all points.
        axes: how many values each axis has.
        noun: what the points are.

    Raises:
        InputError: there are more.
    """
    if count > MOST_POINTS:
        longest = max(axes, key=lambda axis: axes[axis])
        raise InputError(
            f"{count:,} {noun} are more than the {MOST_POINTS:,} that are tried; the longest axis "
            f"is {longest}, with {axes[longest]:,} values: state fewer"
        )


@dataclass(frozen=True)
class Found:
    """Rows that a search kept, and how all points ended.

    Attributes:
        kept: the best rows; None where nothing was tried.
        outcomes: in words -> how many points ended so, where their status was asked for.
        is_complete: whether all were tried that could be better.
        is_interrupted: whether Ctrl-C ended it.
    """

    kept: Kept | None
    outcomes: Mapping[str, int]
    is_complete: bool = True
    is_interrupted: bool = False


def search(
    chunks: Iterable[Candidates],
    reducer: Reducer,
    kept: Kept | None = None,
    until: float = np.inf,
    report: Callable[[int], None] | None = None,
) -> Found:
    """Evaluate all candidates and keep the best.

    Args:
        chunks: all candidates, a chunk at a time.
        reducer: what is best.
        kept: of an earlier search, whose rows are among those compared.
        until: end of `time.monotonic` at which the search stops [s].
        report: called after every chunk with the number of its points.

    Raises:
        InputError: too many rows are best.
    """
    outcomes: Counter[str] = Counter()
    try:
        for candidates in chunks:
            if time.monotonic() > until:
                return Found(kept, outcomes, is_complete=False)
            points = candidates.rows.size
            if reducer.is_beaten(kept, candidates.least):
                outcomes[NO_BETTER] += points
            else:
                cells = candidates.evaluate(reducer.columns)
                kept = reducer.merge(kept, reducer.best_of(candidates, cells))
                if "status" in cells:
                    outcomes += outcomes_of(cells, candidates.shape, reducer)
            if report:
                report(points)
    except KeyboardInterrupt:
        return Found(kept, outcomes, is_complete=False, is_interrupted=True)
    return Found(kept, outcomes)


def outcomes_of(
    cells: Mapping[str, Cell], shape: tuple[int, ...], reducer: Reducer
) -> Counter[str]:
    """How many points end how, each by its best combination of knobs, along the axes before it.

    Args:
        cells: columns of the points, `status` among them.
        shape: that they broadcast to; its last axis is of points.
        reducer: whose limits count.
    """
    status = cells["status"]
    assert isinstance(status, Categories)
    texts = [BEST, *(f"miss {limit.text}" for limit in reducer.where)]
    place = np.zeros(shape, np.intp)
    for number, limit in reversed(list(enumerate(reducer.where, 1))):
        values = np.asarray(cells[limit.quantity], np.float64)
        place[np.broadcast_to(limit.margin(values) < 0, shape)] = number
    for name in reducer.by:
        blank = np.isnan(np.asarray(cells[name], np.float64))
        place[np.broadcast_to(blank, shape)] = len(texts)
        texts.append(f"have no {name}")
    for number, name in enumerate(status.names):
        if name != "ok":
            place[np.broadcast_to(status.places == number, shape)] = len(texts)
            texts.append(ENDS.get(name, name))
    best = np.min(place.reshape(-1, shape[-1]), axis=0)
    counts = np.bincount(best, minlength=len(texts)).tolist()
    return Counter(
        {text: count for text, count in zip(texts, counts, strict=True) if count}
    )

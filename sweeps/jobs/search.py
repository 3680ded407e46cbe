"""One search: the best of all design points, evaluated in chunks, and how many end how.

Every choice is the best row of a table. Points are laid out (a grid, machines, sizes of
tiers), evaluated in chunks by what evaluates every table, limited, ranked and kept. The proof is
the count: all were tried, but for those of which it is known before that they are no better, as a
machine whose price alone is above that of the best.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.solvers.frontier import frontier
from nearkv.sweeps.evaluate.columns import Cell, cells_at, on_request, spread_at
from nearkv.sweeps.evaluate.slo import Target
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
"""End of a point that has an answer within all limits."""
NO_BETTER = "no better than the best by what is known before"
"""End of a point that is not evaluated."""
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
        group: the group of all of them, where `least` is known.
    """

    rows: NDArray[np.int64]
    shape: tuple[int, ...]
    evaluate: Callable[[Sequence[str]], Mapping[str, Cell]]
    least: tuple[float, ...] = ()
    group: tuple[str, ...] = ()


def candidates_at(
    block: Block,
    axes: Mapping[str, Numbers],
    numbers: Mapping[str, Numbers] = NO_NUMBERS,
    read: set[str] | None = None,
) -> Candidates:
    """Design points of a block as a list, numbered from 0.

    Args:
        block: of one point, which the others differ from.
        axes: axis of the block's grid, or a knob -> its values, that broadcast to the points.
        numbers: number of the machine, `role.key` -> its values, alike [SI].
        read: takes the name of each number that is read of the machine, `role.key`.
    """
    own = {
        name: values.ravel() for name, values in block.grid.mesh(block.grid.whole).items()
    }
    mesh = {**own, **axes}
    open_knobs = {name: knob for name, knob in block.open_knobs.items() if name not in axes}
    question = replace(block, open_knobs=open_knobs)
    shape = np.broadcast_shapes(
        *map(np.shape, mesh.values()), *map(np.shape, numbers.values())
    )

    def evaluate(names: Sequence[str]) -> Mapping[str, Cell]:
        extra = on_request(names)
        return cells_at(question, mesh, mesh, names, extra, None, numbers, read)

    return Candidates(np.arange(shape[-1]), shape, evaluate)


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
        """Rows selected by their places, or by a mask."""
        groups = tuple(group[places] for group in self.groups)
        return Kept(self.rows[places], self.costs[places], groups)

    def __add__(self, later: Kept) -> Kept:
        pairs = zip(self.groups, later.groups, strict=True)
        groups = tuple(np.concatenate(pair) for pair in pairs)
        rows = np.concatenate([self.rows, later.rows])
        return Kept(rows, np.concatenate([self.costs, later.costs]), groups)


@dataclass(frozen=True)
class Best:
    """The best rows of each group: the first few by one column, or the front of several.

    Rows that tie in what is compared are told apart by more columns, the lowest first, so that the
    order in which they come decides nothing.

    Attributes:
        by: columns compared by.
        highest: of each, whether more is better.
        per: columns whose every combination of values is a group.
        where: limits that a row must meet.
        ties: columns by which rows that tie are told apart.
        most: rows that are kept of a group; of a front, of those that tie.
        nearest: whether of a group in which no row meets every limit the nearest is kept.
    """

    by: tuple[str, ...]
    highest: tuple[bool, ...]
    per: tuple[str, ...] = ()
    where: tuple[Target, ...] = ()
    ties: tuple[str, ...] = ()
    most: int = 1
    nearest: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that must be known to choose, and the status of each row."""
        limited = (limit.quantity for limit in self.where)
        return (*self.by, *self.per, *limited, *self.ties, "status")

    @property
    def nothing(self) -> Kept:
        """No row."""
        width = 1 + len(self.by) + len(self.ties)
        groups = tuple(np.zeros(0) for _ in self.per)
        return Kept(np.zeros(0, np.int64), np.empty((0, width)), groups)

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
        """The largest excess over a limit, then what rows are compared by: (columns, *shape)."""
        costs = np.zeros((1 + len(self.by), *shape))
        for limit in self.where:
            values = np.asarray(cells[limit.quantity], np.float64)
            np.maximum(costs[0], -limit.margin(values), out=costs[0])
        for place, name in enumerate(self.by):
            values = np.asarray(cells[name], np.float64)
            costs[1 + place] = -values if self.highest[place] else values
        return costs

    def choose(self, costs: Numbers, groups: Indices) -> Indices:
        """Places of the rows worth keeping, group by group, the best first.

        Args:
            costs: those of `costs`, and what tells ties apart: (columns, rows).
            groups: number of the group of each row, in the order of the groups' values.
        """
        end = 1 + len(self.by)
        rows = self._promising(costs[:end], groups)
        digits = to_digits(costs[:, rows])
        order = np.lexsort((*digits[::-1], groups[rows]))
        rows, digits = rows[order], digits[:, order]
        alike = [groups[rows]]
        if len(self.by) > 1:
            alike += [np.where(digits[0] == 0, column, 0) for column in digits[1:end]]
        begins = np.any([column[1:] != column[:-1] for column in alike], axis=0)
        first = np.flatnonzero(np.concatenate([[True], begins])[: len(rows)])
        runs = np.diff(first, append=len(rows))
        return rows[np.arange(len(rows)) - np.repeat(first, runs) < self.most]

    def _promising(self, costs: Numbers, groups: Indices) -> Indices:
        """Places of the rows that may be kept, by what is compared; to sort all takes longer."""
        is_known = ~np.isnan(costs[1:]).any(axis=0)
        is_within = is_known & (costs[0] == 0)
        if self.nearest:
            serves = np.zeros(np.max(groups, initial=0) + 1, bool)
            serves[groups[is_within]] = True
            is_within |= is_known & ~serves[groups]
        rows = np.flatnonzero(is_within)
        if len(self.by) > 1:
            return _fronts(rows, costs, groups)
        if self.nearest or len(rows) <= self.most:
            return rows
        cost = costs[1, rows]
        if self.most == 1:
            least = np.full(np.max(groups) + 1, np.inf)
            np.minimum.at(least, groups[rows], cost)
            edge = least[groups[rows]]
        else:
            edge = np.partition(cost, self.most - 1)[self.most - 1]
        rounding = np.abs(np.nan_to_num(edge)) * 10.0 ** (1 - DIGITS)
        promising: Indices = rows[cost <= edge + rounding]
        return promising

    def is_beaten(self, kept: Kept, candidates: Candidates) -> bool:
        """True if what is kept is better than candidates can be by what is known of them."""
        if not candidates.least or len(self.by) > 1:
            return False
        is_own = np.ones(len(kept.rows), bool)
        for group, value in zip(kept.groups, candidates.group, strict=False):
            is_own &= group == value
        least = to_digits(np.array(candidates.least)).tolist()
        best = to_digits(kept.costs[is_own, : len(least)]).tolist()
        return bool(best) and best[0] < least

    def best_of(self, candidates: Candidates, cells: Mapping[str, Cell]) -> Kept:
        """The best of some candidates, by their columns."""
        shape = candidates.shape
        compared = self.costs(cells, shape).reshape(1 + len(self.by), -1)
        numbers = numbered(cells[name] for name in self.per)
        groups = np.broadcast_to(numbers, shape).ravel()
        rows = self._promising(compared, groups)
        ties = [
            np.asarray(spread_at(cells[name], shape, rows), np.float64)
            for name in self.ties
        ]
        known = [np.where(np.isnan(column), np.inf, column) for column in ties]
        costs = np.stack([*compared[:, rows], *known])
        best = self.choose(costs, groups[rows])
        rows, costs = rows[best], costs[:, best]
        shared = tuple(spread_at(cells[name], shape, rows) for name in self.per)
        return Kept(np.broadcast_to(candidates.rows, shape).ravel()[rows], costs.T, shared)

    def merge(self, kept: Kept, later: Kept) -> Kept:
        """The best rows of two parts of a search.

        Raises:
            InputError: too many to keep.
        """
        both = kept + later
        groups = np.broadcast_to(numbered(both.groups), both.rows.shape)
        best = both.take(self.choose(both.costs.T, groups))
        if len(best.rows) > MOST_KEPT:
            many = f"more than {MOST_KEPT:,} rows are best"
            raise InputError(f"{many}; write all rows to a file with -o")
        return best


def _fronts(rows: Indices, costs: Numbers, groups: Indices) -> Indices:
    """Rows that no other of their group dominates; all of them where none meets the limits.

    Args:
        rows: their places.
        costs: the excess over a limit, then what is compared: (columns, all rows).
        groups: number of the group of each of all rows.
    """
    fronts = [rows[:0]]
    order = rows[np.argsort(groups[rows], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        is_served = len(members) and costs[0, members[0]] == 0
        fronts.append(members[frontier(costs[1:, members].T)] if is_served else members)
    return np.concatenate(fronts)


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


def to_digits(values: Numbers) -> Numbers:
    """Values to the significant digits to which they are compared."""
    has_digits = np.isfinite(values) & (values != 0)
    exponent = np.floor(np.log10(np.abs(np.where(has_digits, values, 1.0))))
    scale = 10.0 ** (DIGITS - 1 - exponent)
    rounded: Numbers = np.where(has_digits, np.round(values * scale) / scale, values)
    return rounded


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


class Search:
    """A search under way: the best rows so far, and how all points that it saw ended.

    Args:
        best: what is kept.
        until: end of `time.monotonic` at which it stops [s].

    Attributes:
        kept: the best rows.
        outcomes: in words -> how many points ended so.
        is_complete: whether all were tried that could be better.
        is_interrupted: whether Ctrl-C ended it.
    """

    def __init__(self, best: Best, until: float = np.inf) -> None:
        self.best, self.until = best, until
        self.kept = best.nothing
        self.outcomes: Counter[str] = Counter()
        self.is_complete, self.is_interrupted = True, False

    def report(self) -> None:
        """Called after every chunk."""

    def over(self, chunks: Iterable[Candidates]) -> Self:
        """Evaluate all candidates, a chunk at a time, unless it was stopped.

        Raises:
            InputError: too many rows are best.
        """
        try:
            for candidates in chunks if self.is_complete else ():
                self.is_complete = time.monotonic() <= self.until
                if not self.is_complete:
                    break
                if self.best.is_beaten(self.kept, candidates):
                    self.outcomes[NO_BETTER] += candidates.rows.size
                else:
                    # freed once the next are there, or their memory would go back to the system
                    cells = candidates.evaluate(self.best.columns)
                    best = self.best.best_of(candidates, cells)
                    self.kept = self.best.merge(self.kept, best)
                    self.outcomes += outcomes_of(cells, candidates, self.best)
                self.report()
        except KeyboardInterrupt:
            self.is_complete, self.is_interrupted = False, True
        return self


def outcomes_of(
    cells: Mapping[str, Cell], candidates: Candidates, best: Best
) -> Counter[str]:
    """Number of points of each outcome, that of a point's best combination of knobs.

    Args:
        cells: columns of the points, `status` among them.
        candidates: the points.
        best: whose limits count.
    """
    status = cells["status"]
    assert isinstance(status, Categories)
    texts = [BEST, *(f"miss {limit.text}" for limit in best.where)]
    place = np.zeros(candidates.shape, np.int16)
    for number, limit in reversed(list(enumerate(best.where, 1))):
        values = np.asarray(cells[limit.quantity], np.float64)
        np.copyto(place, number, where=limit.margin(values) < 0)
    for name in best.by:
        np.copyto(place, len(texts), where=np.isnan(np.asarray(cells[name], np.float64)))
        texts.append(f"have no {name}")
    for number, name in enumerate(status.names):
        if name != "ok":
            np.copyto(place, len(texts), where=status.places == number)
            texts.append(ENDS.get(name, name))
    ends = np.min(place.reshape(-1, candidates.rows.size), axis=0)
    counts = np.bincount(ends, minlength=len(texts)).tolist()
    return Counter(
        {text: count for text, count in zip(texts, counts, strict=True) if count}
    )

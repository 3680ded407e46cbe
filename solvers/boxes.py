"""Branch and bound over boxes of whole-number points: an optimum, and the cuts that prove it.

A *case* is a set of points of its own, as a box: every combination of whole numbers between its low
and its high corner. What a point is worth, and what no point of a box can be better than, are
functions that the caller gives; where a measure rises along every axis, one corner bounds the box
(Land and Doig 1960; Lawler and Wood 1966).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearkv.solvers.frontier import frontier

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

AT_ONCE = 1 << 12
"""Boxes that are bounded together."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of points, both corners included.

    Attributes:
        case: that each box is a part of: (boxes,).
        low, high: corners: (boxes, axes).
    """

    case: Integers
    low: Integers
    high: Integers

    def __len__(self) -> int:
        return len(self.case)

    def __getitem__(self, which: Mask | Integers | slice) -> Boxes:
        return Boxes(self.case[which], self.low[which], self.high[which])

    @property
    def sizes(self) -> Numbers:
        """Number of points of each box."""
        sizes: Numbers = np.prod(self.high - self.low + 1.0, axis=1)
        return sizes

    def halves(self) -> Boxes:
        """Both halves of each box, cut across its longest side."""
        rows = np.arange(len(self))
        side = np.argmax(self.high - self.low, axis=1)
        middle = (self.low[rows, side] + self.high[rows, side]) // 2
        low, high = self.low.copy(), self.high.copy()
        high[rows, side] = middle
        low[rows, side] = middle + 1
        return joined([Boxes(self.case, self.low, high), Boxes(self.case, low, self.high)])


def joined(boxes: list[Boxes]) -> Boxes:
    """Several lists of boxes as one."""
    columns = zip(*((each.case, each.low, each.high) for each in boxes), strict=True)
    return Boxes(*map(np.concatenate, columns))


class Searched(Protocol):
    """What is searched: cases, and what is known of their boxes and points."""

    @property
    def boxes(self) -> Boxes:
        """A box a case; cases are numbered from 0 in this order."""

    def groups_of_cases(self) -> Integers:
        """The group of each case; the best of each is sought."""

    def quick(self, boxes: Boxes) -> Numbers:
        """A bound that costs little, asked for as soon as there is a box: (boxes, objectives)."""

    def bound(self, boxes: Boxes) -> Numbers:
        """What no point of each box is below: (boxes, objectives); inf where none is feasible.

        Asked of a box of several points at most once.
        """

    def value(self, case: Integers, point: Integers) -> Numbers:
        """The objectives of points, to be made small: (points, objectives); inf: infeasible."""


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        value, bound: least values so far, and what no value is below, be it of an open box or the
            least so far; of the first objective, by group; inf where there is none.
        open: boxes that are not decided.
        evaluations: points evaluated.
    """

    value: Numbers
    bound: Numbers
    open: int
    evaluations: int

    @property
    def gap(self) -> float:
        """The largest relative distance of a best value from its bound; inf where one has none."""
        open_groups = np.isfinite(self.bound) & (self.bound < self.value)
        if not np.any(open_groups):
            return 0.0
        value, bound = self.value[open_groups], self.bound[open_groups]
        return float(np.max(np.abs(value / bound - 1)))


@dataclass(frozen=True)
class Optimum:
    """The best points of each group, and why there are none better.

    With one objective a group has one best point, or none where no point is feasible; with several
    it has those that no other dominates.

    Attributes:
        group, case, point, value: of the best: (best,), (best,), (best, axes), (best, objectives).
        cuts: boxes that together cover the space but for `open`; none has a better point.
        open: what a search that was stopped did not decide.
        progress: where it stopped.
        is_interrupted: whether Ctrl-C stopped it.
    """

    group: Integers
    case: Integers
    point: Integers
    value: Numbers
    cuts: Boxes
    open: Boxes
    progress: Progress
    is_interrupted: bool = False


def minimise(
    space: Searched,
    *,
    at_once: int = AT_ONCE,
    seconds: float = np.inf,
    report: Callable[[Progress], None] | None = None,
) -> Optimum:
    """Find the best points of each group of cases, boxes of the least bound first.

    A box is cut where its bound is infinite or no better than a point of its group, and where a
    corner attains its bound; any other is halved.

    Args:
        space: what is searched.
        at_once: boxes that are bounded together.
        seconds: after which the search stops, as it does at Ctrl-C.
        report: called after every round.

    Returns:
        The best points with their certificate; with open boxes where it was stopped.

    Example: the smallest 3 x + 2 y of whole numbers from 0 to 9 whose product is at least 12.

    >>> class Products:
    ...     boxes = Boxes(np.array([0]), np.array([[0, 0]]), np.array([[9, 9]]))
    ...
    ...     def groups_of_cases(self):
    ...         return np.array([0])
    ...
    ...     def quick(self, boxes):
    ...         return boxes.low @ np.array([[3.0], [2.0]])
    ...
    ...     def bound(self, boxes):
    ...         reached = np.prod(boxes.high, axis=1) >= 12
    ...         return np.where(reached[:, np.newaxis], self.quick(boxes), np.inf)
    ...
    ...     def value(self, case, point):
    ...         return self.bound(Boxes(case, point, point))
    >>> best = minimise(Products())
    >>> best.point.tolist(), best.value.tolist(), len(best.open)
    ([[3, 4]], [[17.0]], 0)
    """
    search = _Search(space)
    end = time.monotonic() + seconds
    try:
        while len(search.open) and time.monotonic() < end:
            search.round(at_once)
            if report:
                report(search.progress)
    except KeyboardInterrupt:  # a round that was not finished leaves its boxes open
        return replace(search.optimum(), is_interrupted=True)
    return search.optimum()


class _Search:
    """A search under way; attributes as those of `Optimum`."""

    def __init__(self, space: Searched) -> None:
        self.space = space
        self.groups, self.evaluations = space.groups_of_cases(), 0
        self.open, self.open_bounds = space.boxes, space.quick(space.boxes)
        self.cuts, self.best = self.open[:0], self.open_bounds[:0]
        self.case, self.point = self.cuts.case, self.cuts.low

    def round(self, at_once: int) -> None:
        """Bound the open boxes that promise most, and cut or halve each."""
        first = np.argsort(self.open_bounds[:, 0], kind="stable")
        taken, later = first[:at_once], first[at_once:]
        boxes, bounds = self.open[taken], self.open_bounds[taken]
        cuts = [self.cuts]
        for tighten in (self._as_it_is, self._by_corners, self._by_points):
            bounds = np.maximum(bounds, tighten(boxes))
            beaten = self._is_beaten(boxes.case, bounds)
            cuts.append(boxes[beaten])
            boxes, bounds = boxes[~beaten], bounds[~beaten]
        halves = boxes.halves()
        bounds = np.maximum(np.tile(bounds, (2, 1)), self.space.quick(halves))
        self.cuts = joined(cuts)
        self.open = joined([self.open[later], halves])
        self.open_bounds = np.concatenate([self.open_bounds[later], bounds])

    def _as_it_is(self, boxes: Boxes) -> Numbers:
        """No bound but the one that a box was opened with."""
        return np.full((len(boxes), self.best.shape[1]), -np.inf)

    def _by_corners(self, boxes: Boxes) -> Numbers:
        """What no point of each box is below; a box of one point is evaluated as that."""
        bounds, wide = self._as_it_is(boxes), boxes.sizes > 1
        self.evaluations += int(np.sum(wide))
        bounds[wide] = self.space.bound(boxes[wide])
        return bounds

    def _by_points(self, boxes: Boxes) -> Numbers:
        """Try both corners of each box; a box of one point is then known exactly."""
        bounds = self._as_it_is(boxes)
        if not len(boxes):
            return bounds
        wide = boxes[boxes.sizes > 1]
        case = np.concatenate([boxes.case, wide.case])
        point = np.concatenate([boxes.low, wide.high])
        values = self.space.value(case, point)
        self.evaluations += len(case)
        self._keep(case, point, values)
        single = boxes.sizes == 1
        known = np.where(np.isfinite(values), values, np.inf)
        bounds[single] = known[: len(boxes)][single]
        return bounds

    def _is_beaten(self, case: Integers, bounds: Numbers) -> Mask:
        """Where no point can be better than one of its group, or none is feasible."""
        return is_beaten(bounds, self.groups[case], self.best, self.groups[self.case])

    def _keep(self, case: Integers, point: Integers, values: Numbers) -> None:
        """Keep the best points of each group, one of those that are worth the same."""
        feasible = np.all(np.isfinite(values), axis=1)
        feasible[feasible] = ~self._is_beaten(case[feasible], values[feasible])
        case = np.concatenate([self.case, case[feasible]])
        point = np.concatenate([self.point, point[feasible]])
        values = np.concatenate([self.best, values[feasible]])
        kept: list[Integers] = []
        for each in np.unique(self.groups[case]):
            rows = np.flatnonzero(self.groups[case] == each)
            rows = rows[frontier(values[rows])]
            _, first = np.unique(values[rows], axis=0, return_index=True)
            kept.append(rows[first])
        best = np.concatenate([np.zeros(0, np.int64), *kept])
        self.case, self.point, self.best = case[best], point[best], values[best]

    @property
    def progress(self) -> Progress:
        """How far the search is."""
        value = np.full(int(self.groups.max(initial=0)) + 1, np.inf)
        np.minimum.at(value, self.groups[self.case], self.best[:, 0])
        bound = value.copy()
        np.minimum.at(bound, self.groups[self.open.case], self.open_bounds[:, 0])
        return Progress(value, bound, len(self.open), self.evaluations)

    def optimum(self) -> Optimum:
        """What is known now."""
        return Optimum(
            group=self.groups[self.case],
            case=self.case,
            point=self.point,
            value=self.best,
            cuts=self.cuts,
            open=self.open,
            progress=self.progress,
        )


def is_beaten(bounds: Numbers, group: Integers, best: Numbers, holder: Integers) -> Mask:
    """Where a bound is infinite, or a best point of the same group is as good in all objectives.

    Args:
        bounds, group: of boxes: (boxes, objectives), (boxes,).
        best, holder: values of the best points and their groups: (best, objectives), (best,).
    """
    beaten: Mask = np.any(bounds == np.inf, axis=1)
    for each in np.unique(holder):
        rows = np.flatnonzero(group == each)
        good = best[holder == each, np.newaxis] <= bounds[rows]
        beaten[rows] |= np.any(np.all(good, axis=2), axis=0)
    return beaten


def covers(space: Boxes, cuts: Boxes) -> Mask:
    """Whether cuts are disjoint boxes that fill each case of a space; looks at nothing else.

    Args:
        space: a box a case.
        cuts: in any order.

    Returns:
        A truth a case of the space, in its order.

    >>> space = Boxes(np.array([0]), np.array([[1]]), np.array([[9]]))
    >>> halves = space.halves()
    >>> covers(space, halves).tolist(), covers(space, halves[:1]).tolist()
    ([True], [False])
    """
    known = np.isin(cuts.case, space.case)
    place = np.searchsorted(space.case, np.where(known, cuts.case, 0))
    inside = np.all(
        (space.low[place] <= cuts.low) & (cuts.high <= space.high[place]), axis=1
    )
    sound = known & inside & np.all(cuts.low <= cuts.high, axis=1)
    filled = np.zeros(len(space))
    np.add.at(filled, place, np.where(sound, cuts.sizes, np.inf))
    covered: Mask = filled == space.sizes
    covered[np.searchsorted(space.case, overlapping(cuts[sound]))] = False
    return covered


def overlapping(boxes: Boxes) -> Integers:
    """Cases in which two boxes have a point in common."""
    order = np.lexsort((boxes.low[:, 0], boxes.case))
    boxes = boxes[order]
    cases: list[Integers] = [np.zeros(0, np.int64)]
    for distance in range(1, len(boxes)):
        one, other = boxes[:-distance], boxes[distance:]
        near = (one.case == other.case) & (other.low[:, 0] <= one.high[:, 0])
        if not np.any(near):
            break
        one, other = one[near], other[near]
        common = np.all((one.low <= other.high) & (other.low <= one.high), axis=1)
        cases.append(one.case[common])
    return np.unique(np.concatenate(cases))

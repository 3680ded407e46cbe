"""Which design points need no visit: boxes of a grid whose bounds show that none is in the answer.

Branch and bound. A box begins as a whole block, one for each name along its axes of names. The
boxes with the best bounds are halved, along the axis whose halves have bounds that rise most, down
to a few points, which are visited. Whatever an incumbent beats is dropped, with all its points: it
is proved away.

What a study has to lose is bounded: bounds cost no more than a share of what a visit of all points
does, and half of what they save. Blocks for which that is not enough are given up, and visited
whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.bounds import Bounds, Boxes, is_monotone
from nearkv.sweeps.explore.halving import cuts_of, gain_of, parts_of
from nearkv.sweeps.explore.ideals import Contest, Ideals, Incumbents
from nearkv.sweeps.study.grid import Grid
from nearkv.sweeps.study.study import Block

ENOUGH = 1 << 24
"""Design points from which bounds pay [1]."""
_GOOD = 7 / 8
"""Share of the points of a block proved away with which the rest is visited box by box [1]."""
_ALLOWED = 0.03
"""Share of the time of visiting all points that bounds may cost for nothing [1]."""
_CALL, _BOX, _POINT = 1 << 17, 16, 4
"""What an evaluation of bounds, one of its boxes and a point visited alone cost: as many points of
a visit of all take as long, one HILOS step on one machine [1]."""
_LEAF = 64
"""Design points of a box that are visited [1]."""
_AT_ONCE = 1 << 8
"""Boxes that are halved together [1]."""
_MOST_AT_ONCE = 1 << 10
"""The same where very many wait: sorting them takes longer than halving a few too many [1]."""
_MOST_VISITED = 1 << 16
"""Design points visited together [1]."""
_MOST_ROOTS = 1 << 14
"""Boxes that a block may begin with [1]."""
_MOST_BOXES = 1 << 18
"""Boxes of a block that wait [1]."""

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


class _Waiting:
    """Boxes of a block that are neither proved away nor visited.

    Args:
        index: of the block.
        block: the design points.
        first_row: number of the first of them.
        contest: what rows are compared by.
    """

    def __init__(self, index: int, block: Block, first_row: int, contest: Contest) -> None:
        self.index = index
        self.first_row = first_row
        self.grid = block.grid
        self._contest = contest
        self._bounds = Bounds(block, contest.columns)
        self.evaluated = self.calls = self.visited = 0
        self.boxes = _roots(block, contest.per)
        self.ideals = self._ideals(self.boxes)
        self.is_bounded = len(self.boxes) > 0 and self._bounds.are_known

    def _ideals(self, boxes: Boxes) -> Ideals:
        self.evaluated += len(boxes)
        self.calls += 1
        rows = self.first_row + rows_of(self.grid, boxes.first)
        bounds = self._bounds.of(boxes)
        return self._contest.ideals(bounds, rows)

    def drop(self, incumbents: Incumbents) -> None:
        """Leave out what cannot be among the best."""
        hopeless = incumbents.beat(self.ideals)
        hopeless = hopeless | self.ideals.are_blank
        if np.any(hopeless):
            self.keep(~hopeless)

    def keep(self, chosen: NDArray[np.generic]) -> None:
        """Leave out all other boxes."""
        self.boxes = self.boxes.take(chosen)
        self.ideals = self.ideals.take(chosen)

    @property
    def waiting(self) -> int:
        """Design points in all boxes."""
        return self.boxes.points

    @property
    def proved(self) -> int:
        """Design points proved away."""
        return self.grid.size - self.waiting - self.visited

    @property
    def spent(self) -> int:
        """What bounds and visits cost, as points of a visit of all."""
        spent = self.calls * _CALL
        spent += self.evaluated * _BOX
        return spent + self.visited * _POINT

    @property
    def best(self) -> float:
        """The best bound."""
        costs = self.ideals.costs[:, 0]
        return float(np.min(costs, initial=np.inf))

    def pop(self) -> tuple[Boxes, Ideals]:
        """Take out the boxes with the best bounds, of equals those with the first rows."""
        costs = self.ideals.costs[:, 0]
        order = np.lexsort((self.ideals.rows, costs))
        at_once = min(max(_AT_ONCE, len(order) // 4), _MOST_AT_ONCE)
        chosen = order[:at_once]
        boxes = self.boxes.take(chosen)
        ideals = self.ideals.take(chosen)
        self.keep(order[at_once:])
        return boxes, ideals

    def put(self, boxes: Boxes, ideals: Ideals) -> None:
        """Let boxes wait."""
        self.boxes = self.boxes + boxes
        self.ideals = self.ideals + ideals

    def halve(self, boxes: Boxes, ideals: Ideals) -> None:
        """Let the halves of boxes wait, cut where that raises their bounds most."""
        cuts = cuts_of(boxes)
        halves = cuts[0].halves
        for cut in cuts[1:]:
            halves = halves + cut.halves
        tried = self._ideals(halves)
        most = np.full(len(boxes), -1.0)
        chosen = np.zeros((2, len(boxes)), np.int64)
        start = 0
        for cut in cuts:
            own = np.arange(start, start + len(cut.halves))
            start += len(cut.halves)
            parents = cut.parents
            gain = cut.width + gain_of(ideals.take(parents), tried.take(own))
            is_better = gain > most[parents]
            better = parents[is_better]
            most[better] = gain[is_better]
            sides = own.reshape(2, -1)
            chosen[:, better] = sides[:, is_better]
        both = chosen.ravel()
        self.put(halves.take(both), tried.take(both))


def rows_of(grid: Grid, indices: Indices) -> Indices:
    """Numbers of the rows at some places along each axis, counted from the first of the grid."""
    inner = grid.shape[:0:-1]
    strides = np.cumprod([1, *inner], dtype=np.int64)
    rows: Indices = indices @ strides[::-1]
    return rows


def _whole(grid: Grid) -> Boxes:
    extents = np.array([grid.shape], np.int64)
    first = np.zeros_like(extents)
    return Boxes(first, extents - 1)


def _roots(block: Block, per: Sequence[str]) -> Boxes:
    """The boxes that a block begins with: one for each name and each group along its axes.

    None where they are too many.
    """
    boxes = _whole(block.grid)
    pairs = zip(block.grid.axes, block.display_grid.axes, strict=True)
    for place, (axis, shown) in enumerate(pairs):
        is_cut = bool(axis.labels) or shown.name in per
        if is_monotone(axis) and is_monotone(shown) and not is_cut:
            continue
        count = len(boxes)
        extent = len(axis.values)
        if count * extent > _MOST_ROOTS:
            return boxes.take(np.zeros(0, int))
        first = np.repeat(boxes.first, extent, axis=0)
        last = np.repeat(boxes.last, extent, axis=0)
        values = np.tile(np.arange(extent), count)
        first[:, place] = values
        last[:, place] = values
        boxes = Boxes(first, last)
    return boxes


@dataclass(frozen=True)
class Visit:
    """Boxes of a block that are to be visited.

    Attributes:
        index: of the block.
        first_row: number of its first row.
        boxes: which.
    """

    index: int
    first_row: int
    boxes: Boxes

    @property
    def rows(self) -> int:
        """How many."""
        return self.boxes.points


class Search:
    """A search of the best rows.

    Args:
        blocks: all design points.
        contest: what rows are compared by.

    Attributes:
        incumbents: the best rows so far; whoever visits keeps them up to date.
        given_up: blocks, by index, that are to be visited whole.
    """

    def __init__(self, blocks: Sequence[Block], contest: Contest) -> None:
        self.incumbents: Incumbents = _Nobody()
        self.given_up: list[int] = []
        self._searched: list[_Waiting] = []
        self._proved = 0
        first = 0
        for index, block in enumerate(blocks):
            waiting = _Waiting(index, block, first, contest)
            first += block.grid.size
            if waiting.is_bounded:
                self._searched.append(waiting)
            else:
                self.given_up.append(index)

    @property
    def proved(self) -> int:
        """Design points proved away."""
        return sum(waiting.proved for waiting in self._searched)

    def settled(self, visited: int) -> int:
        """Points visited or proved away since the last call, so many of them visited."""
        before, self._proved = self._proved, self.proved
        return visited + self._proved - before

    @property
    def _spare(self) -> float:
        """What bounds may still cost, as points of a visit of all."""
        size = sum(waiting.grid.size for waiting in self._searched)
        spent = sum(waiting.spent for waiting in self._searched)
        return _ALLOWED * size + self.proved / 2 - spent

    def parts(self) -> Iterator[int | Visit]:
        """All that is to be visited: blocks without bounds, what bounds leave, what they fail on.

        Blocks that are to be visited whole come as their index.
        """
        without = list(self.given_up)
        yield from without
        yield from self.visits()
        yield from self.given_up[len(without) :]

    def visits(self) -> Iterator[Visit]:
        """What is to be visited, best bounds first; blocks that are given up are not."""
        while True:
            for waiting in self._searched:
                waiting.drop(self.incumbents)
            left = [waiting for waiting in self._searched if len(waiting.boxes)]
            if not left:
                return
            if self._spare < 0 and self._give_up():
                continue
            best = min(left, key=lambda waiting: waiting.best)
            boxes, ideals = best.pop()
            is_visited = boxes.sizes <= _LEAF
            if self._spare < 0 or len(best.boxes) > _MOST_BOXES:
                is_visited[:] = True
            for part in parts_of(boxes.take(is_visited), _MOST_VISITED):
                best.visited += part.points
                yield Visit(best.index, best.first_row, part)
            is_halved = ~is_visited
            if np.any(is_halved):
                best.halve(boxes.take(is_halved), ideals.take(is_halved))

    def _give_up(self) -> bool:
        """Give up blocks of which little is proved away; whether there were any."""
        good = []
        for waiting in self._searched:
            if waiting.proved < _GOOD * waiting.grid.size:
                self.given_up.append(waiting.index)
            else:
                good.append(waiting)
        are_some = len(good) < len(self._searched)
        self._searched = good
        return are_some


class _Nobody:
    """No incumbents yet."""

    def beat(self, ideals: Ideals) -> Mask:
        """Nothing."""
        return np.zeros(len(ideals.rows), bool)

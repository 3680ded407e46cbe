"""Bounds of the columns of a block over boxes of its grid: the system, evaluated on intervals.

Nothing is declared: the system's own formulas run on `Interval` arrays, all boxes at once, each
axis from the least to the largest of its values in the box. Where Python looks at a condition
that holds in a part of the boxes only, the formulas run with either outcome, and the bounds hold
for both.

A knob that a solver chooses is an interval too: whatever the solver answers lies in the knob's
range. The range is cut into pieces, each has bounds, and those of the box enclose all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.registry import Knob
from nearkv.sweeps.evaluate.cells import Points, Values, cells_at, spread
from nearkv.sweeps.evaluate.intervals import Interval, NoBoundError, Outcomes, interval_of
from nearkv.sweeps.evaluate.notes import Names
from nearkv.sweeps.study.grid import Axis, Grid
from nearkv.sweeps.study.study import Block

_PIECES = 16
"""Intervals into which the range of a solved knob is cut [1]."""
_MOST_OUTCOMES = 16
"""Evaluations with other outcomes of conditions after which bounds are given up [1]."""
_ABOVE = 1e-12
"""How far above its range rounding may put a solved share [1]."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Boxes:
    """Boxes of a grid.

    Attributes:
        first, last: index on each axis, of shape (boxes, axes).
    """

    first: Indices
    last: Indices

    def take(self, chosen: NDArray[Any]) -> Boxes:
        """Some of them, by index or by mask."""
        return Boxes(self.first[chosen], self.last[chosen])

    def __add__(self, other: Boxes) -> Boxes:
        first = np.concatenate([self.first, other.first])
        last = np.concatenate([self.last, other.last])
        return Boxes(first, last)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sizes(self) -> Indices:
        """Design points of each."""
        sizes: Indices = np.prod(self.extents, axis=1)
        return sizes

    @property
    def extents(self) -> Indices:
        """Values along each axis."""
        return self.last - self.first + 1

    @property
    def points(self) -> int:
        """Design points of all."""
        return int(self.sizes.sum())

    def indices(self) -> Indices:
        """Places of all their points along each axis: (points, axes)."""
        sizes = self.sizes
        starts = np.cumsum(sizes) - sizes
        left = np.arange(sizes.sum())
        left -= np.repeat(starts, sizes)
        indices = np.repeat(self.first, sizes, axis=0)
        axes = indices.shape[1]
        for axis in reversed(range(axes)):
            extent = self.extents[:, axis]
            repeated = np.repeat(extent, sizes)
            left, place = np.divmod(left, repeated)
            indices[:, axis] += place
        return indices


def points_at(block: Block, indices: Indices) -> Points:
    """Values of the axes at some points, an ordinary list of them.

    Args:
        block: the design points.
        indices: place of each along each axis: (points, axes).
    """
    meshes = []
    for grid in (block.grid, block.display_grid):
        mesh: dict[str, NDArray[np.float64]] = {}
        for axis, places in zip(grid.axes, indices.T, strict=True):
            values = axis.values[places]
            is_one = np.all(values == values[0])
            mesh[axis.name] = values[:1] if is_one else values
        meshes.append(mesh)
    return Points(*meshes)


def columns_at(
    block: Block, indices: Indices, extra: Collection[str] = ()
) -> dict[str, Values]:
    """All columns of some points, a row each, of a block that formulas alone answer.

    Args:
        block: the design points.
        indices: as in `points_at`.
        extra: as in `cells`.
    """
    computed = cells_at(block, points_at(block, indices), extra=extra)
    return {name: spread(cell, (len(indices),)) for name, cell in computed.items()}


@dataclass(frozen=True)
class Bound:
    """What a column lies between in some boxes.

    Attributes:
        numbers: its values; of text, the places in `names`.
        names: the text of each place; none where the column holds numbers.
    """

    numbers: Interval
    names: tuple[str, ...] = ()

    def hull(self, other: Bound) -> Bound:
        """What encloses both; of texts from different lists nothing is known."""
        one, two = self.numbers, other.numbers
        low = np.minimum(one.low, two.low)
        high = np.maximum(one.high, two.high)
        blank = np.logical_or(one.blank, two.blank)
        blank = np.logical_or(blank, self.names != other.names)
        both = Interval(low, high, blank, one.outcomes)
        return Bound(both, self.names)


class Bounds:
    """Bounds of some columns of a block.

    Args:
        block: the design points.
        wanted: names of the columns.
    """

    def __init__(self, block: Block, wanted: Collection[str]) -> None:
        self._block = block
        self._wanted = wanted
        self._solved: dict[str, Knob] = {}
        self.are_known = block.is_closed_form
        for name, value in block.requested.items():
            if value == "auto":
                knob = block.system.knobs[name]
                self._solved[name] = knob
                self.are_known &= not knob.solver

    def of(self, boxes: Boxes) -> dict[str, Bound] | None:
        """What each column of the block lies between in each box; None where nothing is known."""
        if not (self.are_known and len(boxes)):
            return None
        bounds: dict[str, Bound] = {}
        try:
            with np.errstate(all="ignore"):
                for columns in _with_all_outcomes(
                    lambda outcomes: self._columns(boxes, outcomes)
                ):
                    for name, column in columns.items():
                        known = bounds.get(name, column)
                        bounds[name] = known.hull(column)
        except Exception:  # a true problem comes up again where the points are evaluated
            self.are_known = False
            return None
        return bounds

    def _columns(self, boxes: Boxes, outcomes: Outcomes) -> dict[str, Bound]:
        """Bounds of the columns for some outcomes of conditions."""
        block = self._block
        mesh = _mesh(block.grid, boxes, outcomes)
        shown = _mesh(block.display_grid, boxes, outcomes)
        requested: dict[str, Any] = dict(block.requested)
        axes = len(self._solved)
        for name, knob in self._solved.items():
            requested[name] = _pieces(knob, axes, outcomes)
            axes -= 1
        solved = replace(block, requested=requested)
        columns = cells_at(solved, Points(mesh, shown), self._wanted)
        bounds: dict[str, Bound] = {}
        for name, cell in columns.items():
            names: tuple[str, ...] = ()
            number: Any = cell
            if isinstance(cell, Names):
                number, names = cell.places, cell.names
            numbers = interval_of(number, outcomes)
            whole = _over_pieces(numbers, len(boxes))
            bounds[name] = Bound(whole, names)
        return bounds


def _with_all_outcomes(compute: Callable[[Outcomes], Any]) -> Iterator[Any]:
    """Compute with either outcome of every condition that is not known.

    Raises:
        NoBoundError: there are too many.
    """
    left: list[tuple[bool, ...]] = [()]
    for _ in range(_MOST_OUTCOMES):
        if not left:
            return
        first = left.pop()
        outcomes = Outcomes(first)
        yield compute(outcomes)
        taken = tuple(outcomes.all)
        for place in range(len(first), len(taken)):
            opposite = not taken[place]
            left += [(*taken[:place], opposite)]
    if left:
        raise NoBoundError("too many conditions hold in a part of the boxes only")


def _mesh(grid: Grid, boxes: Boxes, outcomes: Outcomes) -> dict[str, Any]:
    """What the values of each axis lie between; an ordinary array where each box has one."""
    mesh: dict[str, Any] = {}
    for place, axis in enumerate(grid.axes):
        first = axis.values[boxes.first[:, place]]
        last = axis.values[boxes.last[:, place]]
        if np.array_equal(first, last):
            mesh[axis.name] = first
        else:
            low = np.minimum(first, last)
            high = np.maximum(first, last)
            mesh[axis.name] = Interval(low, high, False, outcomes)
    return mesh


def is_monotone(axis: Axis) -> bool:
    """Whether the values between two places lie between the values there."""
    steps = np.diff(axis.values)
    rises = np.all(steps >= 0)
    falls = np.all(steps <= 0)
    return bool(rises or falls)


def _pieces(knob: Knob, axes: int, outcomes: Outcomes) -> Any:
    """The range of a solved knob in pieces, along an axis before so many others."""
    if knob.kind == "share":
        edges = np.linspace(knob.low, knob.high, _PIECES + 1)
        edges[-1] += _ABOVE
        low, high = edges[:-1], edges[1:]
    else:
        values = np.arange(knob.low, knob.high + 1)
        count = min(_PIECES, len(values))
        starts = np.arange(count) * len(values) // count
        ends = np.append(starts[1:], len(values))
        low, high = values[starts], values[ends - 1]
    shape = (-1, *[1] * axes)
    low = low.reshape(shape)
    high = high.reshape(shape)
    if np.array_equal(low, high):
        return low
    return Interval(low, high, False, outcomes)


def _over_pieces(column: Interval, boxes: int) -> Interval:
    """Bounds of a box from those of the pieces of its solved knobs."""
    pieces = column.shape[:-1]
    shape = (*pieces, boxes)
    axes = tuple(range(len(pieces)))
    low = np.broadcast_to(column.low, shape)
    high = np.broadcast_to(column.high, shape)
    blank = np.broadcast_to(column.blank, shape)
    low = low.min(axis=axes)
    high = high.max(axis=axes)
    return Interval(low, high, blank.any(axis=axes), column.outcomes)

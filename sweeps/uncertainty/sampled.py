"""A block evaluated at all draws of its uncertain numbers: one more axis, the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.metrics import COLUMNS, Answer
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Requested, Resolved, resolve_knobs
from nearkv.sweeps.study.grid import Axis, Box, Grid, shape_of
from nearkv.sweeps.study.study import NONE, Block
from nearkv.sweeps.uncertainty.numbers import drawn_numbers

Numbers = NDArray[np.float64]
ELEMENTS_AT_ONCE = 1 << 17
"""Design points times draws evaluated together; bounds the memory whatever is asked."""


@dataclass(frozen=True)
class Sampled:
    """The answers of some design points at every draw.

    Attributes:
        resolved: what the system answered, draws along the last axis.
        answer: the same, as columns read it.
        shape: of the design points and draws.
    """

    resolved: Resolved
    answer: Answer
    shape: tuple[int, ...]

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the design fits in each draw."""
        return np.broadcast_to(self.answer.estimate.fits.ok, self.shape)

    def column(self, name: str) -> Numbers:
        """A column or a knob at every draw; NaN where the design does not fit."""
        values = np.asarray(self._values(name), dtype=float)
        everywhere = np.broadcast_to(values, self.shape)
        return np.where(self.fits, everywhere, np.nan)

    def _values(self, name: str) -> object:
        if name in COLUMNS:
            metric = COLUMNS[name]
            return metric.compute(self.answer)
        if name in self.resolved.knobs:
            return self.resolved.knobs[name]
        also = self.answer.estimate.also
        if name not in also:
            raise InputError(f"--band: {name} has no band; leave out one of them")
        return also[name]


def sampled(block: Block, box: Box, knobs: Mapping[str, Numbers] = NONE) -> Sampled:
    """Evaluate a box of design points at every draw of the block's band.

    Knobs that are solved are solved anew in each draw, unless their values are given.

    Args:
        block: with a band.
        box: the design points.
        knobs: values of knobs in place of those requested; they broadcast to the box.
    """
    assert block.band is not None
    mesh = _with_draws(block.grid.mesh(box))
    numbers = drawn_numbers(block, block.band)
    hw, llm, work, requested = block.at(mesh, numbers)
    stated = _arrays(block.requested)
    values = {**requested, **_with_draws({**stated, **knobs})}
    resolved = resolve_knobs(block.system, hw, llm, work, values)
    answer = Answer(resolved.estimate, hw, block.system.owns)
    shape = (*shape_of(box), block.band.samples)
    return Sampled(resolved, answer, shape)


def _arrays(requested: Mapping[str, Requested]) -> dict[str, Numbers]:
    """Knobs that have a value of their own at each design point."""
    items = requested.items()
    return {
        name: value for name, value in items if isinstance(value, np.ndarray) and value.ndim
    }


def _with_draws(arrays: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Values of design points with one more axis, of the draws."""
    return {name: values[..., np.newaxis] for name, values in arrays.items()}


def tiles(block: Block, box: Box) -> Iterator[tuple[Box, Box]]:
    """Cut a box so that a piece with all its draws is evaluated at once.

    Yields:
        Each piece as a box of the block's grid, and as a box of the given one.
    """
    assert block.band is not None
    axes = []
    for axis, side in zip(block.grid.axes, box, strict=True):
        values = axis.values[side]
        axes.append(Axis(axis.name, values, axis.labels))
    most = max(ELEMENTS_AT_ONCE // block.band.samples, 1)
    grid = Grid(tuple(axes))
    for inner in grid.boxes(most):
        outer = []
        for side, piece in zip(box, inner, strict=True):
            start = side.start + piece.start
            stop = side.start + piece.stop
            outer.append(slice(start, stop))
        yield tuple(outer), inner

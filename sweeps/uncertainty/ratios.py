"""Bands of ratios over the first system, both sides at the same draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.study.bands import RATIO_ERROR
from nearkv.sweeps.study.grid import Box, shape_of
from nearkv.sweeps.study.study import Block
from nearkv.sweeps.uncertainty.bands import error_scores
from nearkv.sweeps.uncertainty.model_error import RATIO, error_power, spreads
from nearkv.sweeps.uncertainty.sampled import Sampled, sampled, tiles

Numbers = NDArray[np.float64]
FASTER = {"speedup": "faster_share", "total_speedup": "total_faster_share"}
"""Ratio -> column of the share of the draws in which it is above 1."""


def ratio_bands(
    blocks: Sequence[Block], ratios: Mapping[str, str], shared: int
) -> dict[str, Numbers]:
    """Bands of ratios over the first row of each design point.

    Numbers that two systems share are drawn once for both, so that what is unknown of both cancels.

    Args:
        blocks: of a study with a band, in the order of the table's rows.
        ratios: name of a ratio -> the column that it compares.
        shared: how many axes of the grids are design points; the others are knobs.

    Returns:
        For each ratio the columns `RATIO_p05` and so on, and the share of the draws in which the
        row is faster; NaN where both never fit together.
    """
    pieces = [_of_block(block, blocks[0], ratios, shared) for block in blocks]
    names = pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def _of_block(
    block: Block, first: Block, ratios: Mapping[str, str], shared: int
) -> dict[str, Numbers]:
    band = block.band
    assert band is not None
    comparison = _Comparison(block, first, shared)
    shape = block.grid.shape
    ends = {ratio: np.empty((3, *shape)) for ratio in ratios}
    above = {ratio: np.empty(shape) for ratio in ratios}
    for outer, inner in tiles(block, block.grid.whole):
        tile = comparison.tile(outer)
        everywhere = (slice(None), *inner)
        for ratio, column in ratios.items():
            values = tile.ratio(column)
            ends[ratio][everywhere] = quantiles(values, band.shares)
            above[ratio][inner] = _share_above(values)
    columns = {}
    for ratio in ratios:
        for suffix, end in zip(band.suffixes, ends[ratio], strict=True):
            columns[f"{ratio}_{suffix}"] = end.ravel()
        if ratio in FASTER:
            columns[FASTER[ratio]] = above[ratio].ravel()
    return columns


def _share_above(values: Numbers) -> Numbers:
    """Share of the draws above 1, of those in which there is a ratio; ties count half [1].

    NaN where the ratio is 1 in all of them: of a row that is compared with itself.
    """
    ties = np.sum(values == 1, axis=-1)
    known = np.sum(~np.isnan(values), axis=-1)
    above = np.sum(values > 1, axis=-1) + ties / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Numbers = above / known
    return np.where(ties == known, np.nan, share)


@dataclass(frozen=True)
class _Comparison:
    """A block beside the first one.

    Attributes:
        block, first: what is compared with what.
        shared: how many axes are design points.
    """

    block: Block
    first: Block
    shared: int

    def tile(self, box: Box) -> _Tile:
        """The answers of both for a box of the block."""
        knobs = len(self.first.grid.axes) - self.shared
        box_of_first = (*box[: self.shared], *([slice(0, 1)] * knobs))
        answers = sampled(self.block, box)
        reference = sampled(self.first, box_of_first)
        return _Tile(answers, reference, self.shared, self._factor(box))

    def _factor(self, box: Box) -> Numbers:
        """Logarithm of the model error of a ratio; none where a row is compared with itself."""
        block = self.block
        assert block.band is not None
        hw, llm, work, requested = block.inputs(box)
        estimate = resolve_knobs(block.system, hw, llm, work, requested).estimate
        shape = shape_of(box)
        size = spreads(block, estimate, shape, RATIO)
        size = np.where(self._is_first(box), 0.0, size)
        score = error_scores(block.band, RATIO_ERROR)
        return size[..., np.newaxis] * score

    def _is_first(self, box: Box) -> NDArray[np.bool_]:
        """Whether each point is the very row that the others are compared with."""
        shape = shape_of(box)
        if self.block is not self.first:
            return np.zeros(shape, bool)
        first: list[NDArray[np.bool_]] = []
        for axis, side in enumerate(box):
            places = np.arange(side.start, side.stop)
            is_knob = axis >= self.shared
            first.append((places == 0) | (not is_knob))
        along = np.ix_(*first) if first else ()
        is_first = np.zeros(shape, bool)
        is_first[along] = True
        return is_first


@dataclass(frozen=True)
class _Tile:
    """Both sides of a ratio at every draw."""

    answers: Sampled
    reference: Sampled
    shared: int
    error: Numbers

    def ratio(self, column: str) -> Numbers:
        """A column over that of the reference, model error included."""
        values = self.answers.column(column)
        over = self.reference.column(column)
        knobs = [1] * (values.ndim - 1 - self.shared)
        over = over.reshape(*over.shape[: self.shared], *knobs, over.shape[-1])
        error = np.exp(error_power(column) * self.error)
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient: Numbers = values / over * error
        return quotient

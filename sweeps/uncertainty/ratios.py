"""Bands of ratios over the first system, both sides at the same draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.sweeps.study.grid import Box, shape_of
from nearkv.sweeps.study.study import Block
from nearkv.sweeps.uncertainty.model_error import RATIO, drawn_error, error_power
from nearkv.sweeps.uncertainty.sampled import ends, reduced, sampled

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
    knobs = len(block.grid.axes) - shared
    first_row = [slice(0, 1)] * (len(first.grid.axes) - shared)

    def of_tile(outer: Box, _: Box) -> dict[str, Numbers]:
        points = outer[:shared]
        answers = sampled(block, outer)
        reference = sampled(first, (*points, *first_row))
        estimate = block.resolved(outer).estimate
        error = drawn_error(block, band, estimate, shape_of(outer), RATIO)
        if block is first and all(side.start == 0 for side in outer[shared:]):
            # the row that all others are compared with has no error beside itself
            compared = (slice(None),) * shared + (0,) * knobs
            error[compared] = 0.0
        columns: dict[str, Numbers] = {}
        for ratio, column in ratios.items():
            values = answers.column(column)
            over = reference.column(column)
            shape = (*over.shape[:shared], *[1] * knobs, band.samples)
            factor = np.exp(error_power(column) * error)
            with np.errstate(divide="ignore", invalid="ignore"):
                samples = values / over.reshape(shape) * factor
            columns |= ends(band, ratio, samples)
            if ratio in FASTER:
                columns[FASTER[ratio]] = _share_above(samples)
        return columns

    columns = reduced(block, block.grid.whole, of_tile)
    return {name: values.ravel() for name, values in columns.items()}


def _share_above(samples: Numbers) -> Numbers:
    """Share of the draws above 1, of those in which there is a ratio; ties count half [1].

    NaN where the ratio is 1 in all of them: of a row that is compared with itself.
    """
    ties = np.sum(samples == 1, axis=-1)
    known = np.sum(~np.isnan(samples), axis=-1)
    above = np.sum(samples > 1, axis=-1) + ties / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Numbers = above / known
    return np.where(ties == known, np.nan, share)

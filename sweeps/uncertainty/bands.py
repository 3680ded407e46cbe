"""Columns of the lower end, the middle and the upper end of every answer."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.sweeps.study.grid import Block, Slices, shape_of
from nearkv.sweeps.uncertainty.model_error import VALUE, drawn_error, error_power
from nearkv.sweeps.uncertainty.sampled import ends, reduced, sampled

FITS = "fits_share"
"""Column of the share of the draws in which a design fits."""


def band_columns(
    block: Block, box: Slices, estimate: Estimate, wanted: Collection[str] = ()
) -> dict[str, Numbers]:
    """The bands of a box of design points.

    Args:
        block, box: the design points; the block has a band.
        estimate: their answer at the stated numbers.
        wanted: names of columns to compute; all where empty.

    Returns:
        `FITS`, and a column for each end and the middle of what has a band and is wanted.
    """
    band = block.band
    assert band is not None
    needed = []
    for column in banded(block, estimate):
        names = {f"{column}_{end}" for end in band.suffixes}
        if not wanted or names & set(wanted):
            needed.append(column)
    if wanted and not needed and not {FITS, "note"} & set(wanted):
        return {}  # drawing is most of the work
    errors = drawn_error(block, band, estimate, shape_of(box), VALUE)

    def of_tile(outer: Slices, inner: Slices) -> dict[str, Numbers]:
        answers = sampled(block, outer)
        factor = np.exp(errors[inner])
        columns: dict[str, Numbers] = {}
        for name in needed:
            samples = answers.column(name) * factor ** error_power(name)
            columns |= ends(band, name, samples)
        return {**columns, FITS: np.mean(answers.fits, axis=-1)}

    return reduced(block, box, of_tile)


def banded(block: Block, estimate: Estimate) -> list[str]:
    """Columns that have a band: all of times, rates and sums, and the knobs that are solved."""
    solved = [name for name, value in block.open_knobs.items() if isinstance(value, str)]
    shares = [name for name in solved if not block.system.knobs[name].choices]
    return [*COLUMNS, *estimate.also, *shares]

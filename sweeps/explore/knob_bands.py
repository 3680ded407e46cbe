"""Loss of a knob that is solved at the stated numbers, where the numbers are others."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.solvers.objective import Timed
from nearkv.sweeps.study.grid import Block, Slices
from nearkv.sweeps.uncertainty.sampled import ends, reduced, sampled


def knob_bands(
    block: Block, box: Slices, knob: str, value: Numbers, timed: Timed
) -> dict[str, Numbers]:
    """Extra time of a request or a step over the knob solved anew for each draw.

    Args:
        block: with a band, the knob solved.
        box: the design points.
        knob: its name.
        value: its best value at the stated numbers, as large as the box; NaN where the design does
            not fit.
        timed: what the knob makes short.

    Returns:
        `regret_p05` and so on, the ends of the loss over the draws, and `regret_mean` [1].
    """
    band = block.band
    assert band is not None
    # a design that does not fit at the stated numbers may fit in some draws
    lowest = block.system.knobs[knob].low
    chosen = np.where(np.isnan(value), lowest, value)

    def of_tile(outer: Slices, inner: Slices) -> dict[str, Numbers]:
        best = sampled(block, outer, timed=timed).seconds(timed)
        seconds = sampled(block, outer, {knob: chosen[inner]}, timed).seconds(timed)
        loss = np.maximum(seconds / best - 1, 0.0)
        columns = ends(band, "regret", loss)
        total = np.nansum(loss, axis=-1)
        known = np.sum(~np.isnan(loss), axis=-1)
        with np.errstate(invalid="ignore"):
            columns["regret_mean"] = total / known
        return columns

    columns = reduced(block, box, of_tile)
    return {name: column.ravel() for name, column in columns.items()}

"""How far a solved knob moves over what is unknown, and what choosing it wrong costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.study.study import Block, Numbers
from nearkv.sweeps.uncertainty.sampled import sampled, tiles

STEP = "step_ms"


def regrets(blocks: Sequence[Block], knob: str, value: Numbers) -> Columns:
    """What the knob's best value at the stated numbers costs where the numbers are others.

    Args:
        blocks: of a study with a band, the knob solved.
        knob: its name.
        value: its best value at the stated numbers, a row per design point.

    Returns:
        `regret_p05` and so on: how much longer a step takes than with the knob solved anew for
        each draw; and `regret_mean`.
    """
    pieces = []
    first = 0
    for block in blocks:
        last = first + block.grid.size
        own = value[first:last]
        chosen = own.reshape(block.grid.shape)
        pieces.append(_of_block(block, knob, chosen))
        first = last
    names = pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def _of_block(block: Block, knob: str, value: Numbers) -> dict[str, Numbers]:
    band = block.band
    assert band is not None
    shape = block.grid.shape
    ends = np.empty((3, *shape))
    mean = np.empty(shape)
    chosen = stated(block, knob, value)
    for outer, inner in tiles(block, block.grid.whole):
        knobs = {knob: chosen[inner]}
        best = sampled(block, outer).column(STEP)
        fixed = sampled(block, outer, knobs).column(STEP)
        ratio = fixed / best
        loss = np.maximum(ratio - 1, 0.0)
        everywhere = (slice(None), *inner)
        ends[everywhere] = quantiles(loss, band.shares)
        mean[inner] = _mean(loss)
    columns = {}
    for suffix, end in zip(band.suffixes, ends, strict=True):
        columns[f"regret_{suffix}"] = end.ravel()
    columns["regret_mean"] = mean.ravel()
    return columns


def _mean(values: Numbers) -> Numbers:
    """Mean over the draws in which both fit; NaN where there is none."""
    known = ~np.isnan(values)
    count = np.sum(known, axis=-1)
    total = np.sum(values, axis=-1, where=known)
    with np.errstate(invalid="ignore"):
        mean: Numbers = total / count
    return mean


def stated(block: Block, knob: str, value: Numbers) -> Numbers:
    """Values of a knob; its lowest one where the design does not fit at the stated numbers."""
    lowest = block.system.knobs[knob].low
    return np.where(np.isnan(value), lowest, value)

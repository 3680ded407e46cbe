"""How far the split of K and V moves over what is unknown, and what choosing it wrong costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.explore.knob_bands import regrets
from nearkv.sweeps.explore.robust import robust_knob
from nearkv.sweeps.study.study import Block, Numbers
from nearkv.sweeps.uncertainty.sampled import sampled, tiles

KNOB = "hot_share"


def beta_bands(block: Block, hot_share: Numbers, robust: float) -> Columns:
    """What becomes of a solved split where the numbers are others.

    Args:
        block: of `hillinfer`, with a band.
        hot_share: the best share in host DRAM at the stated numbers, a row per design point; NaN
            where there is none.
        robust: share of the draws that the split is also made best for; 0 for none.

    Returns:
        Quantiles of the best beta of each draw, `value_p05` and so on; what the split as stated
        loses, as `regrets` says; and the columns of `robust_knob`, of the share in host DRAM.
    """
    solved = replace(block, requested={**block.requested, KNOB: "auto"})
    answer = _betas(solved)
    answer |= regrets([solved], KNOB, hot_share)
    if robust:
        answer |= robust_knob([solved], KNOB, hot_share, robust)
    is_split = ~np.isnan(hot_share)
    for name, column in answer.items():
        if column.dtype.kind == "f":
            answer[name] = np.where(is_split, column, np.nan)
    return answer


def _betas(block: Block) -> Columns:
    """Quantiles of beta, solved anew in each draw."""
    band = block.band
    assert band is not None
    ends = np.empty((3, *block.grid.shape))
    for outer, inner in tiles(block, block.grid.whole):
        share = sampled(block, outer).column(KNOB)
        with np.errstate(divide="ignore"):
            beta = share / (1 - share)
        everywhere = (slice(None), *inner)
        ends[everywhere] = quantiles(beta, band.shares)
    columns: Columns = {}
    for suffix, end in zip(band.suffixes, ends, strict=True):
        columns[f"value_{suffix}"] = end.ravel()
    return columns

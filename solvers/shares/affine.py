"""Whether a system's amounts are affine in a share: what its lines rest on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate

_ROUNDING = 1e-9


def is_affine(start: Estimate, end: Estimate, between: Estimate, share: float) -> bool:
    """Compare every amount and every need of memory at a share with a line through both ends.

    Args:
        start, end: the system's answer at share 0 and at share 1.
        between: its answer at `share`.
        share: where between them [1].
    """
    triples = zip(_amounts(start), _amounts(end), _amounts(between), strict=True)
    return all(_on_line(*amounts, share) for amounts in triples)


def _amounts(estimate: Estimate) -> Iterator[Real]:
    """Amounts of the step's leaves, then bytes needed of each memory."""
    leaves = estimate.step.leaves()
    for _, leaf, times in leaves:
        yield times * leaf.amount
    tiers = estimate.fits.tiers
    for need, _ in tiers.values():
        yield need


def _on_line(start: Real, end: Real, between: Real, share: float) -> bool:
    line = (1 - share) * start + share * end
    miss = np.abs(between - line)
    scale = np.maximum(np.abs(start), np.abs(end))
    close = miss <= _ROUNDING * scale
    return bool(np.all(close))

"""The spread of a model's errors beyond what the ranges of its inputs explain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from nearkv.costmodel.algebra.span import Numbers

FREEDOM = 4.0
"""Degrees of freedom of Student's law of the errors [1].

Published runs hold gross errors (another set-up than was understood); a normal law would let one of
them widen every band.
"""
SPREADS = np.geomspace(0.01, 1.5, 601)
"""Spreads that are tried [1]."""


def scores(rank: Numbers) -> Numbers:
    """Errors of unit spread at each rank, Student's law with `FREEDOM` degrees of freedom [1]."""
    drawn = stdtrit(FREEDOM, rank)
    return np.asarray(drawn, dtype=float)


def spread(errors: Numbers, inputs: Numbers, sources: Sequence[str]) -> float:
    """The most likely spread of a model's own errors.

    An error is the model's own and that of its inputs together, so that what the ranges of the
    inputs explain is not counted twice. Every source counts the same, however many rows it has:
    rows of one source share their set-up.

    Args:
        errors: ln(predicted / measured), a row each [1].
        inputs: standard deviation of ln(predicted) over the ranges of the inputs, a row each [1].
        sources: of the rows.

    Returns:
        The spread with the highest likelihood among `SPREADS` [1].
    """
    scales = np.hypot(inputs[:, np.newaxis], SPREADS)
    likelihoods = _log_density(errors[:, np.newaxis] / scales) - np.log(scales)
    total = np.zeros(len(SPREADS))
    names = np.array(sources)
    for source in sorted(set(sources)):
        total += likelihoods[names == source].mean(axis=0)
    return float(SPREADS[np.argmax(total)])


def _log_density(score: Numbers) -> Numbers:
    """Logarithm of Student's density, but for a constant."""
    half = (FREEDOM + 1) / 2
    density: Numbers = -half * np.log1p(score**2 / FREEDOM)
    return density

"""Fit factors inside their ranges to measurements, and say what the measurements can and cannot tell.

Every factor is a share of its range, 0 at the low end and 1 at the high end. Residuals are logarithms
of predicted over measured, so an error counts the same on a short and on a long time. Beyond `LINEAR_FROM`
they count by their size instead of its square (soft L1): a row that no factor explains, because the model
lacks its cause, would otherwise drag all factors with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Residuals = Callable[[Numbers], Numbers]
"""Points (k, factors) -> residuals (k, rows) [1]."""

MOST_FACTORS = 6
CONFIDENCE = 0.95
"""Chance that the intervals hold all factors at once."""
ALIKE = 0.95
"""Correlation from which two factors are told apart badly."""
LINEAR_FROM = 0.1
"""Residual from which on rows count by its size; within, a prediction matches [1]."""
STARTS = 64
"""Random points beside the stated values; the best one starts the fit."""
_NUDGE = 1e-4
_SINGULAR = 1e-6
_DAMPING = 1e-4


@dataclass(frozen=True)
class Fit:
    """The best factors and what is known of them.

    Attributes:
        at: factors, as shares of their ranges [1].
        half: half width of the interval of each, all of which hold at once with `CONFIDENCE` [1].
        before, after: residuals at the start and at the fit [1].
        slope: of the residuals at the fit (rows, factors) [1].
        correlation: of the errors of the factors [1].
        unknown: directions, unit vectors over the factors, along which the ranges say as much as the data [1].
    """

    at: Numbers
    half: Numbers
    before: Numbers
    after: Numbers
    slope: Numbers
    correlation: Numbers
    unknown: list[Numbers]


def fit(residuals: Residuals, start: Numbers) -> Fit:
    """Minimise the soft L1 norm of the residuals over the ranges.

    Args:
        residuals: of any points.
        start: the stated values, as shares of their ranges [1].

    Returns:
        The fit with intervals from the weighted Jacobian (Bonferroni over the factors). There must be
        more rows than factors.
    """
    from scipy.optimize import least_squares

    def at_point(at: Numbers) -> Numbers:
        return np.ravel(residuals(at[np.newaxis]))

    def slopes(at: Numbers) -> Numbers:
        return jacobian(residuals, at)

    begin = _best_start(residuals, start)
    found = least_squares(
        at_point, begin, jac=slopes, bounds=(0.0, 1.0), loss="soft_l1", f_scale=LINEAR_FROM
    )
    at = np.clip(found.x, 0.0, 1.0)
    slope = jacobian(residuals, at)
    before, after = residuals(np.stack([start, at]))
    weight = _weight(after)
    half, correlation, unknown = _intervals(weight[:, np.newaxis] * slope, weight * after)
    return Fit(at, half, before, after, slope, correlation, unknown)


def jacobian(residuals: Residuals, at: Numbers) -> Numbers:
    """Slopes of the residuals (rows, factors), central inside the ranges, all in one evaluation [1]."""
    step = _NUDGE * np.eye(len(at))
    more, less = np.clip(at + step, 0.0, 1.0), np.clip(at - step, 0.0, 1.0)
    found = residuals(np.concatenate([more, less]))
    rise = found[: len(at)] - found[len(at) :]
    return (rise / np.diag(more - less)[:, np.newaxis]).T


def _best_start(residuals: Residuals, start: Numbers) -> Numbers:
    """A factor that nothing hangs on at the start may matter elsewhere in its range."""
    points = np.concatenate(
        [start[np.newaxis], np.random.default_rng(0).random((STARTS, len(start)))]
    )
    best: Numbers = points[
        np.argmin(np.sum(np.sqrt(1 + (residuals(points) / LINEAR_FROM) ** 2), axis=1))
    ]
    return best


def _weight(residual: Numbers) -> Numbers:
    """Root of the weight a residual has in the least squares that soft L1 amounts to at the fit [1]."""
    weight: Numbers = (1 + (residual / LINEAR_FROM) ** 2) ** -0.25
    return weight


def _intervals(slope: Numbers, after: Numbers) -> tuple[Numbers, Numbers, list[Numbers]]:
    """Half widths, correlations and unknown directions, from the singular values of the Jacobian.

    Rows that no factor moves say nothing of the noise.
    """
    from scipy.special import stdtrit

    moved, count = np.any(np.abs(slope) > _SINGULAR, axis=1), slope.shape[1]
    free = max(np.sum(moved) - count, 0)
    noise = np.sqrt(np.sum(after[moved] ** 2) / max(free, 1))
    wide = stdtrit(max(free, 1), 1 - (1 - CONFIDENCE) / (2 * count)) * noise
    _, size, directions = np.linalg.svd(slope, full_matrices=False)
    flat = size <= _SINGULAR * max(size[0], _SINGULAR)
    inverse = 1 / np.where(flat, 1.0, size)
    # along a flat direction nothing is known: the interval is the whole range
    covariance = (directions.T * np.where(flat, 0.0, inverse**2)) @ directions
    touched = np.any(np.abs(directions[flat]) > _SINGULAR, axis=0) | (free == 0)
    half = np.where(touched, 1.0, np.minimum(wide * np.sqrt(np.diag(covariance)), 1.0))
    chord = 1 / np.max(np.abs(directions), axis=1)
    lost = flat | (free == 0) | (2 * wide * inverse >= chord)
    error = np.sqrt(np.diag(covariance))
    known = np.outer(error, error)
    correlation = np.divide(covariance, known, out=np.eye(count), where=known > 0)
    return (
        half,
        correlation,
        [direction for direction, gone in zip(directions, lost, strict=True) if gone],
    )


def left_out(residuals: Residuals, found: Fit) -> Numbers:
    """Residual of each row at factors fitted without it [1].

    The fit without a row starts where all rows put it and takes one Gauss-Newton step inside the ranges,
    damped so that it goes nowhere along what the rows do not tell.
    """
    from scipy.optimize import lsq_linear

    weight = _weight(found.after)
    at, slope, after, count = (
        found.at,
        weight[:, np.newaxis] * found.slope,
        weight * found.after,
        len(found.at),
    )
    damping = _DAMPING * np.linalg.norm(slope, 2) * np.eye(count)
    points = []
    for row in range(len(after)):
        others = np.concatenate([np.delete(slope, row, axis=0), damping])
        wanted = np.concatenate([-np.delete(after, row), np.zeros(count)])
        step = lsq_linear(others, wanted, (-at - _SINGULAR, 1 - at + _SINGULAR)).x
        points.append(np.clip(at + step, 0.0, 1.0))
    return np.diag(residuals(np.stack(points))).copy()

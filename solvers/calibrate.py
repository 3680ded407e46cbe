"""Fit factors inside their ranges to measurements, and say what those can and cannot tell.

Every factor is a share of its range, 0 at the low end and 1 at the high end. Residuals are
logarithms of predicted over measured, so an error counts the same on a short and on a long time.
Beyond `LINEAR_FROM` they count by their size instead of its square (soft L1): a row that no factor
explains, because the model lacks its cause, would otherwise drag all factors with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nearkv.costmodel.algebra.span import Numbers

Residuals = Callable[[Numbers], Numbers]
"""Points (k, factors) -> residuals (k, rows) [1]."""

MOST_FACTORS = 6
CONFIDENCE = 0.95
"""Chance that the intervals hold all factors at once."""
ALIKE = 0.95
"""Correlation from which two factors can hardly be separated."""
LINEAR_FROM = 0.1
"""Residual from which on rows count by its size; within, a prediction matches [1]."""
STARTS = 64
"""Random points beside the stated values; the best one starts the fit."""
_NUDGE = 1e-4
_SINGULAR = 1e-6
_DAMPING = 1e-4


@dataclass(frozen=True)
class FactorFit:
    """The best factors and what is known of them.

    Attributes:
        factors: their values, as shares of their ranges [1].
        half: half width of the interval of each, all of which hold at once with `CONFIDENCE` [1].
        before, after: residuals at the start and at the fit [1].
        slope: of the residuals at the fit (rows, factors) [1].
        correlation: of the errors of the factors [1].
        unknown: directions, unit vectors over the factors, along which the ranges say as much as
            the measurements [1].
    """

    factors: Numbers
    half: Numbers
    before: Numbers
    after: Numbers
    slope: Numbers
    correlation: Numbers
    unknown: list[Numbers]


def fit(residuals: Residuals, start: Numbers) -> FactorFit:
    """Minimise the soft L1 norm of the residuals over the ranges.

    Args:
        residuals: of any points.
        start: the stated values, as shares of their ranges [1].

    Returns:
        The fit with intervals from the weighted Jacobian (Bonferroni over the factors). There must
        be more rows than factors.
    """
    from scipy.optimize import least_squares

    @lru_cache(maxsize=1)
    def tangent_at(point: bytes) -> Linearization:
        return tangent(residuals, np.frombuffer(point))

    def residuals_at(point: Numbers) -> Numbers:
        return tangent_at(point.tobytes()).residuals

    def slope_at(point: Numbers) -> Numbers:
        return tangent_at(point.tobytes()).slope

    # a factor that changes nothing at the start may matter elsewhere in its range
    random = np.random.default_rng(0).random((STARTS, len(start)))
    points = np.concatenate([start[np.newaxis], random])
    loss = np.sqrt(1 + (residuals(points) / LINEAR_FROM) ** 2)
    best_start = points[np.argmin(np.sum(loss, axis=1))]
    solution = least_squares(
        residuals_at,
        best_start,
        jac=slope_at,
        bounds=(0.0, 1.0),
        loss="soft_l1",
        f_scale=LINEAR_FROM,
    )
    factors = np.clip(solution.x, 0.0, 1.0)
    fitted = tangent_at(factors.tobytes())
    slope, after = fitted.slope, fitted.residuals
    before = np.ravel(residuals(start[np.newaxis]))
    weight = _weight(after)
    half, correlation, unknown = _intervals(weight[:, np.newaxis] * slope, weight * after)
    return FactorFit(factors, half, before, after, slope, correlation, unknown)


class Linearization(NamedTuple):
    """Residuals at a point, and how they change around it.

    Attributes:
        residuals: of each row [1].
        slope: of the residuals (rows, factors), central [1].
    """

    residuals: Numbers
    slope: Numbers


def tangent(residuals: Residuals, point: Numbers) -> Linearization:
    """Residuals at a point and their slopes, all in one evaluation [1]."""
    step = _NUDGE * np.eye(len(point))
    more = np.minimum(point + step, 1.0)
    less = np.maximum(point - step, 0.0)
    rows = residuals(np.concatenate([point[np.newaxis], more, less]))
    rise = rows[1 : len(point) + 1] - rows[len(point) + 1 :]
    width = np.diag(more - less)
    return Linearization(rows[0], (rise / width[:, np.newaxis]).T)


def _weight(residual: Numbers) -> Numbers:
    """Root of a residual's weight in the least squares equal to soft L1 at the fit [1]."""
    return (1 + (residual / LINEAR_FROM) ** 2) ** -0.25


def _intervals(slope: Numbers, after: Numbers) -> tuple[Numbers, Numbers, list[Numbers]]:
    """Factors that the singular values of the Jacobian determine.

    Rows that no factor moves say nothing of the noise.

    Returns:
        Half widths, correlations and unknown directions, as in `FactorFit`.
    """
    from scipy.special import stdtrit

    moved = np.any(np.abs(slope) > _SINGULAR, axis=1)
    count = slope.shape[1]
    free = max(np.sum(moved) - count, 0)
    noise = np.sqrt(np.sum(after[moved] ** 2) / max(free, 1))
    # Student's t for intervals that hold for all factors at once (Bonferroni)
    tail = (1 - CONFIDENCE) / (2 * count)
    wide = float(stdtrit(max(free, 1), 1 - tail)) * noise
    _, size, directions = np.linalg.svd(slope, full_matrices=False)
    flat = size <= _SINGULAR * max(size[0], _SINGULAR)
    inverse = 1 / np.where(flat, 1.0, size)
    # along a flat direction nothing is known: the interval is the range
    variance = np.where(flat, 0.0, inverse**2)
    covariance = (directions.T * variance) @ directions
    error = np.sqrt(np.diag(covariance))
    in_flat = np.abs(directions[flat]) > _SINGULAR
    touched = np.any(in_flat, axis=0) | (free == 0)
    half = np.where(touched, 1.0, np.minimum(wide * error, 1.0))
    chord = 1 / np.max(np.abs(directions), axis=1)
    lost = flat | (free == 0) | (2 * wide * inverse >= chord)
    unknown = list(directions[lost])
    # of a factor without an error, the correlation is that of the identity
    scale = np.outer(error, error)
    correlation = np.divide(covariance, scale, out=np.eye(count), where=scale > 0)
    return half, correlation, unknown


def left_out(residuals: Residuals, fitted: FactorFit) -> Numbers:
    """Residual of each row at factors fitted without it [1].

    The fit without a row starts at the fit to all rows and takes one Gauss-Newton step inside the
    ranges, damped so that it goes nowhere along directions that the rows do not determine.
    """
    from scipy.optimize import lsq_linear

    weight = _weight(fitted.after)
    slope = weight[:, np.newaxis] * fitted.slope
    after = weight * fitted.after
    count = len(fitted.factors)
    damping = _DAMPING * np.linalg.norm(slope, 2) * np.eye(count)
    lowest = -fitted.factors - _SINGULAR
    highest = 1 - fitted.factors + _SINGULAR
    points = []
    for row in range(len(after)):
        other_slopes = np.delete(slope, row, axis=0)
        other_residuals = np.delete(after, row)
        matrix = np.concatenate([other_slopes, damping])
        target = np.concatenate([-other_residuals, np.zeros(count)])
        step = lsq_linear(matrix, target, (lowest, highest)).x
        points.append(np.clip(fitted.factors + step, 0.0, 1.0))
    return np.diag(residuals(np.stack(points))).copy()

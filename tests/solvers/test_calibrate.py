"""Fits by least squares: intervals, rows that pull little, what nothing determines."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.calibrate import Numbers, fit, left_out


def line(points: Numbers) -> Numbers:
    """Residuals of a straight line, two of its four points off."""
    x = np.array([0.0, 0.5, 1.0, 0.25])
    rows: Numbers = (
        points[:, :1] + points[:, 1:] * x - (0.2 + 0.4 * x + np.array([0.0, 1e-4, 0.0, -2e-4]))
    )
    return rows


def test_a_straight_line_is_its_least_squares() -> None:
    calibration = fit(line, np.array([0.5, 0.5]))
    x = np.array([0.0, 0.5, 1.0, 0.25])
    design = np.stack([np.ones(4), x], axis=1)
    observed = 0.2 + 0.4 * x + np.array([0.0, 1e-4, 0.0, -2e-4])
    expected, squares, *_ = np.linalg.lstsq(design, observed, rcond=None)
    assert calibration.at == pytest.approx(expected, abs=1e-6)
    # 95 % for both: Student's t of 2 degrees of freedom at 1 - 0.05 / 4 is 6.205
    half = 6.205 * np.sqrt(squares[0] / 2 * np.diag(np.linalg.inv(design.T @ design)))
    assert calibration.half == pytest.approx(half, rel=1e-3)
    # leave one out of a linear fit: residual / (1 - leverage)
    leverage = np.diag(design @ np.linalg.inv(design.T @ design) @ design.T)
    assert left_out(line, calibration) == pytest.approx(
        calibration.after / (1 - leverage), rel=1e-3
    )


def test_a_row_no_factor_explains_pulls_little() -> None:
    def mean(points: Numbers) -> Numbers:
        rows: Numbers = points - np.array([0.29, 0.3, 0.3, 0.31, 1.0])
        return rows

    calibration = fit(mean, np.array([0.5]))
    # at the minimum the pulls r / sqrt(1 + (r / 0.1)^2) of all rows are even; least squares: 0.44
    pulls = calibration.after / np.sqrt(1 + (calibration.after / 0.1) ** 2)
    assert np.sum(pulls) == pytest.approx(0, abs=1e-6)
    assert 0.3 < calibration.at[0] < 0.33


def test_a_factor_that_nothing_depends_on_is_not_determined() -> None:
    def idle(points: Numbers) -> Numbers:
        rows: Numbers = points[:, :1] - np.array([0.3, 0.31, 0.29])
        return rows

    flat = fit(idle, np.array([0.5, 0.5]))
    assert flat.half[1] == 1
    # t of 1 degree of freedom at 1 - 0.05 / 4, and the standard error of a mean of three
    assert flat.half[0] == pytest.approx(25.452 * np.sqrt(2e-4 / 3), rel=1e-3)
    assert np.abs(flat.unknown[0]) == pytest.approx([0, 1], abs=1e-6)

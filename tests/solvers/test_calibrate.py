"""Fits by least squares: intervals, rows that pull little, what nothing determines."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Numbers
from nearkv.solvers.calibrate import fit, left_out, tangent


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
    assert calibration.factors == pytest.approx(expected, abs=1e-6)
    # 95 % for both: Student's t of 2 degrees of freedom at 1 - 0.05 / 4 is 6.205
    half = 6.205 * np.sqrt(squares[0] / 2 * np.diag(np.linalg.inv(design.T @ design)))
    assert calibration.half == pytest.approx(half, rel=1e-3)
    # leave one out of a linear fit: residual / (1 - leverage)
    leverage = np.diag(design @ np.linalg.inv(design.T @ design) @ design.T)
    assert left_out(line, calibration) == pytest.approx(
        calibration.after / (1 - leverage), rel=1e-3
    )


def test_a_fit_without_a_row_stays_in_the_range_and_the_other_factors_make_up() -> None:
    """Rows a, a + b and a - b. Without the first, a = 0.997 and b = 0.499; without one of the
    others a would be 1.003: it stays 1, and b meets the row that is left, at 0.502 or 0.496."""
    observed = np.array([1.003, 1.496, 0.498])

    def rows(points: Numbers) -> Numbers:
        first, second = points[:, 0], points[:, 1]
        residuals: Numbers = np.stack([first, first + second, first - second], axis=1) - observed
        return residuals

    fitted = fit(rows, np.array([0.5, 0.5]))
    assert left_out(rows, fitted) == pytest.approx([-0.006, 0.006, 0.006], rel=0.02)


def test_a_row_no_factor_explains_pulls_little() -> None:
    def mean(points: Numbers) -> Numbers:
        rows: Numbers = points - np.array([0.29, 0.3, 0.3, 0.31, 1.0])
        return rows

    calibration = fit(mean, np.array([0.5]))
    # at the minimum the pulls r / sqrt(1 + (r / 0.1)^2) of all rows are even; least squares: 0.44
    pulls = calibration.after / np.sqrt(1 + (calibration.after / 0.1) ** 2)
    assert np.sum(pulls) == pytest.approx(0, abs=1e-6)
    assert 0.3 < calibration.factors[0] < 0.33


def test_a_factor_that_nothing_depends_on_is_not_determined() -> None:
    def idle(points: Numbers) -> Numbers:
        rows: Numbers = points[:, :1] - np.array([0.3, 0.31, 0.29])
        return rows

    flat = fit(idle, np.array([0.5, 0.5]))
    assert flat.half[1] == 1
    # t of 1 degree of freedom at 1 - 0.05 / 4, and the standard error of a mean of three
    assert flat.half[0] == pytest.approx(25.452 * np.sqrt(2e-4 / 3), rel=1e-3)
    assert np.abs(flat.unknown[0]) == pytest.approx([0, 1], abs=1e-6)


def test_slopes_of_a_parabola_are_exact_inside_and_one_sided_at_an_end() -> None:
    """x^2 + 3 y at (0.5, 0) and (1, 1): between 1 - h and 1 the slope is 2 - h."""

    def rows(points: Numbers) -> Numbers:
        first, second = points[:, 0], points[:, 1]
        return np.stack([first**2 + 3 * second, second**2], axis=1)

    inside = tangent(rows, np.array([0.5, 0.0])).slope
    assert inside == pytest.approx(np.array([[1.0, 3.0], [0.0, 1e-4]]), abs=1e-9)
    at_end = tangent(rows, np.array([1.0, 1.0])).slope
    assert at_end == pytest.approx(np.array([[2 - 1e-4, 3.0], [0.0, 2 - 1e-4]]), abs=1e-9)


def test_correlated_factors_are_as_correlated_as_their_design() -> None:
    """Residuals a, b and a + b: (X'X)^-1 is [[2, -1], [-1, 2]] / 3, a correlation of -1/2."""
    offsets = np.array([0.3, 0.4, 0.7003])

    def rows(points: Numbers) -> Numbers:
        first, second = points[:, 0], points[:, 1]
        residuals: Numbers = np.stack([first, second, first + second], axis=1) - offsets
        return residuals

    fitted = fit(rows, np.array([0.5, 0.5]))
    assert fitted.correlation == pytest.approx(np.array([[1, -0.5], [-0.5, 1]]), abs=1e-3)
    assert fitted.factors == pytest.approx([0.3001, 0.4001], abs=1e-6)
    assert fitted.before == pytest.approx([0.2, 0.1, 0.2997])
    # one residual of 1e-4 each; t of 1 degree of freedom at 1 - 0.05 / 4
    assert fitted.half == pytest.approx(2 * [25.452 * 1e-4 * np.sqrt(3) * np.sqrt(2 / 3)], rel=1e-3)


def test_a_factor_cut_by_its_whole_range_is_unknown() -> None:
    """Rows 0.4 off weigh (1 + 4^2)^(-1/4), so that the slope is 1.219 and the noise 0.197.

    Student's t of 2 degrees of freedom is 4.303: 0.6955 to either side is more than the range.
    """

    def rows(points: Numbers) -> Numbers:
        residuals: Numbers = points[:, :1] - np.array([0.1, 0.9, 0.5])
        return residuals

    fitted = fit(rows, np.array([0.5]))
    assert fitted.half == pytest.approx([0.6955], rel=1e-3)
    assert len(fitted.unknown) == 1
    exact = fit(lambda points: points[:, :1] - np.array([0.5, 0.5, 0.5]), np.array([0.2]))
    assert exact.half == pytest.approx([0.0], abs=1e-6)
    assert not exact.unknown


def test_a_direction_is_unknown_from_the_length_of_its_chord_on() -> None:
    """Rows of a + b 0.2 off weigh (1 + 2^2)^(-1/4) = 0.669, so that the noise is 0.134.

    Along (1, 1) / sqrt(2) the slope is 1.95, and 6.205 x 0.134 / 1.95 to either side are 0.85 in
    all: more than half of the diagonal of the ranges, less than all of it.
    """

    def rows(points: Numbers) -> Numbers:
        both, apart = points.sum(axis=1), points[:, 0] - points[:, 1]
        residuals: Numbers = np.stack([both - 0.8, both - 1, both - 1.2, 10 * apart], axis=1)
        return residuals

    fitted = fit(rows, np.array([0.5, 0.5]))
    assert fitted.half == pytest.approx(2 * [0.305], abs=0.001)
    assert not fitted.unknown


def test_a_start_at_the_solution_beats_all_random_ones() -> None:
    """A needle: the residual is 1 but within 0.01 of the stated value."""

    def needle(points: Numbers) -> Numbers:
        residuals: Numbers = np.minimum(100 * np.abs(points[:, :1] - 0.123), 1.0) * np.ones(3)
        return residuals

    assert fit(needle, np.array([0.123])).factors == pytest.approx([0.123], abs=1e-6)

"""Pieces of the solvers against their definition: searches, laws, intervals, prices."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.cpu_share import least, least_of
from nearkv.costmodel.mechanisms.serving.fluid import bisect
from nearkv.solvers import peak
from nearkv.solvers.calibrate import fit, tangent
from nearkv.solvers.uncertainty.draws import Measured, ranks
from nearkv.solvers.uncertainty.quantiles import interval_score
from nearkv.solvers.uncertainty.sobol import sobol_indices
from nearkv.solvers.uncertainty.spread import scores, spread

Numbers = NDArray[np.float64]
LOWEST = np.array([0.1, 0.37, 0.8])


def test_golden_sections_end_at_the_least_of_a_convex_function() -> None:
    """Three parabolas at once; rounding of their values hides 1e-8 of an argument."""
    where = least(lambda x: (x - LOWEST) ** 2, np.zeros(3), np.ones(3))
    assert where == pytest.approx(LOWEST, abs=1e-7)
    slopes = np.array([1.0, -1.0])
    at_ends = least(lambda x: slopes * x, np.zeros(2), np.ones(2))
    assert at_ends == pytest.approx([0, 1], abs=1e-7)


def test_each_section_costs_one_look() -> None:
    """One of two points inside is kept, so 40 sections look at 42 points."""
    looks: list[Real] = []

    def absolute(x: Real) -> Real:
        looks.append(x)
        distance: Real = np.abs(np.subtract(x, 0.3))
        return distance

    assert least(absolute, 0.0, 1.0) == pytest.approx(0.3, abs=1e-8)
    assert len(looks) == 42


def test_bisection_ends_where_a_condition_does() -> None:
    end = bisect(lambda x: np.less(x, LOWEST), np.zeros(3), np.ones(3))
    assert end == pytest.approx(LOWEST, abs=1e-14)
    assert bisect(lambda x: np.less(x, 2.0), 0.0, 1.0) == 1
    assert bisect(lambda x: np.less(x, 0.5), 0.0, 1.0, halvings=3) == 0.5


def test_of_equal_points_the_first_is_taken() -> None:
    assert least_of(lambda x: np.abs(np.subtract(x, 2.0)), [1.0, 3.0, 5.0]) == 1
    assert least_of(lambda x: np.abs(np.subtract(x, 4.0)), [1.0, 3.0, 5.0]) == 3
    assert least_of(lambda x: np.full(np.shape(x), np.inf), [7.0, 8.0]) == 7


def test_a_range_of_millions_is_searched_where_its_peak_may_be() -> None:
    """A batch v that takes 1 + (v / 200,000)^2 s: the rate is highest at 200,000."""
    top = np.array([2.0**21, 2.0**22])
    best = peak.peak(lambda _, v: v / (1 + (v / 200_000) ** 2), top)
    assert best.rate == pytest.approx([100_000, 100_000], rel=1e-3)
    assert best.value == pytest.approx([200_000, 200_000], rel=0.05)


def test_few_branches_suffice_where_the_rate_is_smooth() -> None:
    calls: list[int] = []

    def rate(_: NDArray[np.intp], value: Numbers) -> Numbers:
        calls.append(len(value))
        return value / (1 + (value / 200_000) ** 2)

    peak.peak(rate, np.array([2.0**21]))
    assert sum(calls) < 4000


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
    assert fitted.at == pytest.approx([0.3001, 0.4001], abs=1e-6)
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


def test_a_start_at_the_solution_beats_all_random_ones() -> None:
    """A needle: the residual is 1 but within 0.01 of the stated value."""

    def needle(points: Numbers) -> Numbers:
        residuals: Numbers = np.minimum(100 * np.abs(points[:, :1] - 0.123), 1.0) * np.ones(3)
        return residuals

    assert fit(needle, np.array([0.123])).at == pytest.approx([0.123], abs=1e-6)


# --- unknown numbers ---------------------------------------------------------------------------


def test_the_interval_score_adds_what_lies_outside_at_its_price() -> None:
    """Width 2; of 80 % intervals a distance outside costs 2 / 0.2 = 10 times itself."""
    low, high = np.full(4, 1.0), np.full(4, 3.0)
    measured = np.array([2.0, 0.5, 4.0, 3.0])
    assert interval_score(low, high, measured, 0.8) == pytest.approx([2, 7, 12, 2])


def test_laws_of_measurements_are_normal_in_the_logarithm() -> None:
    """At rank 0.9 stands the tenth-highest of 100; a rank of 0.975 is 1.96 / 1.2816 as far."""
    law = Measured(0.5, 1.0, 4.0)
    step = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf(0.9)
    assert law.at(np.array([0.975]))[0] == pytest.approx(4**step)
    assert law.at(np.array([0.025]))[0] == pytest.approx(0.5**step)
    assert Measured(0.5, 1.0, 4.0, most=2.0).at(np.array([0.9]))[0] == 2


def test_every_scrambling_draws_two_values_at_least() -> None:
    """Eight scramblings of two: both unknowns, their twins, and each unknown changed alone."""
    sizes: list[int] = []

    def model(rank: Mapping[str, Numbers]) -> Numbers:
        sizes.append(len(rank["x"]))
        return rank["x"] + rank["y"]

    sobol_indices(model, ["x", "y"], 3, 0)
    assert sizes == 8 * [2, 2, 2 * 2]
    sizes.clear()
    sobol_indices(model, ["x", "y"], 64, 0)
    assert sizes == 8 * [8, 8, 2 * 8]


def test_the_error_of_an_index_is_that_of_a_mean_of_eight() -> None:
    """Independent scramblings: the standard error falls with their number's root."""
    indices = sobol_indices(lambda rank: rank["x"] ** 3 + rank["y"], ["x", "y"], 512, 5)
    again = [
        sobol_indices(lambda rank: rank["x"] ** 3 + rank["y"], ["x", "y"], 512, seed)["x"].first
        for seed in range(20)
    ]
    assert indices["x"].first_error == pytest.approx(float(np.std(again)), rel=0.9)
    # variances of x^3 and y are 1/7 - 1/16 and 1/12
    share = (1 / 7 - 1 / 16) / (1 / 7 - 1 / 16 + 1 / 12)
    assert np.mean(again) == pytest.approx(share, abs=0.01)


def test_draws_are_a_power_of_two_cut_to_size() -> None:
    drawn = ranks(("a", "b"), 100, 1)["a"]
    assert len(drawn) == 100
    assert drawn.min() > 0
    assert drawn.max() < 1
    whole = ranks(("a", "b"), 128, 1)["a"]
    assert np.array_equal(whole[:100], drawn)
    assert dict(ranks((), 8, 0)) == {}


def test_the_spread_is_the_scale_of_students_law() -> None:
    """Errors drawn from 0.2 times Student's t of four degrees of freedom, without inputs."""
    ranked = (np.arange(400) + 0.5) / 400
    errors = 0.2 * scores(ranked)
    assert spread(errors, np.zeros(400), ["one"] * 400) == pytest.approx(0.2, rel=0.02)
    # Student's t of 4 at 97.5 % is 2.776
    assert scores(np.array([0.975, 0.5])) == pytest.approx([2.776, 0], abs=1e-3)
    inputs = np.full(400, 0.15)
    beside = spread(errors, inputs, ["one"] * 400)
    assert np.hypot(beside, 0.15) == pytest.approx(0.2, rel=0.02)

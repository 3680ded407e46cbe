"""Searches over one number, and the frontier, against trying everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearkv.hardware.errors import InputError
from nearkv.solvers.frontier import frontier
from nearkv.solvers.peak import peak
from nearkv.solvers.search import crossings, largest


def brute(costs: np.ndarray) -> np.ndarray:
    """Every row against every other, in pieces."""
    known = ~np.isnan(costs).any(axis=1)
    marked: np.ndarray = known.copy()
    for start in range(0, len(costs), 500):
        no_larger, smaller = np.array(True), np.array(False)
        for column in costs.T:
            own = column[start : start + 500, None]
            no_larger, smaller = no_larger & (column <= own), smaller | (column < own)
        marked[start : start + 500] &= ~(no_larger & smaller & known).any(axis=1)
    return marked


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("distinct", [4, 40, 10**6])
@pytest.mark.slow
def test_the_frontier_of_ten_thousand_points_with_ties_and_nan(columns: int, distinct: int) -> None:
    rng = np.random.default_rng(columns * distinct)
    costs = rng.integers(0, distinct, (10_000, columns)).astype(float)
    costs[rng.random(costs.shape) < 0.01] = np.nan
    costs[rng.random(costs.shape) < 0.001] = np.inf
    costs[:50] = costs[50:100]
    assert np.array_equal(frontier(costs), brute(costs))


@pytest.mark.parametrize("columns", [2, 3])
def test_the_frontier_where_nothing_is_dominated(columns: int) -> None:
    costs = np.random.default_rng(1).dirichlet((1,) * columns, 3000)
    assert np.array_equal(frontier(costs), brute(costs))


CORNERS = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, np.inf, np.nan])


@settings(max_examples=300)
@given(st.integers(1, 3).flatmap(lambda columns: arrays(float, (30, columns), elements=CORNERS)))
def test_the_frontier_of_corner_cases(costs: np.ndarray) -> None:
    assert np.array_equal(frontier(costs), brute(costs))


def test_the_frontier_of_nothing_and_of_too_much() -> None:
    assert frontier(np.empty((0, 2))).shape == (0,)
    with pytest.raises(InputError, match="two or three columns"):
        frontier(np.ones((3, 4)))


@pytest.mark.parametrize("columns", [2, 3])
def test_a_million_points_keep_what_brute_force_keeps(columns: int) -> None:
    costs = np.random.default_rng(2).random((1_000_000, columns))
    marked = frontier(costs)
    some = np.append(np.flatnonzero(marked), np.arange(2000))
    assert np.array_equal(brute(costs[some])[: marked.sum()], marked[marked])


def test_the_largest_that_fits() -> None:
    limits = np.array([0, 1, 2, 3, 7, 8, 1000, 12345, np.inf])
    most = largest(lambda point, value: value <= limits[point], len(limits))
    assert np.array_equal(most, limits)


@pytest.mark.parametrize("seed", range(5))
def test_the_peak_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    high = np.array([0.0, 1, 2, 5, 300, 4000])
    seconds = np.cumsum(
        rng.exponential(size=(6, 4000)) * rng.integers(0, 2, (6, 4000)), axis=1
    ) + rng.uniform(0, 50)
    rates = np.arange(1, 4001) / seconds

    best_of = peak(lambda point, value: rates[point, value.astype(int) - 1], high)
    assert np.isnan(best_of.value[0])
    for point in range(1, 6):
        best = rates[point, : int(high[point])].max()
        assert best_of.rate[point] == best
        assert best_of.bound[point] == best
        assert best_of.rate[point] == rates[point, int(best_of.value[point]) - 1]


@pytest.mark.parametrize("whole", [True, False])
def test_crossings_are_where_the_sign_changes(whole: bool) -> None:
    roots = np.array([[10.3, 200.7], [33.0, 999.0]])

    def margin(point: np.ndarray, value: np.ndarray) -> np.ndarray:
        product: np.ndarray = -(value - roots[point, 0]) * (value - roots[point, 1])
        return product

    looks = np.unique(np.round(np.geomspace(1, 1000, 40))) if whole else np.geomspace(1, 1000, 40)
    crossed = crossings(margin, 2, looks, whole)
    assert [(c.point, c.rises) for c in crossed] == [(0, True), (0, False), (1, True), (1, False)]
    for crossing, root in zip(crossed, roots.ravel(), strict=True):
        sides = [
            margin(np.array([crossing.point]), np.array([v]))[0] >= 0
            for v in (crossing.below, crossing.above)
        ]
        if whole:
            assert crossing.above - crossing.below == 1
            assert sides == [not crossing.rises, crossing.rises]
            assert crossing.below <= root <= crossing.above
        else:
            assert crossing.above == pytest.approx(root, rel=1e-9)


def test_a_jump_is_found_where_it_is() -> None:
    (crossing,) = crossings(
        lambda point, value: np.where(value > 7.25, 2.0, -1.0), 1, np.array([1.0, 100.0]), False
    )
    assert crossing.below == pytest.approx(7.25, rel=1e-9)
    assert crossing.above == pytest.approx(7.25, rel=1e-9)
    assert crossing.above > 7.25


@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_plateau_at_zero_is_crossed_at_its_edge(rises: bool, whole: bool) -> None:
    """A target met exactly over a range (16 sequences of 16) begins where the range begins."""
    edge = 17.0 if whole else 17.3

    def margin(point: np.ndarray, value: np.ndarray) -> np.ndarray:
        short = np.minimum(value - edge, 0.0) if rises else np.minimum(edge - value, 0.0)
        return np.where(short < 0, np.floor(short) - 1, 0.0)

    (crossing,) = crossings(margin, 1, np.array([1.0, 100.0, 1000.0]), whole)
    assert crossing.rises == rises
    met, missed = (crossing.above, crossing.below) if rises else (crossing.below, crossing.above)
    assert met == pytest.approx(edge, rel=1e-11)
    assert margin(np.zeros(1), np.array([met]))[0] == 0
    assert margin(np.zeros(1), np.array([missed]))[0] < 0


def test_a_rate_that_time_lets_jump_is_still_the_best_of_all() -> None:
    """A mapping's rule may take less time for a larger batch: then neighbours bound nothing."""
    seconds = np.where(np.arange(1, 301) == 273, 1.0, np.linspace(2.0, 3.0, 300))
    rates = np.arange(1, 301) / seconds
    best_of = peak(lambda _, value: rates[value.astype(int) - 1], np.array([300.0]))
    assert (best_of.value[0], best_of.rate[0], best_of.bound[0]) == (273, 273, 273)


def test_what_is_not_tried_in_full_is_not_proven() -> None:
    """Over a million values only some are tried, and between them time may fall unseen."""
    best_of = peak(lambda _, value: value**1.5, np.array([2.0**20]))
    assert best_of.value[0] == 2.0**20
    assert np.isnan(best_of.bound[0])
    dips = peak(lambda _, value: value / np.where(value == 777_777, 0.1, 1.0), np.array([2.0**20]))
    assert np.isnan(dips.bound[0]) or dips.bound[0] >= 7_777_770


def test_a_rate_without_a_value_is_no_peak() -> None:
    best_of = peak(lambda point, value: np.where(value < 3, np.nan, value), np.array([2.0, 40.0]))
    assert np.isnan(best_of.value[0])
    assert (best_of.value[1], best_of.rate[1]) == (40, 40)

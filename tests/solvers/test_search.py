"""Searches over one number against trying everything."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.solvers.search import Evaluate, crossings, largest, peak


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


def reached(margin: Evaluate) -> Evaluate:
    """1 where a margin is zero or more, else 0; NaN where it is."""

    def state(point: Indices, value: Numbers) -> Numbers:
        found = margin(point, value)
        return np.where(np.isnan(found), np.nan, found >= 0)

    return state


@pytest.mark.parametrize("whole", [True, False])
def test_all_changes_between_two_looks_are_found(whole: bool) -> None:
    """Behind until 20, equal from there, ahead beyond 30: two changes, however few the looks."""
    (falls_even, leads) = crossings(
        lambda _, value: np.sign(np.where(np.abs(value - 25) <= 5, 0.0, value - 25)),
        1,
        np.array([1.0, 100.0]),
        whole,
    )
    assert (falls_even.before, falls_even.after, leads.before, leads.after) == (-1, 0, 0, 1)
    assert falls_even.above == pytest.approx(20)
    assert leads.below == pytest.approx(30)


@pytest.mark.parametrize("whole", [True, False])
def test_crossings_are_where_the_sign_changes(whole: bool) -> None:
    roots = np.array([[10.3, 200.7], [33.0, 999.0]])

    def margin(point: np.ndarray, value: np.ndarray) -> np.ndarray:
        product: np.ndarray = -(value - roots[point, 0]) * (value - roots[point, 1])
        return product

    looks = np.unique(np.round(np.geomspace(1, 1000, 40))) if whole else np.geomspace(1, 1000, 40)
    crossed = crossings(reached(margin), 2, looks, whole)
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


def test_values_that_a_point_lacks_are_passed_over() -> None:
    """Divisors of 64 and of 72, reached from 4 up, and from 5 to 20."""
    numbers, first, last = np.array([64, 72]), np.array([4, 5]), np.array([np.inf, 20])

    def margin(point: np.ndarray, value: np.ndarray) -> np.ndarray:
        inside = (value >= first[point]) & (value <= last[point])
        return np.where(numbers[point] % value, np.nan, np.where(inside, 1.0, -1.0))

    crossed = crossings(reached(margin), 2, np.arange(1.0, 31.0), whole=True)
    assert [(c.point, c.below, c.above, c.rises) for c in crossed] == [
        (0, 2, 4, True),
        (1, 4, 6, True),
        (1, 18, 24, False),
    ]


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

    (crossing,) = crossings(reached(margin), 1, np.array([1.0, 100.0, 1000.0]), whole)
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


def test_a_range_of_millions_is_searched_where_its_peak_may_be() -> None:
    """A batch v that takes 1 + (v / 200,000)^2 s: the rate is highest at 200,000."""
    top = np.array([2.0**21, 2.0**22])
    best = peak(lambda _, v: v / (1 + (v / 200_000) ** 2), top)
    assert best.rate == pytest.approx([100_000, 100_000], rel=1e-3)
    assert best.value == pytest.approx([200_000, 200_000], rel=0.05)


def test_few_branches_suffice_where_the_rate_is_smooth() -> None:
    calls: list[int] = []

    def rate(_: NDArray[np.intp], value: Numbers) -> Numbers:
        calls.append(len(value))
        return value / (1 + (value / 200_000) ** 2)

    peak(rate, np.array([2.0**21]))
    assert sum(calls) < 4000


def test_what_two_ends_put_below_the_best_is_not_tried() -> None:
    """From rate(1) = 1 follows rate(2) <= 2, less than rate(3) = 2.5."""
    tried: list[float] = []

    def rate(_: Indices, value: Numbers) -> Numbers:
        tried.extend(value.tolist())
        return np.interp(value, [1, 2, 3], [1.0, 2.0, 2.5])

    best = peak(rate, np.array([3.0]), most_tried=0)
    assert (tried, best.value[0], best.rate[0]) == ([1, 3], 3, 2.5)


def test_values_are_tried_a_few_at_a_time_where_each_takes_much_memory() -> None:
    sizes = []

    def rate(point: np.ndarray, value: np.ndarray) -> np.ndarray:
        sizes.append(len(value))
        return np.asarray(-((value - 37 - point) ** 2), float)

    best = peak(rate, np.array([100.0, 50.0]), at_once=7)
    assert list(best.value) == [37, 38]
    assert max(sizes) == 7

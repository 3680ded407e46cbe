"""The Pareto frontier against every row compared with every other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from nearkv.solvers.frontier import frontier


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


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
@pytest.mark.parametrize("distinct", [4, 40, 10**6])
@pytest.mark.slow
def test_the_frontier_of_many_points_with_ties_and_nan(columns: int, distinct: int) -> None:
    rng = np.random.default_rng(columns * distinct)
    costs = rng.integers(0, distinct, (3000, columns)).astype(float)
    costs[rng.random(costs.shape) < 0.01] = np.nan
    costs[rng.random(costs.shape) < 0.001] = np.inf
    costs[:50] = costs[50:100]
    assert np.array_equal(frontier(costs), brute(costs))


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_the_frontier_where_nothing_is_dominated(columns: int) -> None:
    costs = np.random.default_rng(1).dirichlet((1,) * columns, 3000)
    assert np.array_equal(frontier(costs), brute(costs))
    assert frontier(costs).all()


CORNERS = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, np.inf, np.nan])


@settings(max_examples=300)
@given(st.integers(1, 4).flatmap(lambda columns: arrays(float, (30, columns), elements=CORNERS)))
def test_the_frontier_of_corner_cases(costs: np.ndarray) -> None:
    assert np.array_equal(frontier(costs), brute(costs))


def test_the_frontier_of_nothing() -> None:
    assert frontier(np.empty((0, 2))).shape == (0,)


@pytest.mark.parametrize("columns", [2, 3])
def test_a_million_points_keep_what_brute_force_keeps(columns: int) -> None:
    costs = np.random.default_rng(2).random((1_000_000, columns))
    marked = frontier(costs)
    some = np.append(np.flatnonzero(marked), np.arange(2000))
    assert np.array_equal(brute(costs[some])[: marked.sum()], marked[marked])

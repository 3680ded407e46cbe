"""Mixes of machines against every mix of a few of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from nearkv.costmodel.algebra.span import Numbers
from nearkv.solvers.mix import cheapest_mix

MOST = 4
"""Machines of one kind that brute force tries."""


def serves(count: Numbers, rate: Numbers, demand: Numbers) -> bool:
    """True if so many machines can share their time so that each class is served."""
    kinds, classes = rate.shape
    time = np.kron(np.eye(kinds), np.ones(classes))
    served = np.hstack([np.diag(-own) for own in rate])
    constraints = np.vstack([time, served])
    most = np.concatenate([count, -demand])
    return bool(linprog(np.zeros(rate.size), constraints, most).success)


@pytest.mark.parametrize("seed", range(12))
def test_no_mix_is_cheaper(seed: int) -> None:
    """Some kinds cannot serve a class, and some mixes take too much power."""
    rng = np.random.default_rng(seed)
    cost, power = rng.integers(1, 9, (2, 3)).astype(float)
    rate = rng.uniform(0.2, 3, (3, 2)) * (rng.random((3, 2)) < 0.8)
    demand = rng.uniform(0.5, 2, 2)
    limit = float(rng.integers(6, 25))
    mixes = map(np.array, product(range(MOST + 1), repeat=3))
    allowed = [mix for mix in mixes if power @ mix <= limit and serves(mix, rate, demand)]
    found = cheapest_mix(cost, rate, demand, [(power, limit)])
    least = min((cost @ mix for mix in allowed), default=np.inf)
    if found is None:
        assert least == np.inf
        return
    assert found.count.max() <= MOST
    assert cost @ found.count == pytest.approx(least)
    assert found.bound == pytest.approx(least)
    assert power @ found.count <= limit
    assert not found.busy[found.count == 0].any()
    assert np.all(found.busy.sum(axis=1) <= found.count + 1e-6)
    assert np.sum(rate * found.busy, axis=0) == pytest.approx(demand)


def test_a_class_that_nothing_serves_has_no_mix() -> None:
    rate = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert cheapest_mix(np.ones(2), rate, np.ones(2)) is None

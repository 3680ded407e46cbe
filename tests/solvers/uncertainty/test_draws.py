"""Draws from the laws of uncertain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Numbers
from nearkv.solvers.uncertainty.draws import Measured, Ranged, ranks
from nearkv.solvers.uncertainty.sobol import sobol_indices


def test_laws_of_measurements_are_normal_in_the_logarithm() -> None:
    """At rank 0.9 stands the tenth-highest of 100; a rank of 0.975 is 1.96 / 1.2816 as far."""
    law = Measured(0.5, 1.0, 4.0)
    step = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf(0.9)
    assert law.quantile(np.array([0.975]))[0] == pytest.approx(4**step)
    assert law.quantile(np.array([0.025]))[0] == pytest.approx(0.5**step)
    assert Measured(0.5, 1.0, 4.0, most=2.0).quantile(np.array([0.9]))[0] == 2


def test_half_of_the_draws_lie_on_either_side_of_the_stated_value() -> None:
    """Evenly from 1 to 2 and from 2 to 10; by factors from 1 to 4 and from 4 to 64."""
    rank = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    assert Ranged(1.0, 2.0, 10.0).quantile(rank) == pytest.approx([1, 1.5, 2, 6, 10])
    assert Ranged(1.0, 4.0, 64.0, is_log=True).quantile(rank) == pytest.approx([1, 2, 4, 16, 64])


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


def test_draws_are_a_power_of_two_cut_to_size() -> None:
    drawn = ranks(("a", "b"), 100, 1)["a"]
    assert len(drawn) == 100
    assert drawn.min() > 0
    assert drawn.max() < 1
    whole = ranks(("a", "b"), 128, 1)["a"]
    assert np.array_equal(whole[:100], drawn)
    assert dict(ranks((), 8, 0)) == {}

"""Quantiles and interval scores by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.uncertainty.quantiles import interval_score, quantiles


def test_a_quantile_beside_an_infinite_one_is_itself() -> None:
    assert quantiles(np.array([1.5, np.inf]), [0.0]) == [1.5]


def test_the_interval_score_adds_what_lies_outside_at_its_price() -> None:
    """Width 2; of 80 % intervals a distance outside costs 2 / 0.2 = 10 times itself."""
    low, high = np.full(4, 1.0), np.full(4, 3.0)
    measured = np.array([2.0, 0.5, 4.0, 3.0])
    assert interval_score(low, high, measured, 0.8) == pytest.approx([2, 7, 12, 2])

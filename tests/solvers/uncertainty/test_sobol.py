"""The error of Sobol's indices."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.uncertainty.sobol import sobol_indices


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

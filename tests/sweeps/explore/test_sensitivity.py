"""Sobol's indices against closed forms, and what they say of a band."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.solvers.uncertainty.sobol import Index, sobol_indices

Numbers = NDArray[np.float64]


def ishigami(rank: Mapping[str, Numbers]) -> Numbers:
    """sin x + 7 sin^2 y + 0.1 z^4 sin x, each uniform from -pi to pi."""
    x, y, z = (np.pi * (2 * rank[name] - 1) for name in "xyz")
    answer: Numbers = np.sin(x) + 7 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x)
    return answer


def agrees(index: Index, first: float, total: float) -> None:
    """Within three standard errors, which are small."""
    assert index.first_error < 0.02
    assert index.total_error < 0.02
    assert index.first == pytest.approx(first, abs=3 * index.first_error + 1e-3)
    assert index.total == pytest.approx(total, abs=3 * index.total_error + 1e-3)


def test_indices_agree_with_ishigami() -> None:
    """Variances (Saltelli, Sensitivity Analysis, 2000): a = 7, b = 0.1, x and z interact.

    V_x = (1 + b pi^4 / 5)^2 / 2, V_y = a^2 / 8, V_xz = b^2 pi^8 (1/18 - 1/50), V_z = 0.
    """
    of_x = (1 + 0.1 * np.pi**4 / 5) ** 2 / 2
    of_y = 7**2 / 8
    together = 0.1**2 * np.pi**8 * (1 / 18 - 1 / 50)
    all_of_it = of_x + of_y + together
    indices = sobol_indices(ishigami, ["x", "y", "z"], 16_384, 0)
    agrees(indices["x"], of_x / all_of_it, (of_x + together) / all_of_it)
    agrees(indices["y"], of_y / all_of_it, of_y / all_of_it)
    agrees(indices["z"], 0, together / all_of_it)


def test_indices_agree_with_a_product_of_two_leaves() -> None:
    """A leaf of 1 to 3 s, run 2 to 4 times: means 2 and 3, variances 1/3 each.

    V = (4 + 1/3)(9 + 1/3) - 36 = 40/9; the leaf explains 9/3, the times 4/3, both 1/9 together.
    """
    indices = sobol_indices(
        lambda rank: (1 + 2 * rank["leaf"]) * (2 + 2 * rank["times"]), ["leaf", "times"], 8192, 1
    )
    agrees(indices["leaf"], 27 / 40, 28 / 40)
    agrees(indices["times"], 12 / 40, 13 / 40)


def test_a_constant_has_no_indices() -> None:
    indices = sobol_indices(lambda rank: np.ones_like(rank["x"]), ["x"], 64, 0)
    assert indices["x"] == Index(0, 0, 0, 0)


@pytest.mark.slow
def test_measuring_the_first_number_narrows_the_band_most() -> None:
    table = nearkv.sensitivity("flexgen-dram", "opt-66b", context="32k", sobol=True)
    assert table["total"].is_monotonic_decreasing
    error = np.hypot(table["first_error"], table["total_error"])
    assert (table["first"] <= table["total"] + 3 * error).all()
    numbers = table[table["number"] != "model error"]
    assert numbers["number"].iloc[0] == "derate.cpu_attention"  # it reads all keys and values
    assert numbers["width_if_known"].iloc[0] == numbers["width_if_known"].min()
    assert numbers["number"].str.contains("csd").sum() == 0  # no SmartSSD is used


def test_indices_are_of_one_point() -> None:
    with pytest.raises(InputError, match="one design point"):
        nearkv.sensitivity("hilos", "opt-66b", context=["8k", "16k"], sobol=True)

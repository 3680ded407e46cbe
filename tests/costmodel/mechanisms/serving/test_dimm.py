"""DIMMs that compute: the fullest rankset, rows, refresh and power against their definition."""

from __future__ import annotations

from statistics import NormalDist

import pytest

from nearkv.costmodel.mechanisms.serving.dimm import (
    awake_share,
    imbalance,
    least_loaded,
    normal_quantile_above,
    rank_unit_area,
    row_efficiency,
    unit_power,
)
from nearkv.hardware.catalog import load_platform


@pytest.mark.parametrize("tail", [0.5, 0.3, 0.1, 0.01, 1e-4, 1e-6])
def test_a_normal_quantile_is_as_good_as_its_source_says(tail: float) -> None:
    """Abramowitz and Stegun 26.2.23 states an error below 4.5e-4."""
    exact = NormalDist().inv_cdf(1 - tail)
    assert normal_quantile_above(tail) == pytest.approx(exact, abs=4.5e-4)


@pytest.mark.parametrize(("requests", "ranksets", "square"), [(32.0, 8.0, 2.0), (50.0, 16.0, 1.5)])
def test_the_fullest_rankset_is_a_normal_quantile_leaning_to_the_right(
    requests: float, ranksets: float, square: float
) -> None:
    """Blom's place of the largest of R, and the first term of Cornish and Fisher."""
    z = NormalDist().inv_cdf(1 - (1 - 0.375) / (ranksets + 0.25))
    leaning = square * (ranksets / requests) ** 0.5 * (z**2 - 1) / 6
    expected = 1 + (z + leaning) * (square * ranksets / requests) ** 0.5
    assert imbalance(requests, ranksets, square) == pytest.approx(expected, abs=2e-3)


def test_a_request_alone_fills_one_rankset_and_one_rankset_is_even() -> None:
    assert imbalance(1e-12, 8.0, 1.0) == 8
    assert imbalance(1.0, 4.0, 1.0) == 4
    assert imbalance(5.0, 1.0, 2.0) == pytest.approx(1, abs=1e-3)
    assert imbalance(1e15, 8.0, 1.0) == pytest.approx(1)


def test_the_least_loaded_rankset_keeps_a_third_of_a_request_a_doubling() -> None:
    assert least_loaded(16.0, 4.0, 1.0) == pytest.approx(1 + 2 * (1 / 3) * 4 / 16)
    # two requests on four ranksets: the longer one is a load of twice the mean and more
    assert least_loaded(2.0, 4.0, 1.0) == 2
    z = NormalDist().inv_cdf(1 - 0.625 / 2.25)
    assert least_loaded(2.0, 4.0, 1.25) == pytest.approx(2 * (1 + 0.5 * z), abs=1e-3)
    assert least_loaded(0.5, 4.0, 1.0) == 4


def test_a_bank_reads_rows_and_turns() -> None:
    """Bursts of 2 x 8 transfers of 8 bytes in 8 cycles; 10 + 12 + 2 x 4 x 3 cycles between rows."""
    timing = {"bus": 8, "burst": 8, "row": 1024, "ccd_l": 8, "rp": 10, "rcd": 12}
    timing |= {"bank_groups": 2, "banks": 4, "rrd_s": 3}
    hw = load_platform("dgx-a100-pim").machine()
    hw = hw.with_values({f"dimm.{name}": float(value) for name, value in timing.items()})
    assert row_efficiency(hw) == pytest.approx(64 / (64 + 46))


def test_power_is_of_all_banks_and_ranks() -> None:
    """Of a DIMM: 2 x 4 / 4 ranks, each with three units and 16 chips of 2 x 4 banks."""
    numbers = {"channels": 2.0, "ranksets": 4.0, "count": 4.0, "chips": 16.0, "bank_groups": 2.0}
    numbers |= {"banks": 4.0, "relayout_power": 1.0, "adder_power": 2.0, "softmax_power": 3.0}
    numbers |= {"bank_power": 0.25, "relayout_area": 1.0, "adder_area": 2.0, "softmax_area": 4.0}
    hw = load_platform("dgx-a100-pim").machine()
    hw = hw.with_values({f"dimm.{name}": value for name, value in numbers.items()})
    assert unit_power(hw) == 2 * (6 + 16 * 2 * 4 * 0.25)
    assert rank_unit_area(hw) == 7


def test_a_refresh_blocks_the_banks_for_its_share() -> None:
    hw = load_platform("dgx-a100-pim").machine()
    hw = hw.with_values({"dimm.refresh": 2e-7, "dimm.refresh_interval": 8e-6})
    assert awake_share(hw) == pytest.approx(0.975)


def test_half_a_request_lies_on_one_rankset() -> None:
    assert imbalance(0.5, 8.0, 1.0) == 8

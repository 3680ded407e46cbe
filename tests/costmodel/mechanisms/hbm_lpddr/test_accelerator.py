"""One side of the accelerator: its cycles, its memory, attention of prompts."""

from __future__ import annotations

import pytest
from support.systems import model

from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import attend_prompt, gemm, side
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform


def test_prompts_attend_causally_on_full_arrays() -> None:
    """b s^2 H d multiply-adds, half of a full square's: 2 FLOPs each, so half of the FLOPs."""
    hw = load_platform("gh-asymmetric").machine()
    chip = side(hw, "hbm", "hbm_chip")
    llm = model("gpt3-175b", hw)
    span = attend_prompt(chip, llm, Workload(2.0, 100.0, 1.0), llm.heads)
    (compute,) = [leaf for _, leaf, _ in span.leaves() if leaf.eq.startswith("b s^2 H d")]
    multiply_adds = 2 * 100**2 * llm.hidden
    assert compute.amount == pytest.approx(multiply_adds / (chip.rows * chip.columns), rel=1e-12)


def test_a_product_of_one_number_takes_a_tile_and_an_empty_one_takes_nothing() -> None:
    hw = load_platform("gh-asymmetric").machine()
    chip = side(hw, "hbm", "hbm_chip")
    llm = model("gpt3-175b", hw)
    (tile,) = [
        leaf.amount
        for _, leaf, _ in gemm(chip, llm, 1.0, chip.rows, 1.0).leaves()
        if leaf.eq.endswith("max(128, m) cycles")
    ]
    assert tile == chip.rows
    assert gemm(chip, llm, 0.0, chip.rows, 1.0).seconds == 0


def test_a_side_adds_up_its_chips() -> None:
    """Both kinds of chip beside one memory: cycles add up, the slowest clock ends a product."""
    hw = load_platform("gh-asymmetric").machine()
    fast, slow = hw.hbm_chip, hw.lpddr_chip
    hw = hw.with_values({"hbm_chip.frequency": 2 * fast.frequency, "hbm.count": 3})
    both = side(hw, "hbm", "hbm_chip", "lpddr_chip")
    cycles = [
        2 * fast.frequency * fast.cores * fast.count,
        slow.frequency * slow.cores * slow.count,
    ]
    assert both.arrays.rate == sum(cycles)
    assert both.skew.rate == slow.frequency
    lanes = [chip.vector_arrays * chip.vector_lanes for chip in (fast, slow)]
    assert both.vectors.rate == cycles[0] * lanes[0] + cycles[1] * lanes[1]
    assert both.memory.rate == 3 * hw.hbm.bandwidth
    assert both.capacity == 3 * hw.hbm.memory
    assert both.walk.rate == 1 / fast.tlb_miss

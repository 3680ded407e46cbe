"""Tiers by hand of eight H200: path, fixed time, staging, writes; and the ways back of a prefix."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.kv_tiers import (
    TIERS,
    Tier,
    both,
    crossover,
    drive_writes_a_day,
    layerwise,
    split,
    tier_of,
    write_price,
    years,
)
from nearkv.hardware.catalog import load_platform

HW = load_platform("h200-node").machine()
BLOCK, GIGA = 0.168e9, 1e9
SOFTWARE, HOP = 1.8e-3, 7e-6


def of(name: str, staged: bool = False, **changes: float) -> Tier:
    """A tier of the node, some numbers replaced: `policy__block_time=1e-3`."""
    sizes = {key.replace("__", "."): value for key, value in changes.items()}
    return tier_of(name, HW.with_values(sizes), BLOCK, staged)


@pytest.mark.parametrize(
    ("name", "latency", "rate"),
    [
        ("hbm", 0.0, 8 * 4.8e12 * 0.84),
        ("dram", SOFTWARE, 8 * 63e9 * 0.8),  # links of the GPUs before 614 GB/s of DRAM
        ("cxl", SOFTWARE + 250e-9, 8 * 36e9),
        ("ssd", SOFTWARE + 65e-6, 8 * 12e9),  # flash before eight links of 15.75 GB/s at 0.8
        ("pool", SOFTWARE + HOP, 8 * 50e9 * 0.84),
        ("pool-ssd", SOFTWARE + 65e-6 + HOP, 8 * 12e9),
        ("object", SOFTWARE + 0.1 + HOP, 12.5e9),
    ],
)
def test_a_load_is_a_fixed_time_and_bytes_over_the_slowest_part(
    name: str, latency: float, rate: float
) -> None:
    assert of(name).load(GIGA).seconds == pytest.approx(latency + GIGA / rate)


def test_each_place_needs_roles_that_the_node_has() -> None:
    for place in TIERS.values():
        assert {place.medium, *place.links} <= {*HW.roles}


def test_staged_blocks_are_copied_twice_one_after_the_other() -> None:
    direct, staged = (of("ssd", staged).load(GIGA).seconds for staged in (False, True))
    assert staged - direct == pytest.approx(GIGA / (8 * 63e9 * 0.8))
    assert of("dram", True).load(GIGA).seconds == of("dram").load(GIGA).seconds


def test_a_file_system_serves_one_block_after_the_other() -> None:
    slow = of("ssd", policy__block_time=10e-3)
    assert slow.load(GIGA).seconds == pytest.approx(slow.latency + GIGA / BLOCK * 10e-3)


def test_small_blocks_are_bound_by_requests() -> None:
    small = tier_of("ssd", HW, 4096.0)
    assert small.load(GIGA).seconds == pytest.approx(small.latency + GIGA / (8 * 2e6 * 4096))


def test_writes_take_their_share_of_the_medium_and_none_of_the_links() -> None:
    """Flash that writes half of its time reads at half its rate; DRAM still fills the links."""
    drives = of("ssd")
    half = drives.while_written(8 * 6.8e9 / 2, 1)
    assert half.load(GIGA).seconds - half.latency == pytest.approx(GIGA / (8 * 6e9))
    busy = of("dram").while_written(100e9, 1)
    assert busy.load(GIGA).seconds == of("dram").load(GIGA).seconds
    full = drives.while_written(8 * 6.8e9, 1)
    assert full.load(GIGA).seconds > 1e6


def test_a_cpu_attends_at_its_share_of_the_rate_of_its_dram() -> None:
    attend = of("dram", host__count=2.0, host__bandwidth=300e9, derate__cpu_attention=0.5).attend
    assert attend is not None
    assert attend.rate == pytest.approx(2 * 300e9 * 0.5)


def test_a_byte_costs_what_its_part_does() -> None:
    assert of("dram").byte_price == pytest.approx(675 / (64 * 2**30))
    assert of("pool-ssd").byte_price == pytest.approx(2737.5 / 7.68e12)
    assert np.isnan(of("hbm").byte_price)


def test_nodes_share_the_drives_of_a_pool_and_each_add_dram_to_one() -> None:
    """Four nodes read a quarter of 96 GB/s each; 8 drives of 6.8 GB/s bear half of their rate."""
    pool, dram = of("pool-ssd").while_written(8 * 6.8e9 / 2, 4), of("pool").while_written(0.0, 4)
    assert pool.load(GIGA).seconds - pool.latency == pytest.approx(GIGA / (8 * 12e9 / 2 / 4))
    assert of("pool-ssd").write_load(8 * 6.8e9 / 2, 4) == pytest.approx(0.5)
    assert of("ssd").write_load(8 * 6.8e9 / 2, 4) == pytest.approx(0.125)
    assert dram.load(GIGA).seconds == of("pool").load(GIGA).seconds


def test_loads_of_one_prompt_take_the_links_of_the_gpus_that_hold_it() -> None:
    """A prompt on one GPU of eight has one link; the file system and the drives stay whole."""
    one = tier_of("dram", HW, BLOCK, of_a_prompt=1 / 8)
    assert one.load(GIGA).seconds == pytest.approx(SOFTWARE + GIGA / (63e9 * 0.8))
    drives = tier_of("ssd", HW, BLOCK, of_a_prompt=1 / 8)
    assert drives.read["medium"].rate == of("ssd").read["medium"].rate
    staged = tier_of("ssd", HW, BLOCK, staged=True, of_a_prompt=1 / 8)
    copied = staged.load(GIGA).seconds - of("ssd", staged=True).load(GIGA).seconds
    assert copied == pytest.approx(GIGA / (63e9 * 0.8) * 7 / 8)


def test_drives_wear_by_their_endurance() -> None:
    """A terabyte on ten a day is a tenth of a drive write; 3.65 PB last ten years of it."""
    assert drive_writes_a_day(1e12 / 86_400, 10e12) == pytest.approx(0.1)
    assert years(1e12 / 86_400, 3.65e15) == pytest.approx(10)
    assert write_price(3_650, 3.65e15) == pytest.approx(1e-12)


def compute(tokens: Real) -> Real:
    """Linear layers and attention: seconds of the first tokens."""
    return 1e-4 * np.asarray(tokens) + 1e-8 * np.asarray(tokens) ** 2


def load(tokens: Real) -> Real:
    """A fixed part and bytes over a bandwidth."""
    return 0.01 + 5e-5 * np.asarray(tokens)


def test_both_ends_meet_and_no_split_is_faster() -> None:
    tokens = np.array([100.0, 1_000.0, 10_000.0])
    k = split(compute, load, tokens)
    assert np.ravel(compute(k))[1:] == pytest.approx(np.ravel(load(tokens - k))[1:])
    for prefix, best in zip(tokens, np.ravel(both(compute, load, tokens)), strict=True):
        tried = np.linspace(0, prefix, 4_001)
        least = np.min(np.maximum(compute(tried), load(prefix - tried)))
        assert best <= least * (1 + 1e-6)


def test_loading_pays_from_where_the_curves_cross() -> None:
    # 1e-4 p + 1e-8 p^2 = 0.01 + 5e-5 p at p = (-5e-5 + sqrt(25e-10 + 4e-10)) / 2e-8 = 192.6
    assert crossover(compute, load, 4_096) == 193
    assert crossover(compute, load, 193) == 193
    assert np.isnan(crossover(compute, load, 192))
    assert np.isnan(crossover(lambda p: 0 * np.asarray(p), load, 4_096))


def test_loading_pays_from_the_last_crossing() -> None:
    """Experts wake up to 100 tokens; then attention alone grows, and exceeds loading at last."""

    def experts(p: Real) -> Real:
        return 2e-3 * np.minimum(p, 100.0) + 1e-8 * np.asarray(p) ** 2

    # 1e-8 p^2 + 0.2 = 0.01 + 5e-4 p at p = (5e-4 + sqrt(25e-8 - 0.76e-8)) / 2e-8 = 49,617
    assert crossover(experts, lambda p: 0.01 + 5e-4 * np.asarray(p), 1e5) == 49_618


def test_layers_load_while_the_layers_before_are_computed() -> None:
    """4 layers of 3 s to load and 1 s to compute: 3 + 3 + 3 + 3, and the last layer's 1."""
    assert layerwise(12.0, 4.0, 4) == pytest.approx(13.0)
    assert layerwise(4.0, 12.0, 4) == pytest.approx(13.0)
    assert layerwise(4.0, 12.0, 1) == pytest.approx(16.0)

"""Where K and V live, what exceeds a tier, and what tiers swap, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tiny import ACTIVATIONS, ALL_WEIGHTS, FINAL_KV, SHAPE, TINY, WORK

from nearkv.costmodel.mechanisms.near_storage.eviction import (
    Tiers,
    cpu_scoring,
    fits_in,
    gpu_layer,
    kv_budget,
    migration_breaks,
    place_cache,
    scattered,
)
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.resources import drives, gpu
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

HW = load_platform("aipc-4090").machine()


STATIC, BY_CAPACITY = 0.0, 1.0


def sized(on_gpu: float, in_dram: float) -> Machine:
    """The computer with room for so many shares of the KV cache."""
    memory = ALL_WEIGHTS + ACTIVATIONS + on_gpu * FINAL_KV
    sizes = {"gpu.count": 2.0, "gpu.memory": memory / 2, "host.kv_memory": in_dram * FINAL_KV}
    return HW.with_values(sizes)


@pytest.mark.parametrize(
    ("on_gpu", "in_dram", "placement", "tiers"),
    [
        # 20 % and 60 %, whatever more there is; what a tier cannot hold goes to the next
        (5.0, 5.0, STATIC, (0.2, 0.6, 0.2)),
        (0.1, 5.0, STATIC, (0.1, 0.6, 0.3)),
        (0.1, 0.25, STATIC, (0.1, 0.25, 0.65)),
        (5.0, 5.0, BY_CAPACITY, (1.0, 0.0, 0.0)),
        (0.3, 5.0, BY_CAPACITY, (0.3, 0.7, 0.0)),
        (0.3, 0.5, BY_CAPACITY, (0.3, 0.5, 0.2)),
        (-0.5, 0.5, BY_CAPACITY, (0.0, 0.5, 0.5)),
    ],
)
def test_tiers_fill_in_order(
    on_gpu: float, in_dram: float, placement: float, tiers: tuple[float, float, float]
) -> None:
    shares = place_cache(sized(on_gpu, in_dram), TINY, WORK, placement)
    assert (shares.gpu, shares.host, shares.drive) == pytest.approx(tiers)


def test_the_budget_is_what_the_platform_states() -> None:
    assert kv_budget(sized(1.0, 0.5)) == 0.5 * FINAL_KV


def test_host_and_drive_swap_what_the_smaller_of_them_holds() -> None:
    """0.2 of 0.1, 0.6 and 0.3 leave DRAM at a skew s only while (1 - s) m is no more than 0.3."""
    assert Tiers(0.1, 0.6, 0.3).exchangeable == 0.3
    assert Tiers(0.1, 0.3, 0.6).exchangeable == 0.3
    hw, knobs = sized(0.1, 5.0), {"placement": STATIC, "migration": 0.5, "sigma": 0.25}
    assert migration_breaks(hw, TINY, WORK, knobs) == pytest.approx((0.3 / 0.75,))
    assert migration_breaks(hw, TINY, WORK, {"placement": STATIC}) == pytest.approx((0.3,))


def test_a_recurrent_layer_reads_and_writes_its_state() -> None:
    """530 weights of the mixer and 456 of the feed-forward at 2 bytes, 11 elements in and out.

    A quarter of the context is retained; of the state nothing is evicted.
    """
    state = Recurrent(**SHAPE, mixer_parameters=530.0, state_size=11.0, state_flops=17.0)
    layer = gpu_layer(state, replace(WORK, batch=3.0), 0.25, gpu(HW))
    leaves = {leaf.verb: leaf.amount for _, leaf, _ in layer.leaves()}
    assert leaves["read"] == 2 * (530 + 456) + 2 * 3 * 11 * 2
    assert leaves["run"] == 2 * 3 * (530 + 456) + 3 * 17


# --- Bytes and FLOPs of KV eviction on one PC, counted by hand for a small model ---


@pytest.mark.parametrize(
    ("placement", "gpu_kv", "host_kv", "tiers"),
    [
        (0, 1.0, 1.0, (0.2, 0.6, 0.2)),
        (1, 1.0, 1.0, (1.0, 0.0, 0.0)),
        (1, 0.5, 1.0, (0.5, 0.5, 0.0)),
        (1, 0.5, 0.3, (0.5, 0.3, 0.2)),
        (0, 0.1, 0.3, (0.1, 0.3, 0.6)),
        (0, -1.0, 0.3, (0.0, 0.3, 0.7)),
    ],
)
def test_what_a_tier_has_no_room_for_goes_to_the_next(
    placement: float, gpu_kv: float, host_kv: float, tiers: tuple[float, float, float]
) -> None:
    """Memories with room for so many caches, beside weights and activations of one prompt."""
    memory = ALL_WEIGHTS + ACTIVATIONS + gpu_kv * FINAL_KV
    hw = HW.with_values({"gpu.memory": memory, "host.kv_memory": host_kv * FINAL_KV})
    placed = place_cache(hw, TINY, WORK, placement)
    assert (placed.gpu, placed.host, placed.drive) == pytest.approx(tiers)
    check_fit = fits_in(hw, TINY, WORK, placed, "ssd", 7.0, copies=5.0)
    contents, capacity = check_fit["ssd"]
    expected = {"KV cache": tiers[2] * FINAL_KV, "copies of keys": 5.0}
    assert contents == pytest.approx(expected)
    assert capacity == 7.0
    assert check_fit["gpu"][1] == memory


def test_breaks_are_where_host_and_drive_can_swap_no_more() -> None:
    """Of 0.2, at a skew of a half, 0.4 may be asked for."""
    knobs = {"placement": 0.0, "sigma": 0.5, "migration": 0.8}
    assert migration_breaks(HW, TINY, WORK, knobs) == pytest.approx((0.4,))
    assert migration_breaks(HW, TINY, WORK, {"placement": 0.0}) == pytest.approx((0.2,))


def test_the_smaller_of_two_tiers_bounds_what_they_swap() -> None:
    assert Tiers(0.1, 0.6, 0.3).exchangeable == 0.3
    assert Tiers(0.1, 0.3, 0.6).exchangeable == 0.3


def test_processors_and_scattered_reads_lose_a_share() -> None:
    hw = load_platform("aipc-4090").machine()
    assert cpu_scoring(hw).rate == hw.host.bandwidth * hw.derate.cpu_scoring
    rows = scattered(hw, drives(hw, "ssd"))
    assert rows.rate == hw.ssd.count * hw.ssd.read * hw.derate.gather

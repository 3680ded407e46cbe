"""Bytes and FLOPs of KV eviction on one PC, counted by hand for a small model."""

from __future__ import annotations

import pytest
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    FINAL_KV,
    HEAD_FLOPS,
    KV,
    LINEAR,
    NEW_KV,
    PROMPT_FLOPS,
    PROMPT_KV,
    STREAMED,
    TINY,
    WORK,
    check,
    estimate,
    needed,
    plus,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.eviction import (
    Tiers,
    fits_in,
    migration_breaks,
    place,
    sigma_breaks,
)
from nearkv.hardware.catalog import load_platform

HW = load_platform("aipc-4090").machine()
GPU, HOST, DRIVE = 0.2, 0.6, 0.2
"""Where sec. 3.2 puts the cache."""


def stored(amount: float) -> dict[str, Real]:
    """New K and V on their way: 80 % leave the GPU, 20 % go on to the drive."""
    leaves = {"gpu_link.out move": (HOST + DRIVE) * amount}
    return {**leaves, "ssd_link.out move": DRIVE * amount, "ssd.flash write": DRIVE * amount}


def demoted(share: float) -> dict[str, Real]:
    """What DRAM gives up for promoted tokens."""
    return {"ssd_link.out move": share * KV, "ssd.flash write": share * KV}


def on_gpu(attended: float) -> dict[str, Real]:
    """Weights once, and the attended share of the cache, by a GPU that holds all weights."""
    flops = LINEAR + HEAD_FLOPS + attended * ATTEND
    return {"gpu.hbm read": STREAMED + attended * KV, "gpu.tensor run": flops}


@pytest.mark.parametrize("name", ["full-cache", "h2o"])
def test_who_evicts_nothing_fetches_all_that_is_not_on_the_gpu(name: str) -> None:
    migration = {"migration": 0.1} if name == "h2o" else {}
    answer = estimate(name, placement=0, **migration)
    moves = {
        "ssd.flash read": DRIVE * KV,
        "ssd_link.in move": DRIVE * KV,
        "gpu_link.in move": (HOST + DRIVE) * KV,
    }
    step = plus(moves | on_gpu(1.0), stored(NEW_KV))
    check(answer.step, plus(step, demoted(0.1) if migration else {}))
    prompt = {"gpu.hbm read": STREAMED, "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS}
    check(answer.prefill, plus(prompt, stored(PROMPT_KV)))
    on = ALL_WEIGHTS + ACTIVATIONS + GPU * FINAL_KV
    tiers = {"gpu": on, "host": HOST * FINAL_KV, "ssd": DRIVE * FINAL_KV}
    assert needed(answer) == pytest.approx(tiers)
    in_gb = {"kv_gpu_gb": GPU, "kv_host_gb": HOST, "kv_drive_gb": DRIVE}
    assert answer.also == pytest.approx({key: a * FINAL_KV / 1e9 for key, a in in_gb.items()})


def test_no_more_is_demoted_than_host_and_drive_can_swap() -> None:
    """The drive holds 20 % of the cache, so 30 % cannot come up in exchange."""
    most, beyond = [estimate("h2o", placement=0, migration=share) for share in (0.2, 0.3)]
    for answer in (most, beyond):
        written = answer.step.traffic("write")[("ssd.flash", "write")]
        assert written == pytest.approx(DRIVE * NEW_KV + 0.2 * KV)


def test_infinigen_scores_part_of_the_keys_and_fetches_the_retained() -> None:
    """30 % of each key is 15 % of K and V; half of what leaves the drive is served by the host."""
    answer = estimate(
        "infinigen", retention=0.25, partial=0.3, sigma=0.5, placement=0, migration=0.1
    )
    proxy = 0.15 * KV
    fetched = 0.5 * 0.25 * DRIVE * KV
    moves = {
        "ssd.flash read": DRIVE * proxy + fetched,
        "ssd_link.in move": DRIVE * proxy + fetched,
        "host.dram read": (HOST + DRIVE) * proxy,
        "gpu_link.in move": 0.25 * (HOST + DRIVE) * KV,
    }
    step = plus(moves | on_gpu(GPU + 0.25 * (HOST + DRIVE)), stored(NEW_KV))
    check(answer.step, plus(step, demoted(0.5 * 0.1)))


def test_leoam_reads_two_keys_a_chunk() -> None:
    """Two keys are one token's K and V: one of 64 tokens is read to score them."""
    answer = estimate("leoam", retention=0.25, abstract=64, placement=0, migration=0.1)
    proxy = KV / 64
    moves = {
        "ssd.flash read": DRIVE * (proxy + 0.25 * KV),
        "ssd_link.in move": DRIVE * (proxy + 0.25 * KV),
        "host.dram read": (HOST + DRIVE) * proxy,
        "gpu_link.in move": 0.25 * (HOST + DRIVE) * KV,
    }
    step = plus(moves | on_gpu(GPU + 0.25 * (HOST + DRIVE)), stored(NEW_KV))
    check(answer.step, plus(step, demoted(0.1)))


HILLINFER: dict[str, Real] = {
    "hot_share": 0.25,
    "retention": 0.4,
    "sigma": 0.5,
    "chunks": 8,
    "score_precision": 2,
    "placement": 0,
}
"""A quarter of what is off the GPU in DRAM; int4 keys are a quarter of 16-bit ones."""
COLD = 0.75 * (HOST + DRIVE) * KV


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize("source", [0, 1, 2])
def test_hillinfer_scores_beside_the_flash(source: int, hop: int) -> None:
    answer = estimate("hillinfer", score_source=source, hop=hop, **HILLINFER)
    hot = 0.25 * 0.8 * KV
    keys = COLD / 2 * (0.25 if source else 1)
    fetched = 0.5 * 0.4 * COLD
    # 4 bytes a token of 6 KV elements of 2 heads
    scores = 4 * COLD / (2 * 6 * 2)
    in_flash, in_dram = (keys, 0.0) if source < 2 else (0.0, keys)
    csd: dict[str, Real] = {
        "csd.flash read": in_flash + fetched,
        "csd.dram read": in_dram,
        "csd.kernel run": 3 * COLD / 2,
        "csd_link.in move": scores + fetched,
        "host.dram read": hot / 2 + scores,
        "host.driver wait": 3 * HW.csd.launch,
        "gpu_link.in move": 0.4 * (hot + 0.5 * COLD) + fetched,
    }
    new = {
        "gpu_link.out move": 0.8 * NEW_KV,
        "csd_link.out move": 0.6 * NEW_KV + fetched,
        "csd.flash write": 0.6 * NEW_KV + fetched,
    }
    check(answer.step, csd | new | on_gpu(0.2 + 0.4 * 0.8))


@pytest.mark.parametrize("source", [0, 1, 2])
def test_hillinfer_keeps_its_copy_of_the_keys_where_it_scores_them(source: int) -> None:
    answer = estimate("hillinfer", score_source=source, hop=1, **HILLINFER)
    written = answer.prefill.traffic("write")
    assert written == {("csd.flash", "write"): pytest.approx(0.6 * PROMPT_KV)}
    copy = 0.6 * FINAL_KV / 2 / 4
    tiers = {
        "gpu": ALL_WEIGHTS + ACTIVATIONS + GPU * FINAL_KV,
        "host": 0.2 * FINAL_KV,
        "csd": 0.6 * FINAL_KV + (copy if source == 1 else 0),
        "csd_dram": copy if source == 2 else 0,
    }
    assert needed(answer) == pytest.approx(tiers)


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
    placed = place(hw, TINY, WORK, placement)
    assert (placed.gpu, placed.host, placed.drive) == pytest.approx(tiers)
    check_fit = fits_in(hw, TINY, WORK, placed, "ssd", 7.0, beside=5.0)
    assert check_fit["ssd"] == pytest.approx((tiers[2] * FINAL_KV + 5, 7.0))
    assert check_fit["gpu"][1] == memory


def test_breaks_are_where_host_and_drive_can_swap_no_more() -> None:
    """Of 0.2, at a skew of a half, 0.4 may be asked for; of 0.8 asked for, a skew of 3/4 is too."""
    knobs = {"placement": 0.0, "sigma": 0.5, "migration": 0.8}
    assert migration_breaks(HW, TINY, WORK, knobs) == pytest.approx((0.4,))
    assert sigma_breaks(HW, TINY, WORK, knobs) == pytest.approx((0.75,))
    assert sigma_breaks(HW, TINY, WORK, {**knobs, "migration": 0.0}) == (1.0,)
    assert migration_breaks(HW, TINY, WORK, {"placement": 0.0}) == pytest.approx((0.2,))


def test_the_smaller_of_two_tiers_bounds_what_they_swap() -> None:
    assert Tiers(0.1, 0.6, 0.3).exchangeable == 0.3
    assert Tiers(0.1, 0.3, 0.6).exchangeable == 0.3

"""FlexGen by hand: papers' baselines, and runs at the shares of `--percent`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.offloading import (
    CACHE,
    IN_FILES,
    WEIGHTS,
    bed,
    layers,
    short_step,
    storage_path,
)
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    BUFFER,
    FINAL_KV,
    HEAD,
    HEAD_FLOPS,
    KV,
    LAYERS,
    LINEAR,
    NEW_KV,
    PROMPT_FLOPS,
    PROMPT_KV,
    QUERIES,
    STREAMED,
    amounts,
    check,
    estimate,
    needed,
    plus,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import resolve_knobs


@pytest.mark.parametrize("batches", [1, 5])
@pytest.mark.parametrize(
    ("name", "drives", "lanes", "array"),
    [
        ("flexgen-ssd", "ssd", "ssd_link", False),
        ("flexgen-16ssd", "raid", "uplink", True),
    ],
)
def test_flexgen_reads_the_cache_once_and_its_weights_once(
    name: str, drives: str, lanes: str, array: bool, batches: int
) -> None:
    """Each of n GPU batches reads its share of the cache and all weights, from GPU memory."""
    answer = estimate(name, IN_FILES, gpu_batches=batches, weights=2)
    move = storage_path(drives, lanes, STREAMED + KV)
    step = {
        **move,
        **({f"{drives}.array move": STREAMED + KV} if array else {}),
        f"{lanes}.out move": NEW_KV,
        f"{drives}.flash write": NEW_KV,
        # the group of 3 queries reads the cache twice: half its time is a copy, half its products
        "host.dram read": KV,
        "gpu_link.in move": STREAMED + QUERIES,
        "gpu_link.out move": QUERIES + NEW_KV,
        "gpu.hbm read": batches * LAYERS + HEAD,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
    }
    check(answer.step, step)
    prompt = storage_path(drives, lanes, STREAMED)
    prompt.update({f"{drives}.array move": STREAMED} if array else {})
    prompt.update({f"{lanes}.out move": PROMPT_KV, f"{drives}.flash write": PROMPT_KV})
    prompt.update({"gpu_link.in move": STREAMED, "gpu_link.out move": PROMPT_KV})
    prompt.update({"gpu.hbm read": HEAD, "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS})
    check(answer.prefill, prompt)
    copies = 2 * FINAL_KV / 3
    stored = ALL_WEIGHTS + FINAL_KV
    assert needed(answer) == {"gpu": BUFFER + ACTIVATIONS, "host": copies, drives: stored}


def test_flexgen_in_dram_keeps_the_cache_in_host_memory() -> None:
    answer = estimate("flexgen-dram", IN_FILES, gpu_batches=1, weights=2)
    step = {
        **storage_path("ssd", "ssd_link", STREAMED),
        "host.dram read": KV,
        "gpu_link.in move": STREAMED + QUERIES,
        "gpu_link.out move": QUERIES + NEW_KV,
        "gpu.hbm read": LAYERS + HEAD,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
    }
    check(answer.step, step)
    # K and V of one of three layers in 32 bits
    in_host = FINAL_KV * (1 + 2 / 3) + 8.59e9
    in_dram = {"gpu": BUFFER + ACTIVATIONS, "host": in_host, "ssd": ALL_WEIGHTS}
    assert needed(answer) == in_dram
    assert answer.prefill.traffic("move")[("gpu_link.out", "move")] == PROMPT_KV


def test_a_batch_beyond_host_memory_runs_in_rounds() -> None:
    """Three sequences fit beside the weights on the drives: three rounds of 5/3 on average."""
    sequence = FINAL_KV * (1 + 2 / 3) / 5
    room = {**IN_FILES, "host.memory": 3.5 * sequence / 0.972, "policy.pinned_relays": 0}
    answer = estimate("flexgen-dram", room, gpu_batches=1, weights=2)
    assert answer.batch_run == pytest.approx(5 / 3)
    reads = answer.step.traffic("read")[("host.dram", "read")]
    loads = answer.step.traffic("read")[("ssd.flash", "read")]
    assert reads == pytest.approx(KV)
    assert loads == pytest.approx(3 * STREAMED)


@pytest.mark.parametrize("stored", [0, 0.25])
def test_flexgen_on_a_raid_keeps_what_fits_in_host_memory(stored: float) -> None:
    """Memory for weights, the copies of two layers and half of the cache, filled."""
    pinned = (
        (1 - stored) * ALL_WEIGHTS * (2 * 512 + 2 * 128 + 3 * 512) / (2 * 288 + 2 * 96 + 3 * 304)
    )
    copies, half = 2 * FINAL_KV / 3, FINAL_KV / 2
    changes = {"host.memory": pinned + copies + half, "gpu.memory": BUFFER + ACTIVATIONS}
    changes |= {"policy.pinned_rounding": 1, "host.usable": 1}
    answer = estimate("flexgen-raid", changes, ssd_weights=stored, split=1, gpu_batches=1)
    weights = stored * STREAMED
    move = storage_path("ssd", "uplink", weights + KV / 2)
    step = {
        **move,
        "ssd.array move": weights + KV / 2,
        "uplink.out move": NEW_KV / 2,
        "ssd.flash write": NEW_KV / 2,
        "host.dram read": STREAMED - weights + KV,
        "gpu_link.in move": STREAMED + QUERIES,
        "gpu_link.out move": QUERIES + NEW_KV,
        "gpu.hbm read": LAYERS + HEAD,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
    }
    check(answer.step, step)
    written = answer.prefill.traffic("write")
    assert written[("ssd.flash", "write")] == pytest.approx(PROMPT_KV / 2)
    host = pinned + copies + half
    expected = {"gpu": BUFFER + ACTIVATIONS, "host": host, "ssd": stored * ALL_WEIGHTS + half}
    assert needed(answer) == pytest.approx(expected)
    assert answer.fits.ok


def test_flexgen_in_dram_holds_passing_latents_too() -> None:
    """One layer's 1,152 B a token of all sequences, and of the next batch."""
    hw = load_platform("hilos-a100").machine().with_values({"host.memory": 1e13})
    work = Workload(2.0, 100.0, 28.0)
    system = find_system("flexgen-dram")
    once, twice = [
        needed(system(hw, model("deepseek-v3"), work, {"gpu_batches": n, "weights": 2.0}))["gpu"]
        for n in (2.0, 1.0)
    ]
    assert twice - once == pytest.approx(2 * 1 * 128 * 1152)


def test_more_host_memory_runs_no_more_states_than_the_gpu_holds() -> None:
    """Host memory holds 77 sequences, the GPU the states of 24: seven rounds of at most 16."""
    work, system = Workload(110.0, 103_905.0, 1135.0), find_system("flexgen-dram")
    knobs = {"gpu_batches": 2.0, "weights": 0.0, "chunk": 0.0}
    memory = {"host.memory": np.array([512e9, 2560e9])}
    hw = load_platform("hilos-a100").machine().with_values(memory)
    answer = system(hw, model("kimi-k3"), work, knobs)
    assert np.asarray(answer.fits.ok).tolist() == [True, True]
    assert np.asarray(answer.batch_run).tolist() == [1, 110 / 7]


# --- at given shares


@pytest.mark.parametrize(
    ("system", "knobs", "bytes_each", "cache_passes"),
    [
        # a kernel reads 0.5625 bytes and writes 2, which the products read
        # and the cache is read, written anew by eager operations, read by products
        ("zero-inference", {"cache": 1.0}, 0.5625 + 2 + 2, 3),
        # two elements: 2 x (read 1, write 1, read 1, sectors of 4 read and written), then twice
        # read 4, write 4; products take views of the cache
        ("flexgen-percent", {"gpu_cache": 1.0}, 0.5625 - 0.5 + (22 + 16) / 2 + 2, 1),
    ],
)
def test_packed_weights_pass_gpu_memory_several_times(
    system: str, knobs: dict[str, Any], bytes_each: float, cache_passes: int
) -> None:
    hw = bed("zero-a6000", weight=0.5625)
    traffic = layers(system, hw, **knobs).traffic()
    weights = WEIGHTS / 2 * bytes_each
    assert traffic["gpu.hbm", "read"] == pytest.approx(weights + cache_passes * CACHE, rel=0.002)
    assert traffic["gpu_link.in", "move"] == pytest.approx(WEIGHTS / 2 * 0.5625, rel=0.001)


def test_flexgen_unpacks_weights_for_each_gpu_batch_anew() -> None:
    hw = bed("zero-a6000", weight=0.5625)
    reads = []
    for batches in (1.0, 3.0):
        traffic = layers("flexgen-percent", hw, gpu_batches=batches).traffic()
        reads.append(traffic["gpu.hbm", "read"])
    assert reads[1] == pytest.approx(3 * reads[0], rel=0.001)


def test_flexgen_copies_what_nobody_pins_before_it_moves() -> None:
    # each byte read, its new line filled and written at 0.8 of the DRAM bandwidth
    pinned, copied = (short_step("flexgen-percent", gpu_cache=1.0, pin=pin) for pin in (1.0, 0.0))
    assert copied - pinned == pytest.approx(WEIGHTS * 3 / (0.8 * 153.6e9), rel=0.001)


def test_a_gpu_that_attends_draws_the_cache_over_its_link() -> None:
    traffic = layers("flexgen-percent", bed("zero-a6000"), attend=1.0).traffic()
    assert traffic["gpu_link.in", "move"] == pytest.approx(WEIGHTS + CACHE, rel=0.001)


PERCENT: dict[str, Real] = {
    "gpu_weights": 0.25,
    "ssd_weights": 0.4,
    "pin": 1,
    "gpu_batches": 1,
    "tensors": 1,
}


LOADED: dict[str, Real] = {
    "ssd.flash read": 0.3 * STREAMED,
    "ssd_link.in move": 0.3 * STREAMED,
    "host.file move": 0.3 * STREAMED,
    "host.dram read": 0.45 * STREAMED,
    "gpu_link.in move": 0.75 * STREAMED,
    "gpu.hbm read": STREAMED,
    "gpu.tensor run": LINEAR + HEAD_FLOPS,
}
"""A quarter of the weights stays on the GPU; two fifths of the others, 30 %, come from drives."""


@pytest.mark.parametrize(
    ("on_gpu", "stored", "attend", "beside"),
    [
        (1, 0, 0, {"gpu.hbm read": KV, "gpu.tensor run": ATTEND}),
        (
            0,
            0,
            0,
            {
                "host.dram read": KV,
                "gpu_link.in move": QUERIES,
                "gpu_link.out move": QUERIES + NEW_KV,
            },
        ),
        (
            0,
            0,
            1,
            {
                "host.dram read": 4 * KV,
                "gpu_link.in move": KV,
                "gpu.hbm read": KV,
                "gpu.tensor run": ATTEND,
            },
        ),
        (
            0,
            1,
            1,
            {
                "ssd.flash read": KV,
                "ssd_link.in move": KV,
                "host.file move": KV,
                "host.dram read": KV,
                "gpu_link.in move": KV,
                "gpu.hbm read": KV,
                "gpu.tensor run": ATTEND,
                "ssd_link.out move": NEW_KV,
                "ssd.flash write": NEW_KV,
            },
        ),
        # of five sequences the GPU has two; the CPU attends to three, half of them from drives
        (
            0.4,
            0.5,
            0,
            {
                "ssd.flash read": 0.3 * KV,
                "ssd_link.in move": 0.3 * KV,
                "host.file move": 0.3 * KV,
                "host.dram read": 0.6 * KV,
                "gpu.hbm read": 0.4 * KV,
                "gpu.tensor run": 0.4 * ATTEND,
                "gpu_link.in move": 0.6 * QUERIES,
                "gpu_link.out move": 0.6 * (QUERIES + NEW_KV),
                "ssd_link.out move": 0.3 * NEW_KV,
                "ssd.flash write": 0.3 * NEW_KV,
            },
        ),
        # or those three come to the GPU, of which the host's half is copied first
        (
            0.4,
            0.5,
            1,
            {
                "ssd.flash read": 0.3 * KV,
                "ssd_link.in move": 0.3 * KV,
                "host.file move": 0.3 * KV,
                "host.dram read": (3 * 0.3 + 0.6) * KV,
                "gpu.hbm read": KV,
                "gpu.tensor run": ATTEND,
                "gpu_link.in move": 0.6 * KV,
                "ssd_link.out move": 0.3 * NEW_KV,
                "ssd.flash write": 0.3 * NEW_KV,
            },
        ),
    ],
)
def test_flexgen_places_weights_and_cache_as_told(
    on_gpu: float, stored: float, attend: int, beside: dict[str, Real]
) -> None:
    """Attention reads K and V once on the GPU; a copy to a pinned buffer adds three passes."""
    answer = estimate(
        "flexgen-percent", gpu_cache=on_gpu, ssd_cache=stored, attend=attend, **PERCENT
    )
    check(answer.step, plus(LOADED, beside))
    host, ssd = (1 - on_gpu) * (1 - stored), (1 - on_gpu) * stored
    working = 0.25 * ALL_WEIGHTS + 0.75 * BUFFER + ACTIVATIONS
    expected = {
        "gpu": working + on_gpu * FINAL_KV,
        "host": 0.45 * ALL_WEIGHTS + host * FINAL_KV,
        "ssd": 0.3 * ALL_WEIGHTS + ssd * FINAL_KV,
    }
    assert needed(answer) == pytest.approx(expected)
    prompt = amounts(answer.prefill)
    assert prompt.get("gpu_link.out move", 0) == pytest.approx((1 - on_gpu) * PROMPT_KV)
    assert prompt.get("ssd.flash write", 0) == pytest.approx(ssd * PROMPT_KV)
    future = 3 * 2 * 5 * 100**2 * 18  # the other half of the square of scores
    assert prompt["gpu.tensor run"] == PROMPT_FLOPS + future + HEAD_FLOPS


HIDDEN = 3 * 2 * 5 * 8 * 2
"""Five tokens of 8 elements leave the GPU after each of two halves of three layers [B]."""


@pytest.mark.parametrize("phase", ["step", "prefill"])
@pytest.mark.parametrize("place", [1, 2])
def test_activations_leave_the_gpu_after_each_half_and_come_back(place: int, phase: str) -> None:
    kept, away = (
        estimate("flexgen-percent", activations=where, attend=0, **PERCENT) for where in (0, place)
    )
    passing = HIDDEN * (1 if phase == "step" else 100)
    moved: dict[str, Real] = {"gpu_link.in move": passing, "gpu_link.out move": passing}
    if place == 2:
        moved.update(storage_path("ssd", "ssd_link", passing))
        moved.update({"ssd_link.out move": passing, "ssd.flash write": passing})
    before, after = getattr(kept, phase), getattr(away, phase)
    check(after, plus(amounts(before), moved))
    waiting = 5 * 100 * 8 * 2 if place == 1 else 0
    assert needed(away)["host"] - needed(kept)["host"] == pytest.approx(waiting)


@pytest.mark.parametrize("attend", [0.0, 1.0])
def test_a_divided_cache_takes_no_longer_than_its_parts_one_after_the_other(attend: float) -> None:
    """Weights that one part leaves to wait for may hide behind the attention of the other."""
    hw = bed("zero-a6000")
    whole, none, divided = (
        float(layers("flexgen-percent", hw, gpu_cache=share, attend=attend).seconds)
        for share in (1.0, 0.0, 0.4)
    )
    assert whole < divided <= 0.4 * whole + 0.6 * none + 1e-9


def test_no_stated_share_of_the_cache_is_faster_than_the_solved_one() -> None:
    hw = bed("zero-a6000").with_values({"gpu.memory": 60e9})
    spec = find_system("flexgen-percent")
    llm, work = model("opt-30b", hw), Workload(32.0, 512.0, 32.0)
    stated = {**spec.defaults, "gpu_weights": 0.0, "ssd_weights": 0.0}
    solved = resolve_knobs(spec, hw, llm, work, {**stated, "gpu_cache": "auto"})
    tried = resolve_knobs(spec, hw, llm, work, {**stated, "gpu_cache": np.linspace(0, 1, 101)})
    seconds = np.where(tried.estimate.fits.ok, tried.estimate.step.seconds, np.inf)
    assert float(solved.knobs["gpu_cache"]) > 0
    assert float(solved.estimate.step.seconds) <= np.min(seconds) * (1 + 1e-9)

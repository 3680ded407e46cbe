"""FlexGen's traffic with the cache on drives and in host memory, by hand."""

from __future__ import annotations

import pytest
from support.offloading import IN_FILES, storage_path
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
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
    check,
    estimate,
    needed,
)

from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform


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
    changes["policy.pinned_rounding"] = 1
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

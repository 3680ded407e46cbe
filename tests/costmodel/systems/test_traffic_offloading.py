"""Bytes and FLOPs of systems that offload, counted by hand for a small model."""

from __future__ import annotations

import pytest
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    BUFFER,
    FINAL_KV,
    FINAL_X,
    HEAD,
    HEAD_FLOPS,
    KV,
    LAYERS,
    LINEAR,
    NEW_KV,
    NEW_X,
    PROMPT_FLOPS,
    PROMPT_KV,
    PROMPT_X,
    QUERIES,
    REBUILD,
    STREAMED,
    TOKEN_KV,
    TOKEN_X,
    X,
    check,
    estimate,
    needed,
)

IN_FILES = {"policy.weights_in_dram_up_to": 1e3}
"""The rule of HILOS sec. 6.1 with a limit below the small model's parameters."""
ROW_PAGES = 2 * 2 * 5 * 3
"""K and V rows of 2 heads that 5 sequences add to 3 layers, each in a page of its own."""


def storage_path(drives: str, lanes: str, amount: float, **more: float) -> dict[str, float]:
    """Bytes that come from drives through the file system."""
    path = {f"{drives}.flash read": amount, f"{lanes}.in move": amount}
    return {**path, "host.file move": amount, **more}


def test_accelerate_with_weights_on_the_gpu_moves_nothing_over_the_link() -> None:
    answer = estimate("accelerate", weights=2)
    flops = LINEAR + ATTEND + HEAD_FLOPS
    check(answer.step, {"gpu.hbm read": STREAMED + KV, "gpu.tensor run": flops})
    # eager scores of 6 heads: 4 bytes in and out of the softmax and 2 x 2 beside it, moved twice
    scores = 6 * 100**2 * 8
    prompt = {
        "gpu.hbm read": STREAMED + 2 * 3 * 5 * scores,
        "gpu.tensor run": 2 * 500 * 3 * 840 + 4 * 5 * 100**2 * 3 * 18 + HEAD_FLOPS,
    }
    check(answer.prefill, prompt)
    resident = ALL_WEIGHTS + ACTIVATIONS + FINAL_KV + scores
    assert needed(answer) == {"gpu": resident, "host": 0}


def test_accelerate_streams_all_weights_where_the_gpu_is_a_byte_too_small() -> None:
    resident = ALL_WEIGHTS + ACTIVATIONS + FINAL_KV + 6 * 100**2 * 8
    step = {"gpu.hbm read": STREAMED + KV, "gpu.tensor run": LINEAR + ATTEND + HEAD_FLOPS}
    for weights in (0, 2):
        full = estimate("accelerate", {"gpu.memory": resident}, weights=weights)
        check(full.step, step)
    short = estimate("accelerate", {"gpu.memory": resident - 1}, weights=2)
    assert short.step.traffic("move") == {("gpu_link.in", "move"): STREAMED}
    assert short.prefill.traffic("move") == {("gpu_link.in", "move"): STREAMED}
    assert needed(short) == {"gpu": resident - ALL_WEIGHTS + BUFFER, "host": ALL_WEIGHTS}


def test_accelerate_keeps_the_weights_that_fit_beside_a_buffer_for_the_others() -> None:
    beside = BUFFER + ACTIVATIONS + FINAL_KV + 6 * 100**2 * 8
    answer = estimate("accelerate", {"gpu.memory": beside + 0.25 * ALL_WEIGHTS})
    assert answer.step.traffic("move") == {("gpu_link.in", "move"): 0.75 * STREAMED}
    assert needed(answer)["host"] == 0.75 * ALL_WEIGHTS


@pytest.mark.parametrize("in_files", [0, 1])
def test_deepspeed_faults_the_cache_in_and_loads_every_weight(in_files: int) -> None:
    answer = estimate("deepspeed-uvm", IN_FILES if in_files else {}, weights=2)
    stored = in_files * STREAMED
    weights = storage_path("ssd", "ssd_link", stored)
    weights["host.dram read"] = STREAMED - stored
    weights["gpu.hbm read"] = STREAMED
    step = {**weights, "gpu_link.in move": STREAMED + KV}
    check(answer.step, {**step, "gpu.tensor run": LINEAR + ATTEND + HEAD_FLOPS})
    prompt = {**weights, "gpu_link.in move": STREAMED, "gpu_link.out move": PROMPT_KV}
    prompt["gpu.hbm read"] = HEAD
    check(answer.prefill, {**prompt, "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS})
    in_dram = (1 - in_files) * ALL_WEIGHTS
    host = in_dram + FINAL_KV + 5 * ACTIVATIONS
    assert needed(answer) == {"gpu": BUFFER, "host": host, "ssd": in_files * ALL_WEIGHTS}


def test_deepspeed_pages_activations_that_the_gpu_cannot_hold_out_and_back() -> None:
    """A GPU of 10 kB lacks what weight buffer and a prompt's activations take beyond it."""
    answer = estimate("deepspeed-uvm", {"gpu.memory": 10_000}, weights=2)
    spilled = 3 * 2 * 5 * (BUFFER + ACTIVATIONS - 10_000)
    faults = answer.prefill.traffic("move")[("gpu_link.in", "move")]
    assert faults == pytest.approx(STREAMED + spilled)


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
    in_dram = {"gpu": BUFFER + ACTIVATIONS, "host": FINAL_KV, "ssd": ALL_WEIGHTS}
    assert needed(answer) == in_dram
    assert answer.prefill.traffic("move")[("gpu_link.out", "move")] == PROMPT_KV


def test_a_batch_beyond_host_memory_runs_in_rounds() -> None:
    """Three sequences fit beside the weights on the drives: three rounds of 5/3 on average."""
    room = {**IN_FILES, "host.memory": 3.5 * FINAL_KV / 5}
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


def test_hilos_without_x_reads_the_cache_beside_the_flash() -> None:
    answer = estimate("hilos", alpha=0, interval=1, writeback=0, weights=2)
    step = {
        "csd.flash read": KV,
        "csd.kernel run": KV,
        "csd.commit wait": ROW_PAGES,
        "csd.flash write": ROW_PAGES * 4096,
        "uplink.out move": QUERIES + NEW_KV,
        "uplink.in move": QUERIES,
        "gpu_link.out move": QUERIES + NEW_KV,
        "gpu_link.in move": STREAMED + QUERIES,
        "host.dram read": STREAMED,
        "gpu.hbm read": STREAMED,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
    }
    check(answer.step, step)
    path = {
        f"{name} {verb}": PROMPT_KV
        for name, verb in (("gpu_link.out", "move"), ("uplink.out", "move"), ("csd.flash", "write"))
    }
    prompt = {**path, "host.dram read": STREAMED, "gpu_link.in move": STREAMED}
    prompt.update({"gpu.hbm read": HEAD, "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS})
    check(answer.prefill, prompt)


def test_hilos_rebuilds_the_share_alpha_from_x_and_stores_both() -> None:
    """Two fifths as X; pages of 64 kB hold a whole buffer, spilled every 4 of 20 written rows."""
    alpha, page = 0.4, 65_536
    answer = estimate(
        "hilos", {**IN_FILES, "csd.page": page}, alpha=alpha, interval=4, writeback=1, weights=2
    )
    kv, x = (1 - alpha) * KV, alpha * X
    # a row of X is 8/3 rows of a head of 3; of 21 tokens 20 are written, four rows a page
    rows = 3 * 5 * ((1 - alpha) * 2 * 2 + alpha * 8 / 3)
    buffered = (1 - alpha) * 5 * 3 * 2
    row = 3 * 2 + 3 * 2  # V, and a score of each of 3 queries
    new = (1 - alpha) * (QUERIES + NEW_KV) + alpha * NEW_X
    out = (1 - alpha) * QUERIES
    step = {
        "csd.flash read": kv + x + STREAMED,
        "csd.kernel run": kv,
        "csd.commit wait": rows / 4,
        "csd.flash write": rows / 4 * page * 20 / 21,
        "host.driver wait": buffered,
        "uplink.out move": new + buffered * 2.5 * row,
        "uplink.in move": out + x + STREAMED,
        "host.file move": STREAMED,
        "gpu_link.out move": new,
        "gpu_link.in move": out + x + STREAMED,
        "gpu.hbm read": STREAMED,
        "gpu.tensor run": LINEAR + HEAD_FLOPS + alpha * (ATTEND + REBUILD),
    }
    check(answer.step, step)
    cached = (1 - alpha) * PROMPT_KV + alpha * PROMPT_X
    assert answer.prefill.traffic("write") == {("csd.flash", "write"): pytest.approx(cached)}
    buffers = 4 * 5 * ((1 - alpha) * TOKEN_KV + alpha * TOKEN_X)
    stored = ALL_WEIGHTS + (1 - alpha) * FINAL_KV + alpha * FINAL_X
    expected = {"gpu": BUFFER + ACTIVATIONS, "host": buffers, "csd": stored}
    assert needed(answer) == pytest.approx(expected)

"""Where weights live, by choice and by what the memories hold, for a model counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    BUFFER,
    FINAL_KV,
    SHAPE,
    STREAMED,
    TINY,
    WORK,
    amounts,
    estimate,
    needed,
)

from nearkv.costmodel.mechanisms.weights.percent import drive_share, gpu_share
from nearkv.costmodel.mechanisms.weights.residency import (
    ALL_IN_HOST,
    ALL_ON_GPU,
    ALL_ON_STORAGE,
    Residency,
    beside_gpu,
    cache_breaks,
    host_weights,
    weights_on_gpu,
)
from nearkv.costmodel.model.layers import Mixed
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.inf2 import alpha_of_host_memory
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.placement.placement import place

FILLED, GPU, PAPER, HOST, STORAGE = range(5)


WORKING = BUFFER + ACTIVATIONS


COPIES = 2 * FINAL_KV / 3
"""Host memory for the layer that is read and the one attended to."""


EXACT = {"policy.pinned_rounding": 0.0, "host.usable": 1.0}


@pytest.mark.parametrize(
    ("choice", "on_gpu", "in_host", "stored"),
    [(GPU, 1, 0, 0), (PAPER, 0, 1, 0), (HOST, 0, 1, 0), (STORAGE, 0, 0, 1)],
)
def test_weights_come_from_where_they_are_put(
    choice: int, on_gpu: float, in_host: float, stored: float
) -> None:
    answer = estimate("flexgen-ssd", EXACT, gpu_batches=1, weights=choice)
    loads = amounts(answer.step.parts["head"])
    head = 11 * 8 * 2
    assert loads.get("gpu_link.in move", 0) == (1 - on_gpu) * head
    assert loads.get("host.dram read", 0) == in_host * head
    assert loads.get("ssd.flash read", 0) == stored * head
    working = ALL_WEIGHTS if on_gpu else BUFFER
    tiers = {
        "gpu": working + ACTIVATIONS,
        "host": COPIES + in_host * ALL_WEIGHTS,
        "ssd": FINAL_KV + stored * ALL_WEIGHTS,
    }
    assert needed(answer) == pytest.approx(tiers)


@pytest.mark.parametrize(
    ("gpu_tokens", "free_in_host", "shares"),
    [
        (0.5, 0.25, (0.5, 0.25, 0.25)),
        (0.5, 2.0, (0.5, 0.5, 0.0)),
        (-0.5, 0.25, (0.0, 0.25, 0.75)),
        (0.0, -1.0, (0.0, 0.0, 1.0)),
    ],
)
def test_weights_fill_the_faster_memory_first(
    gpu_tokens: float, free_in_host: float, shares: tuple[float, float, float]
) -> None:
    """Memories that leave so many times the weights beside what the step needs.

    A weight that stays on the GPU needs no place in the buffer of those in transfer.
    """
    changes = {
        **EXACT,
        "gpu.memory": WORKING + gpu_tokens * (ALL_WEIGHTS - BUFFER),
        "host.memory": COPIES + free_in_host * ALL_WEIGHTS,
        "host.usable": 1.0,
    }
    answer = estimate("flexgen-ssd", changes, chunk=0, gpu_batches=1, weights=FILLED)
    loads = amounts(answer.prefill)
    on_gpu, in_host, stored = shares
    assert loads.get("gpu_link.in move", 0) == pytest.approx((1 - on_gpu) * STREAMED)
    assert loads.get("host.dram read", 0) == pytest.approx(in_host * STREAMED)
    assert loads.get("ssd.flash read", 0) == pytest.approx(stored * STREAMED)


def test_weights_that_all_stay_need_no_buffer() -> None:
    """A GPU with room for all weights and the activations, and a byte less."""
    changes = {**EXACT, "gpu.memory": ALL_WEIGHTS + ACTIVATIONS}
    whole = estimate("flexgen-ssd", changes, gpu_batches=1, weights=FILLED)
    assert amounts(whole.prefill).get("gpu_link.in move", 0) == 0
    short = {**EXACT, "gpu.memory": ALL_WEIGHTS + ACTIVATIONS - 1}
    streamed = amounts(estimate("flexgen-ssd", short, gpu_batches=1, weights=FILLED).prefill)
    share = 1 - 1 / (ALL_WEIGHTS - BUFFER)
    assert streamed["gpu_link.in move"] == pytest.approx((1 - share) * STREAMED)


def test_the_papers_rule_looks_at_weights_and_activations() -> None:
    hw = load_platform("inf2-a100").machine()
    for memory, stays in ((ALL_WEIGHTS + ACTIVATIONS, 1), (ALL_WEIGHTS + ACTIVATIONS - 1, 0)):
        assert weights_on_gpu(TINY, WORK, gpu(hw.with_values({"gpu.memory": memory}))) == stays


def test_shares_beside_the_gpu_are_of_the_others() -> None:
    tiers = beside_gpu(0.2, 0.25)
    assert (tiers.gpu, tiers.host, tiers.storage) == pytest.approx((0.2, 0.6, 0.2))


def test_host_memory_begins_to_hold_cache_where_weights_have_left() -> None:
    """Memory for the copies, 3/4 of the weights and half of the cache."""
    room = COPIES + 0.75 * ALL_WEIGHTS
    changes = {**EXACT, "gpu.memory": WORKING, "host.memory": room}
    hw = load_platform("inf2-a100").machine().with_values(changes)
    begins, holds_all, _ = cache_breaks(hw, TINY, WORK, {"weights": PAPER})
    assert begins == pytest.approx(0.25)
    assert holds_all == pytest.approx(0.25 + FINAL_KV / ALL_WEIGHTS)


@pytest.mark.parametrize(("on_gpu", "overflows"), [(0.0, 0.25), (0.5, 0.5)])
def test_host_memory_is_full_until_more_weights_than_overflow_it_are_stored(
    on_gpu: float, overflows: float
) -> None:
    """Of the weights a quarter fits neither the GPU nor host memory: a share of those beside it."""
    changes = {
        **EXACT,
        "gpu.memory": WORKING + on_gpu * (ALL_WEIGHTS - BUFFER),
        "host.memory": COPIES + (0.75 - on_gpu) * ALL_WEIGHTS,
    }
    hw = load_platform("inf2-a100").machine().with_values(changes)
    assert cache_breaks(hw, TINY, WORK, {"weights": FILLED})[2] == pytest.approx(overflows)
    # where all of them have room there is none: -1 is no share
    roomy = hw.with_values({"host.memory": COPIES + 2 * ALL_WEIGHTS})
    assert cache_breaks(roomy, TINY, WORK, {"weights": FILLED})[2] == -1


def test_buffers_as_large_as_x_leave_no_reason_against_x() -> None:
    """K and V of 81 tokens take 29,160 bytes, more than X of all 121 with 29,040."""
    hw = load_platform("inf2-a100").machine().with_values({**EXACT, "host.memory": ALL_WEIGHTS})
    knobs = {"weights": PAPER, "writeback": 1, "interval": 81}
    assert alpha_of_host_memory(hw, TINY, WORK, knobs) == 1


@pytest.mark.parametrize(
    ("tiers", "tier"), [(ALL_ON_GPU, 0), (ALL_IN_HOST, 1), (ALL_ON_STORAGE, 2)]
)
def test_shares_of_weights_add_up_to_one(tiers: Residency, tier: int) -> None:
    shares = [tiers.gpu, tiers.host, tiers.storage]
    assert shares == [float(place == tier) for place in range(3)]


PINNED = load_platform("inf2-a100").machine().with_values({"policy.pinned_rounding": 1.0})


@pytest.mark.parametrize(
    ("llm", "exact", "pinned"),
    [
        # rows of 8 x 4.5 bits: 81, 27 and 85.5 B of matrices take 128, 32 and 128
        (
            replace(TINY, weight_width=0.5625),
            2 * 81 + 2 * 27 + 3 * 85.5,
            2 * 128 + 2 * 32 + 3 * 128,
        ),
        # without a feed-forward, at two bytes: 288 and 96 B
        (replace(TINY, ffn=0.0), 2 * 288 + 2 * 96, 2 * 512 + 2 * 128),
        # one layer with three of 304 B, two layers with three of 640 B
        (
            Mixed(
                **SHAPE,
                types_by_name={
                    "narrow": replace(TINY, layers=1.0),
                    "wide": replace(TINY, layers=2.0, ffn=40.0),
                },
            ),
            3 * (2 * 288 + 2 * 96) + 3 * 304 + 2 * 3 * 640,
            3 * (2 * 512 + 2 * 128) + 3 * 512 + 2 * 3 * 1024,
        ),
    ],
)
def test_a_pinned_matrix_fills_a_power_of_two(llm: LLM, exact: float, pinned: float) -> None:
    """Half of the weights are in host memory."""
    half = Residency(0.25, 0.5, 0.25)
    expected = 0.5 * llm.weight_bytes * pinned / exact
    assert host_weights(PINNED, llm, half) == pytest.approx(expected)


DIVIDED = {"tensors": 1.0, "cache": 1.0}


def test_a_roomy_gpu_holds_all_weights_and_no_more() -> None:
    hw = load_platform("t4-box").machine().with_values({"host.usable": 1.0})
    assert gpu_share(hw.with_values({"gpu.memory": 1e12}), TINY, WORK, DIVIDED) == 1
    # a cache that alone overfills host memory leaves all weights to the drives
    full = hw.with_values({"host.memory": FINAL_KV / 2})
    assert drive_share(full, TINY, WORK, {**DIVIDED, "gpu_weights": 0.0}) == 1
    # half of the weights beside the cache
    half = hw.with_values({"host.memory": FINAL_KV + ALL_WEIGHTS / 2})
    assert drive_share(half, TINY, WORK, {**DIVIDED, "gpu_weights": 0.0}) == pytest.approx(0.5)


def test_what_is_not_full_does_not_bind() -> None:
    """Disks that hold nothing at the optimum are worth nothing."""
    hw = load_platform("t4-flexgen").machine()
    answer = place(hw, model("opt-30b", hw), Workload(1.0, 512.0, 32.0), gpu_batch=4, num_batches=2)
    assert answer.used["disk"] < 1
    assert "disk" not in answer.binding
    assert answer.worth["disk"] == 0

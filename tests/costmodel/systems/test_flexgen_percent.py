"""FlexGen at given shares: dequantised weights, copies, the cache where it is told to be."""

from __future__ import annotations

import pytest
from support.offloading import CACHE, WEIGHTS, bed, layers, short_step
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    BUFFER,
    FINAL_KV,
    HEAD_FLOPS,
    KV,
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


@pytest.mark.parametrize(
    ("system", "knobs", "bytes_each", "cache_passes"),
    [
        # a kernel reads 0.5625 bytes and writes 2, which the products read
        # and the cache is read, written anew by eager operations, read by products
        ("zero-inference", {"cache": 1.0}, 0.5625 + 2 + 2, 3),
        # two elements: 2 x (read 1, write 1, read 1, sectors of 4 read and written), then twice
        # read 4, write 4; products take views of the cache
        ("flexgen-percent", {"cache": 0.0}, 0.5625 - 0.5 + (22 + 16) / 2 + 2, 1),
    ],
)
def test_packed_weights_pass_gpu_memory_several_times(
    system: str, knobs: dict[str, float], bytes_each: float, cache_passes: int
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
        traffic = layers("flexgen-percent", hw, cache=1.0, gpu_batches=batches).traffic()
        reads.append(traffic["gpu.hbm", "read"])
    assert reads[1] == pytest.approx(3 * reads[0], rel=0.001)


def test_flexgen_copies_what_nobody_pins_before_it_moves() -> None:
    # each byte read, its new line filled and written at 0.8 of the DRAM bandwidth
    pinned, copied = (short_step("flexgen-percent", cache=0.0, pin=pin) for pin in (1.0, 0.0))
    assert copied - pinned == pytest.approx(WEIGHTS * 3 / (0.8 * 153.6e9), rel=0.001)


def test_a_gpu_that_attends_draws_the_cache_over_its_link() -> None:
    traffic = layers("flexgen-percent", bed("zero-a6000"), cache=1.0, attend=1.0).traffic()
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
    ("cache", "attend", "beside", "tiers"),
    [
        (0, 0, {"gpu.hbm read": KV, "gpu.tensor run": ATTEND}, (1, 0, 0)),
        (
            1,
            0,
            {
                "host.dram read": KV,
                "gpu_link.in move": QUERIES,
                "gpu_link.out move": QUERIES + NEW_KV,
            },
            (0, 1, 0),
        ),
        (
            1,
            1,
            {
                "host.dram read": 4 * KV,
                "gpu_link.in move": KV,
                "gpu.hbm read": KV,
                "gpu.tensor run": ATTEND,
            },
            (0, 1, 0),
        ),
        (
            2,
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
            (0, 0, 1),
        ),
    ],
)
def test_flexgen_places_weights_and_cache_as_told(
    cache: int, attend: int, beside: dict[str, Real], tiers: tuple[int, int, int]
) -> None:
    """Attention reads K and V once on the GPU; a copy to a pinned buffer adds three passes."""
    answer = estimate("flexgen-percent", cache=cache, attend=attend, **PERCENT)
    check(answer.step, plus(LOADED, beside))
    gpu, host, ssd = tiers
    working = 0.25 * ALL_WEIGHTS + 0.75 * BUFFER + ACTIVATIONS
    expected = {
        "gpu": working + gpu * FINAL_KV,
        "host": 0.45 * ALL_WEIGHTS + host * FINAL_KV,
        "ssd": 0.3 * ALL_WEIGHTS + ssd * FINAL_KV,
    }
    assert needed(answer) == pytest.approx(expected)
    prompt = amounts(answer.prefill)
    assert prompt.get("gpu_link.out move", 0) == (1 - gpu) * PROMPT_KV
    assert prompt.get("ssd.flash write", 0) == ssd * PROMPT_KV
    future = 3 * 2 * 5 * 100**2 * 18  # the other half of the square of scores
    assert prompt["gpu.tensor run"] == PROMPT_FLOPS + future + HEAD_FLOPS

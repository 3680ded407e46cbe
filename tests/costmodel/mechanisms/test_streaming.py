"""One GPU that streams its weights: ZeRO-Inference and FlexGen by shares, against hand counts."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.weights.percent import eager_prompts, whole_tensors
from nearkv.costmodel.mechanisms.weights.residency import beside_gpu
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

WORK = Workload(96.0, 512.0, 32.0).at(528.0)
WEIGHTS = 48 * 12 * 7168**2 * 2
"""Matrices of OPT-30B's layers, 12 h^2 each, 16 bits [B]."""
CACHE = 48 * 4 * 7168 * 96 * 528
"""K and V of 96 sequences of 528 tokens, 4 h bytes a layer and token [B]."""
LINK = 0.8 * 31.5e9
"""PCIe 4.0 x16 from pinned memory [B/s]."""


def bed(name: str, **widths: float) -> Machine:
    """A test bed whose weights or cache have so many bytes an element."""
    changes = {f"precision.{key}": value for key, value in widths.items()}
    return load_platform(name).machine().with_values(changes)


ALL_IN_HOST: dict[str, dict[str, Real]] = {
    "zero-inference": {"ssd_weights": 0.0},
    "flexgen-percent": {"gpu_weights": 0.0, "ssd_weights": 0.0},
}
"""Knobs that leave all weights in host memory."""


def layers(system: str, hw: Machine, **knobs: Real) -> Span:
    """The layers of a decode step of OPT-30B, without the output head."""
    llm = model("opt-30b", hw)
    return SYSTEMS[system](hw, llm, WORK, {**ALL_IN_HOST[system], **knobs}).step.parts["layers"]


def test_zero_inference_waits_for_what_its_bucket_does_not_hold() -> None:
    # 2 h^2 of the 12 h^2 weights of a layer come beside its attention, which takes longer
    hw = bed("zero-a6000")
    attend = CACHE / (0.117 * 153.6e9)
    step = layers("zero-inference", hw, cache=0.0, pin=2.0).seconds
    assert step > WEIGHTS / LINK * 10 / 12 + attend
    assert step == pytest.approx(WEIGHTS / LINK * 10 / 12 + attend, rel=0.05)
    alone = layers("zero-inference", hw, cache=0.0, prefetch=12.0, pin=2.0).seconds
    # then all weights come beside attention, and both read the host's memory
    assert alone == pytest.approx(attend + WEIGHTS / 153.6e9, rel=0.01)


def test_a_larger_bucket_never_slows_a_step_down() -> None:
    buckets = np.arange(13.0)
    step = layers("zero-inference", bed("zero-a6000"), cache=1.0, prefetch=buckets)
    seconds = np.asarray(step.seconds)
    assert np.all(np.diff(seconds) <= 1e-9)
    assert seconds[2] < seconds[0]


@pytest.mark.parametrize(
    ("system", "knobs", "bytes_each"),
    [
        # a kernel reads 0.5625 bytes and writes 2, which the products read
        ("zero-inference", {"cache": 1.0}, 0.5625 + 2 + 2),
        # two elements: 2 x (read 1, write 1, read 1, write 2), then twice read 4, write 4
        ("flexgen-percent", {"cache": 0.0}, 0.5625 - 0.5 + (10 + 16) / 2 + 2),
    ],
)
def test_packed_weights_pass_gpu_memory_several_times(
    system: str, knobs: dict[str, float], bytes_each: float
) -> None:
    # and both move the cache thrice: read, written anew by eager operations, read by products
    hw = bed("zero-a6000", weight=0.5625)
    traffic = layers(system, hw, **knobs).traffic()
    weights = WEIGHTS / 2 * bytes_each
    assert traffic["gpu.hbm", "read"] == pytest.approx(weights + 3 * CACHE, rel=0.002)
    assert traffic["gpu_link.in", "move"] == pytest.approx(WEIGHTS / 2 * 0.5625, rel=0.001)


def test_flexgen_unpacks_weights_for_each_gpu_batch_anew() -> None:
    hw = bed("zero-a6000", weight=0.5625)
    reads = []
    for batches in (1.0, 3.0):
        traffic = layers("flexgen-percent", hw, cache=1.0, gpu_batches=batches).traffic()
        reads.append(traffic["gpu.hbm", "read"])
    assert reads[1] == pytest.approx(3 * reads[0], rel=0.001)


def test_full_width_needs_no_unpacking() -> None:
    paths = layers("flexgen-percent", bed("zero-a6000"), cache=0.0).breakdown()
    assert sum(seconds for path, seconds in paths.items() if "unpack" in path) == 0


def step_of(system: str, **knobs: Real) -> float:
    """Seconds of the layers of OPT-30B for one short sequence, which computes next to nothing."""
    hw = bed("zero-a6000")
    work = Workload(1.0, 32.0, 32.0)
    answer = SYSTEMS[system](hw, model("opt-30b", hw), work, {**ALL_IN_HOST[system], **knobs})
    return float(answer.step.parts["layers"].seconds)


def test_zero_inference_takes_what_nobody_pins_at_the_pageable_rate() -> None:
    # 0.8 of the link or 0.29; drives pass pinned buffers either way
    auto, pageable, pinned = (step_of("zero-inference", cache=1.0, pin=pin) for pin in range(3))
    assert pageable / pinned == pytest.approx(0.8 / 0.29, rel=0.01)
    assert auto == pinned  # the cache is on the GPU
    drives = [step_of("zero-inference", cache=1.0, ssd_weights=1.0, pin=pin) for pin in range(3)]
    assert len(set(drives)) == 1


def test_flexgen_copies_what_nobody_pins_before_it_moves() -> None:
    # each byte read, its new line filled and written at 0.8 of the DRAM bandwidth
    pinned, copied = (step_of("flexgen-percent", cache=0.0, pin=pin) for pin in (1.0, 0.0))
    assert copied - pinned == pytest.approx(WEIGHTS * 3 / (0.8 * 153.6e9), rel=0.001)


@pytest.mark.parametrize(
    ("asked", "placed"),
    [
        # centres of Q, K, V, O at 1/8, 3/8, 5/8, 7/8, of up and down at 1/4 and 3/4
        ((0.2, 0.0), (1 / 12, 0.0)),
        ((0.55, 0.0), (1 / 2, 0.0)),
        ((0.0, 0.5), (0.0, 1 / 2)),
        ((0.0, 0.2), (0.0, 1 / 12)),
        ((1.0, 0.0), (1.0, 0.0)),
    ],
)
def test_shares_are_of_whole_tensors(
    asked: tuple[float, float], placed: tuple[float, float]
) -> None:
    on_gpu, ssd = asked
    tiers = whole_tensors(model("opt-30b", bed("t4-box")), beside_gpu(on_gpu, ssd), 0.0)
    assert (tiers.gpu, tiers.storage) == pytest.approx(placed)
    divided = whole_tensors(model("opt-30b", bed("t4-box")), beside_gpu(on_gpu, ssd), 1.0)
    assert (divided.gpu, divided.storage) == pytest.approx((on_gpu, (1 - on_gpu) * ssd))


def test_prompts_of_flexgen_write_the_whole_square_of_scores() -> None:
    hw = bed("t4-box")
    llm = model("opt-6.7b", hw)
    span = eager_prompts(llm, 2.0, 512.0, gpu(hw))
    scores = 2 * 32 * 512**2
    assert span.parts["scores"].seconds == pytest.approx(13 * scores / (0.85 * 320e9))
    linear = 2 * 2 * 512 * 12 * 4096**2
    square = 4 * 2 * 512**2 * 4096
    assert span.parts["products"].seconds == pytest.approx((linear + square) / (0.37 * 65e12))


def test_a_gpu_that_attends_draws_the_cache_over_its_link() -> None:
    traffic = layers("flexgen-percent", bed("zero-a6000"), cache=1.0, attend=1.0).traffic()
    assert traffic["gpu_link.in", "move"] == pytest.approx(WEIGHTS + CACHE, rel=0.001)


def test_prompts_of_many_tokens_visit_every_expert() -> None:
    """400 tokens choose 2 of 8 experts each: one that none chooses is less than 1e-40 likely."""
    system = SYSTEMS["zero-inference"]
    hw = bed("zero-a6000")
    llm = model("mixtral-8x7b", hw)
    prefill = system(hw, llm, Workload(4.0, 100.0, 2.0), {"ssd_weights": 0.0}).prefill
    moved = prefill.parts["layers"].traffic()["gpu_link.in", "move"]
    layers = llm.weight_bytes - llm.head_bytes
    assert moved == pytest.approx(layers, rel=0.01)

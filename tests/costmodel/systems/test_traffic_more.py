"""Bytes and FLOPs of INF², FlexGen by percentages, ZeRO-Inference and H2M2, counted by hand."""

from __future__ import annotations

import numpy as np
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
    TINY,
    WORK,
    X,
    amounts,
    check,
    estimate,
    needed,
    plus,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.systems.inf2 import alpha_of_host_memory
from nearkv.hardware.catalog import load_platform

HALF = {"gpu.memory": BUFFER + ACTIVATIONS}
"""A GPU that holds no weights for good."""


ALPHA = 0.4
SPLIT: dict[str, Real] = {
    **HALF,
    "host.memory": ALPHA * FINAL_X + ALL_WEIGHTS,
    "policy.pinned_rounding": 0,
    "csd.page": 4096,
}
"""No room for the cache in host memory beside X of two fifths of the batch and all weights."""
KNOBS: dict[str, Real] = {
    "alpha": ALPHA,
    "interval": 4,
    "writeback": 1,
    "buffering": 0.25,
    "weights": 2,
    "ssd_weights": 0.25,
}


def test_inf2_attends_near_storage_to_what_is_not_x() -> None:
    answer = estimate("inf2", SPLIT, **KNOBS)
    near, new = 0.6 * KV, 0.6 * (QUERIES + NEW_KV)
    rows = 3 * 5 * 0.6 * 2 * 2
    scores = 3 * 6 * 3 * 110.5
    stored = 0.25 * STREAMED
    step = {
        "csd.flash read": near + stored,
        "csd.dram write": near,
        # 8 passes over 16-bit scores
        "csd.dram read": near + 8 * 2 * scores,
        # transposing and multiplying 3 queries, three passes of two operations a score
        "csd.kernel run": near / 2 * (1 + 2 * 3) + 2 * 3 * scores,
        "csd.commit wait": rows / 4,
        "csd.flash write": rows / 4 * 4096 * 20 / 21,
        "host.driver wait": 3 * 3,
        "uplink.out move": new + 1.5 * 0.6 * NEW_KV,
        "uplink.in move": 0.6 * QUERIES + stored,
        "host.file move": stored,
        "host.dram read": 0.75 * STREAMED + ALPHA * X,
        "gpu_link.out move": new + ALPHA * NEW_X,
        "gpu_link.in move": 0.6 * QUERIES + STREAMED + ALPHA * X,
        "gpu.hbm read": STREAMED,
        "gpu.tensor run": LINEAR + HEAD_FLOPS + ALPHA * (ATTEND + REBUILD),
    }
    check(answer.step, step)


def test_inf2_writes_prompts_where_they_are_attended_to() -> None:
    answer = estimate("inf2", SPLIT, **KNOBS)
    stored = 0.25 * STREAMED
    prompt = {
        "csd.flash read": stored,
        "csd.flash write": 0.6 * PROMPT_KV,
        "uplink.in move": stored,
        "uplink.out move": 0.6 * PROMPT_KV,
        "host.file move": stored,
        "host.dram read": 0.75 * STREAMED,
        "gpu_link.out move": 0.6 * PROMPT_KV + ALPHA * PROMPT_X,
        "gpu_link.in move": STREAMED,
        "gpu.hbm read": HEAD,
        "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS,
    }
    check(answer.prefill, prompt)
    host = 0.75 * ALL_WEIGHTS + ALPHA * FINAL_X + 4 * 0.6 * NEW_KV
    tiers = {"gpu": BUFFER + ACTIVATIONS, "host": host, "csd": 0.25 * ALL_WEIGHTS + 0.6 * FINAL_KV}
    assert needed(answer) == pytest.approx(tiers)


def test_a_cache_that_fits_is_the_cpus_in_inf2() -> None:
    changes = {**HALF, "policy.pinned_rounding": 1.0}
    knobs: dict[str, Real] = {
        "alpha": 0.4,
        "interval": 4,
        "writeback": 1,
        "buffering": 0,
        "ssd_weights": 0,
    }
    answer = estimate("inf2", changes, **knobs)
    step = {
        "host.dram read": STREAMED + 0.6 * KV + 0.4 * X,
        "gpu_link.out move": 0.6 * (QUERIES + NEW_KV) + 0.4 * NEW_X,
        "gpu_link.in move": 0.6 * QUERIES + 0.4 * X + STREAMED,
        "gpu.hbm read": STREAMED,
        "gpu.tensor run": LINEAR + HEAD_FLOPS + 0.4 * (ATTEND + REBUILD),
    }
    check(answer.step, step)
    host = needed(answer)["host"]
    rounding = (2 * 512 + 2 * 128 + 3 * 512) / (2 * 288 + 2 * 96 + 3 * 304)
    assert host == pytest.approx(rounding * ALL_WEIGHTS + 0.6 * FINAL_KV + 0.4 * FINAL_X)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_papers_alpha_fills_what_buffers_and_weights_leave(share: float) -> None:
    """X of a share of the batch takes the place of its buffered K and V, two tokens of each."""
    buffers = 2 * NEW_KV
    room = share * (FINAL_X - buffers)
    hw = load_platform("inf2-a100").machine()
    changes = {**HALF, "policy.pinned_rounding": 0, "host.memory": ALL_WEIGHTS + buffers + room}
    paper = {"weights": 2}
    delayed = alpha_of_host_memory(hw.with_values(changes), TINY, WORK, paper)
    assert delayed == pytest.approx(share)
    naive = {**paper, "writeback": 0, "interval": 2}
    changes["host.memory"] = ALL_WEIGHTS + share * FINAL_X
    assert alpha_of_host_memory(hw.with_values(changes), TINY, WORK, naive) == pytest.approx(share)


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
        (0, 0, {"gpu.hbm read": 3 * KV, "gpu.tensor run": ATTEND}, (1, 0, 0)),
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
                "gpu.hbm read": 3 * KV,
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
                "gpu.hbm read": 3 * KV,
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
    """Eager attention moves K and V thrice on the GPU; a copy to a pinned buffer adds three."""
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


@pytest.mark.parametrize(("on_gpu", "ahead"), [(0, 0), (1, 3), (0, 3), (0, 64)])
def test_zero_inference_moves_every_weight_once_however_early(on_gpu: int, ahead: int) -> None:
    answer = estimate("zero-inference", ssd_weights=0.25, cache=on_gpu, prefetch=ahead)
    loaded: dict[str, Real] = {
        "ssd.flash read": 0.25 * STREAMED,
        "ssd_link.in move": 0.25 * STREAMED,
        "host.file move": 0.25 * STREAMED,
        "host.dram read": 0.75 * STREAMED,
        "gpu_link.in move": STREAMED,
        "gpu.hbm read": STREAMED,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
    }
    # three query heads a KV head: read, written with the new token, read, written and read thrice
    near: dict[str, Real] = {"gpu.hbm read": 9 * KV, "gpu.tensor run": ATTEND}
    far: dict[str, Real] = {
        "host.dram read": KV,
        "gpu_link.in move": QUERIES,
        "gpu_link.out move": QUERIES + NEW_KV,
    }
    check(answer.step, plus(loaded, near if on_gpu else far))
    assert amounts(answer.prefill).get("gpu_link.out move", 0) == (1 - on_gpu) * PROMPT_KV
    host = 0.75 * ALL_WEIGHTS + (1 - on_gpu) * FINAL_KV
    gpu = BUFFER + ACTIVATIONS + on_gpu * FINAL_KV
    assert needed(answer) == {"gpu": gpu, "host": host, "ssd": 0.25 * ALL_WEIGHTS}
    layer = amounts(answer.step.parts["layers"])
    assert layer["gpu_link.in move"] == LAYERS + (0 if on_gpu else QUERIES)


# --- asymmetric memory: weights and activations of every product, K and V of every head -----------

QKV_MOVED = 3 * (8 * 30 + 5 * (8 + 30)) * 2
OUTPUT_MOVED = 3 * (18 * 8 + 5 * (18 + 8)) * 2
UP_MOVED = 3 * (8 * 38 + 5 * (8 + 38)) * 2
DOWN_MOVED = 3 * (19 * 8 + 5 * (19 + 8)) * 2
MOVED = QKV_MOVED + OUTPUT_MOVED + UP_MOVED + DOWN_MOVED
COPIED = 3 * 5 * 2 * (30 + 18 + 8 + 38 + 8)
"""Outputs of the products and of attention, which both sides need."""


def test_one_memory_reads_weights_activations_and_cache() -> None:
    """A product takes one tile of 128 x 128 and 128 cycles, filling its array takes 3 x 128."""
    answer = estimate("lpddr-only")
    step = amounts(answer.step)
    powered = step.pop("lpddr.on wait")
    assert powered == pytest.approx(answer.step.seconds)
    expected = {
        "lpddr.memory read": MOVED + KV,
        "lpddr.vectors run": 2 * 5 * 110.5 * 3 * 18,
        "lpddr.arrays run": 3 * 4 * 128,
        "lpddr.arrays wait": 3 * 4 * 3 * 128,
    }
    assert step == pytest.approx(expected)
    assert needed(answer) == {"lpddr": LAYERS + FINAL_KV}
    hw = load_platform("gh-asymmetric").machine()
    energy = hw.lpddr.count * hw.lpddr.power * answer.step.seconds / 5
    assert answer.also == {"memory_energy_j_tok": pytest.approx(energy)}


def test_heads_on_hbm_and_on_lpddr_are_all_heads() -> None:
    """One KV head and its three query heads on each side, so nothing is kept twice."""
    answer = estimate("asymmetric", n_attention=3, n_qkv=3, n_fc=3)
    step = amounts(answer.step)
    assert step["hbm.memory read"] + step["lpddr.memory read"] == pytest.approx(
        MOVED + 2 * 3 * 5 * (8 + 18 + 8 + 19) + KV
    )
    assert step["c2c.link move"] == COPIED
    assert step["c2c.barrier wait"] == 3 * 5
    assert step["hbm.vectors run"] == step["lpddr.vectors run"] == 5 * 110.5 * 3 * 18
    cache, qkv, fc = KV / 2, 3 * 8 * 30 * 2 / 2, (LAYERS - 3 * 8 * 30 * 2) / 2
    assert needed(answer)["hbm"] == needed(answer)["lpddr"] == pytest.approx(cache + qkv + fc)
    assert needed(answer)["both"] == LAYERS + FINAL_KV
    gigabytes = {name: answer.also[f"hbm_{name}_gb"] for name in ("attention", "qkv", "fc")}
    assert gigabytes == pytest.approx({"attention": cache / 1e9, "qkv": qkv / 1e9, "fc": fc / 1e9})


def test_a_static_mapping_gives_every_sublayer_the_same_heads() -> None:
    """HBM for 60 % of the weights and cache at 200 tokens would hold 3.6 heads; half is 3."""
    whole = LAYERS + 5 * 200 * 72
    answer = estimate("flexgen-mapping", {"hbm.count": 1, "hbm.memory": 0.6 * whole}, longest=200)
    alike = estimate(
        "asymmetric", {"hbm.count": 1, "hbm.memory": 0.6 * whole}, n_attention=3, n_qkv=3, n_fc=3
    )
    assert answer.step.seconds == alike.step.seconds
    assert not answer.notes
    beyond = estimate("flexgen-mapping", {"hbm.count": 1, "hbm.memory": 0.6 * whole}, longest=100)
    assert np.all(list(beyond.notes.values()))


def test_what_exceeds_hbm_is_brought_from_lpddr() -> None:
    """A quarter beside the kernels, the rest before; the prompt's cache is 100 tokens long."""
    hw = load_platform("gh-asymmetric").machine()
    room = LAYERS + KV - 1000
    answer = estimate("hierarchical", {"hbm.count": 1, "hbm.memory": room})
    step = amounts(answer.step)
    assert step["lpddr.memory read"] == step["c2c.link move"] == pytest.approx(1000)
    before = amounts(answer.step.parts["before"])
    assert before["c2c.link move"] == pytest.approx(1000 * (1 - hw.derate.migration_overlap))
    assert "c2c.link move" not in amounts(answer.prefill)
    tight = estimate("hierarchical", {"hbm.count": 1, "hbm.memory": LAYERS + PROMPT_KV - 500})
    assert amounts(tight.prefill)["c2c.link move"] == pytest.approx(500)
    assert needed(tight) == {"both": LAYERS + FINAL_KV}


def test_hbm_of_eight_gpus_reduces_once_a_layer() -> None:
    hw = load_platform("gh-asymmetric").machine()
    answer = estimate("hbm-8")
    step = amounts(answer.step)
    assert step["collective.link wait"] == pytest.approx(3 * hw.collective.all_reduce)
    assert step["hbm8.memory read"] == MOVED + KV

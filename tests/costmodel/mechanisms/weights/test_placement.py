"""Rows of FlexGen's placement for a model that is not OPT, counted by hand.

A gated mixture of 4 experts, 2 of them active, of half a byte a weight, 4 a cached element and 3 an
activation: 2,208 elements a layer, of which a token multiplies 1,296. A block of 3 batches of 2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import model
from support.tiny import SHAPE

from nearkv.costmodel.mechanisms.weights.placement import (
    BlockSchedule,
    capacity,
    cpu_attention_rate,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform

MIXTURE = LLM(
    **{**SHAPE, "experts": 4, "active_experts": 2},
    weight_width=0.5,
    kv_width=4.0,
    activation_width=3.0,
)


RATES = {
    "host_to_gpu": 2.0,
    "disk_to_host": 4.0,
    "gpu_to_host_cache": 5.0,
    "gpu_to_host_hidden": 8.0,
    "host_to_disk_cache_prefill": 10.0,
    "host_to_disk_hidden_prefill": 16.0,
    "host_to_disk_decode": 25.0,
    "disk_weight_share": 0.5,
    "matmul_prefill": 100.0,
    "matmul_decode": 20.0,
    "attention_prefill": 50.0,
    "attention_decode": 40.0,
}


T4 = load_platform("t4-flexgen").machine()


HW = T4.with_values({f"offload.{name}": rate for name, rate in RATES.items()})


BLOCK = BlockSchedule(HW, MIXTURE, Workload(1.0, 10.0, 4.0), 6.0, 2.0, 12.0)


SHARES = [0.5, 0.3, 0.2, 0.1, 0.6, 0.3, 0.2, 0.3, 0.5]
"""Weights, cache and activations on the GPU, in host memory, on the disk."""


AT = np.array([*SHARES, 6.0, 2.0])


WEIGHTS = 1104  # a layer's bytes


# a token's K and V take 2 x 6 x 4 B, its activations 8 x 3 B
AWAY, STORED = WEIGHTS * 0.5, WEIGHTS * 0.2


def test_seconds_of_a_layer_of_prefill() -> None:
    """11 tokens of cache and 10 of activations of 6 sequences: 3,168 B and 1,440 B."""
    loads = (AWAY + 1440 * 0.8) / 2 + (STORED + 1440 * 0.5) / 4
    stores = 3168 * (0.9 / 5 + 0.3 / 10) + 1440 * (0.8 / 8 + 0.5 / 16)
    compute = 6 * (2 * 10 * 1296 / 100 + 4 * 10 * 10 * 18 / 50)
    assert BLOCK.prefill() @ AT == pytest.approx([loads, stores, compute])


def test_seconds_of_a_layer_of_decode() -> None:
    """12 tokens of context: 3,456 B of cache, of which 288 B are new; 144 B of activations."""
    loads = (AWAY + 144 * 0.8) / 2
    activations = 144 * 0.8 / 8
    reads = (3456 * 0.3 + 144 * 0.5) / 4 + STORED / (0.5 * 4)
    writes = (288 * 0.3 + 144 * 0.5) / 25
    attention = 4 * 12 * 18 * 6
    compute = 6 * 2 * 1296 / 20 + attention * (0.1 / 40 + 0.9 / 12)
    beside_loads = np.array([activations, reads, writes, compute])
    assert BLOCK.decode() @ AT == pytest.approx(loads + beside_loads)


def test_bytes_of_memories() -> None:
    """14 tokens in the end: 672 B a sequence and layer. A token at work has X, Q, K, V and the
    output, 2 x 8 + 2 x 18 + 2 x 6, two active experts' gated layers of 19, and 8 again, of 3 B."""
    token = 3 * (64 + 2 * 19 * 2 + 8)
    kept = 3 * WEIGHTS * 0.5 + 3 * 672 * 6 * 0.1 + 2 * AWAY
    scores = 3 * (2 * 18 * 10 + 6 * 10**2)
    gpu_prefill = kept + 240 * (6 * 0.2 + 2 * 0.8) + 2 * (10 * token + scores)
    row = 2 * 672 + 3 * (2 * 18 + 6 * 14)
    gpu_decode = kept + 24 * (6 * 0.2 + 2 * 0.8) + 2 * row * 0.1 + 2 * token
    in_host = 3 * WEIGHTS * 0.3
    prompts = 480 * 3 * 6 * 0.6 + 240 * 6 * 0.3
    host_prefill = in_host + prompts + AWAY + 240 * 2 * 0.8
    step = 672 * 3 * 6 * 0.6 + 24 * 6 * 0.3
    from_disk = STORED + 2 * 2 * (24 * 0.5 + 672 * 0.3)
    host_decode = in_host + step + from_disk + 2 * 3 * (6 * 14 + 18)
    disk = 3 * (STORED + 672 * 6 * 0.3) + 240 * 6 * 0.5
    expected = [gpu_prefill, gpu_decode, host_prefill, host_decode, disk]
    assert BLOCK.memory() @ AT == pytest.approx(expected)


def test_a_layer_that_is_not_gated_holds_its_inner_activation_once() -> None:
    plain = replace(BLOCK, llm=replace(MIXTURE, gated=0.0))
    # two experts' 19 elements of 3 B, for 2 sequences; a matrix of 8 x 19 of each expert less
    (fewer,) = np.diff([(block.memory() @ AT)[1] for block in (plain, BLOCK)])
    matrix = 4 * 8 * 19 * 0.5
    assert fewer == pytest.approx(2 * 2 * 19 * 3 + 3 * matrix * 0.5 + 2 * matrix * 0.5)


def test_four_fifths_of_all_devices_may_be_filled() -> None:
    many = T4.with_values({"gpu.count": 2.0, "gpu.memory": 5.0, "disk.count": 3.0})
    sized = many.with_values({"disk.capacity": 7.0, "host.memory": 11.0})
    room = {tier: float(size) for tier, size in capacity(sized).items()}
    assert room == pytest.approx({"gpu": 8.0, "host": 8.8, "disk": 16.8})


def test_half_the_width_costs_the_cpu_what_its_fit_says() -> None:
    """Batches of 64 lose nothing; each halving of 4,096 loses c3 of the rate (FlexGen's fit)."""
    narrow = replace(model("opt-30b", T4), hidden=2048.0)
    lost = T4.offload.cpu_small_model
    rate = cpu_attention_rate(T4, narrow, 64.0)
    assert rate == pytest.approx(T4.offload.cpu_attention * (1 - lost), rel=1e-12)
    joint = T4.offload.cpu_joint - T4.offload.cpu_small_batch
    both = cpu_attention_rate(T4, narrow, 32.0)
    assert both == pytest.approx(T4.offload.cpu_attention * (1 - lost + joint), rel=1e-12)

"""Bytes that dequantising moves through GPU memory, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.configs import AWQ, quantised_llama
from support.offloading import bed, layers
from support.systems import SYSTEMS, machine_of, middle
from support.tiny import TINY

from nearkv.costmodel.mechanisms.gpu_layer import (
    dequantise_cache,
    dequantise_traffic,
    dequantise_weights,
    launches,
    prompt_kernel,
    unmeasured_kernels,
)
from nearkv.costmodel.model.layers import Mixed, Recurrent
from nearkv.costmodel.model.resources import Gpu, gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform


def test_full_width_needs_no_unpacking() -> None:
    paths = layers("flexgen-percent", bed("zero-a6000"), gpu_cache=1.0).breakdown()
    assert sum(seconds for path, seconds in paths.items() if "unpack" in path) == 0


def test_packed_keys_and_weights_are_unpacked_once() -> None:
    """Of 100 B of half a byte each 200 elements: written and read in 3 B, and 10.5 B beyond."""
    narrow = replace(TINY, kv_width=0.5, weight_width=0.5, activation_width=3.0)
    device = gpu(load_platform("hgx-h200").machine())
    moved = [
        dequantise_cache(narrow, 100.0, device, 10.5).traffic(),
        dequantise_weights(narrow, 100.0, device, 10.5).traffic(),
    ]
    assert [sum(amounts.values()) for amounts in moved] == [200 * (2 * 3 + 10.5), 200 * 10.5]
    assert dequantise_cache(TINY, 100.0, device, 10.5).seconds == 0
    assert dequantise_weights(TINY, 100.0, device, 10.5).seconds == 0


def gpu_of(platform: str) -> Gpu:
    return gpu(load_platform(platform).machine())


def test_weights_narrower_than_a_product_takes_are_unpacked() -> None:
    a100, h200 = gpu_of("hilos-a100"), gpu_of("hgx-h200")
    # 4-bit weights for a product of 16 bits: four times their bytes, written and read
    assert dequantise_traffic(100.0, 0.5, 2.0, a100) == 2 * 400.0
    # FP8 weights and activations: an A100 multiplies in 16 bits, an H200 in 8
    assert dequantise_traffic(100.0, 1.0, 1.0, a100) == 2 * 200.0
    assert dequantise_traffic(100.0, 1.0, 1.0, h200) == 0.0
    assert dequantise_traffic(100.0, 2.0, 2.0, a100) == 0.0
    several = dequantise_traffic(100.0, np.array([0.5, 2.0]), np.array([2.0, 2.0]), a100)
    assert np.asarray(several).tolist() == [800.0, 0.0]


@pytest.mark.parametrize(("name", "pays"), [("hilos", True), ("gpu", False)])
def test_systems_on_pytorch_pay_for_unpacking_and_serving_engines_do_not(
    tmp_path: Path, name: str, pays: bool
) -> None:
    system, llm = SYSTEMS[name], quantised_llama(tmp_path, AWQ)
    step = system(machine_of(system), llm, Workload(1.0, 1024.0, 64.0), middle(system)).step
    moved = step.traffic()["gpu.hbm", "read"]
    stored = llm.weight_bytes - llm.vocab * llm.hidden * 2
    assert (moved > 2 * stored) == pays


# --- linear layers ------------------------------------------------------------------------------

LINEAR = Recurrent(**vars(TINY), mixer_parameters=100.0, state_size=20.0, state_flops=30.0)
MIXED = Mixed(**vars(TINY), types_by_name={"linear": replace(LINEAR, layers=2)})


def test_prompts_update_a_state_at_a_rate_of_their_own() -> None:
    """Two GPUs of 100 FLOP/s: 4 tokens of 30 FLOP at 0.25 of the peak take 2.4 s."""
    rates = {"gpu.count": 2, "gpu.flops": 100.0, "gpu.prefill_state": 0.25}
    hw = load_platform("hgx-h200").machine().with_values(rates | {"gpu.prefill_attention": 0.5})
    updates = LINEAR.prefill_attention_flops(1.0, 4.0)
    assert prompt_kernel(hw, LINEAR)(updates, "updates").seconds == pytest.approx(2.4)
    # a layer that attends knows nothing of states
    assert prompt_kernel(hw, TINY).rate == 100.0
    assert launches(hw, TINY) == 1.0


@pytest.mark.parametrize(
    ("platform", "microseconds"),
    [("hgx-h100", 514), ("hgx-h200", 512), ("hgx-b200", 429), ("rtx-pro-6000-server", 1151)],
)
def test_prompts_of_linear_layers_take_what_was_measured(
    platform: str, microseconds: float
) -> None:
    """8,192 tokens, 32 heads of 128 x 128, a convolution of 4 over 8,192 channels (vLLM 0.24)."""
    heads = replace(LINEAR, state_flops=7.0 * 32 * 128 * 128 + 2 * 8192 * 4)
    hw = load_platform(platform).machine().with_values({"gpu.count": 1})
    seconds = prompt_kernel(hw, heads)(heads.prefill_attention_flops(1.0, 8192.0), "").seconds
    assert 1e6 * seconds == pytest.approx(microseconds, rel=0.03)


def test_an_engine_without_fused_kernels_launches_a_chain_and_says_so() -> None:
    hw = load_platform("strix-halo").machine()
    assert launches(hw, LINEAR) == 2.4
    assert [bool(mask) for mask in unmeasured_kernels(hw, MIXED).values()] == [True]
    assert not any(unmeasured_kernels(hw, TINY).values())
    served = load_platform("hgx-h200").machine()
    assert launches(served, LINEAR) == 1.0
    assert not unmeasured_kernels(served, MIXED)

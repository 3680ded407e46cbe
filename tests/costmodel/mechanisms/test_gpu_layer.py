"""What dequantising moves through GPU memory, by hand."""

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
)
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

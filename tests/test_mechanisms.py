"""Pieces of mechanisms against their definition: what a system's total may hide."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from conftest import model

from nearkv.costmodel.layers import Recurrent
from nearkv.costmodel.mechanisms.cpu_share import Room
from nearkv.costmodel.mechanisms.dimm import normal_quantile_above
from nearkv.costmodel.mechanisms.head_tables import layer_tables
from nearkv.costmodel.systems.vllm import Parallel, communicate
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform


@pytest.mark.parametrize("tail", [0.5, 0.3, 0.1, 0.01, 1e-4, 1e-6])
def test_a_normal_quantile_is_as_good_as_its_source_says(tail: float) -> None:
    """Abramowitz and Stegun 26.2.23 states an error below 4.5e-4."""
    exact = NormalDist().inv_cdf(1 - tail)
    assert normal_quantile_above(tail) == pytest.approx(exact, abs=4.5e-4)


def test_every_matrix_of_a_recurrent_mixer_is_multiplied_once() -> None:
    """Two FLOPs a weight and token, however they are shared out between the two projections."""
    kinds = model("jamba-v0.1").kinds.values()
    recurrent = [kind for kind in kinds if isinstance(kind, Recurrent)]
    assert recurrent
    for kind in recurrent:
        projected = kind.qkv_flops(7.0) + kind.output_flops(7.0)
        assert projected == pytest.approx(2 * 7.0 * kind.mixer_parameters)


def test_all_layers_on_one_side_leave_nothing_on_the_other() -> None:
    """Every weight matrix of the decoder and the whole KV cache, at one end of the table."""
    llm = model("gpt-175b")
    work = Workload(batch=3.0, prompt=1000.0, output=2.0)
    tables = layer_tables(load_platform("gh-asymmetric").machine(), llm, work)
    layers = int(llm.layers)
    cache = 3 * llm.layers * llm.kv_bytes(1.0, work.context)
    qkv_weights = llm.layers * 3 * llm.hidden**2 * 2
    attention, qkv, _ = (np.ravel(part)[layers] for part in tables.hbm)
    assert attention == pytest.approx(cache)
    assert qkv == pytest.approx(qkv_weights, rel=0.01)
    assert [np.ravel(part)[layers] for part in tables.lpddr] == [0, 0, 0]


def test_stages_hand_over_one_tensor_each() -> None:
    """Two stages: the hidden vector of every token, 16 bits an element, once over the fabric."""
    hw = load_platform("hilos-a100").machine()
    llm = model("opt-66b")
    one_stage = communicate(hw, llm, 5.0, Parallel(tp=4.0, pp=1.0, micro=5.0, idle=1.0))
    two_stages = communicate(hw, llm, 5.0, Parallel(tp=4.0, pp=2.0, micro=5.0, idle=1.0))
    assert one_stage["hand_over"].seconds == 0
    rate = hw.cluster_link.bandwidth * hw.derate.pcie
    assert two_stages["hand_over"].seconds == pytest.approx(9216 * 5 * 2 / rate)


@pytest.mark.parametrize(("host", "holds"), [(8.0, True), (4.0, False)])
def test_a_share_fits_only_where_its_memory_holds_it(host: float, holds: bool) -> None:
    """Eight requests that the CPU all attends to are eight in host memory."""
    room = Room(gpu=100.0, host=host, batch=8.0, replicas=8.0)
    assert room.fits(1.0) == holds


def test_more_than_the_rest_on_the_gpu_needs_its_memory() -> None:
    room = Room(gpu=3.0, host=100.0, batch=8.0, replicas=8.0)
    assert room.fits(0.75)
    assert not room.fits(0.5)

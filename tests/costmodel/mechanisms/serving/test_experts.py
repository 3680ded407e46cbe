"""Experts on a GPU as grouped products, against hand counts for gpt-oss-120b on H200."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.systems import model

from nearkv.costmodel.mechanisms.serving.experts import grouped_products, without_experts
from nearkv.costmodel.mechanisms.serving.split import Split
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

HBM = 4.8e12
"""Of one H200 [B/s]."""


ALONE = Split(1.0, 1.0)


EXPERT = 3 * 2880 * 2880
"""Matrices of one expert of gpt-oss-120b [1]."""


def node(gpus: float) -> Machine:
    """So many H200 of the serving test bed."""
    return load_platform("hgx-h200").machine().with_values({"gpu.count": gpus})


def layer_of(name: str, hw: Machine) -> LLM:
    """A layer of a model, of its first kind."""
    llm = model(name, hw)
    return next(iter(llm.layer_types.values()), llm)


def test_one_token_reads_its_four_experts_unpacking_them() -> None:
    hw = node(1.0)
    llm = layer_of("gpt-oss-120b", hw)
    products = grouped_products(hw, llm, ALONE, 1.0, 1.0).parts["products"]
    packed = 4 * EXPERT * llm.weight_width
    assert products.seconds == pytest.approx(packed / (0.6 * HBM))


def test_many_tokens_are_bound_by_the_products() -> None:
    hw = node(1.0)
    llm = layer_of("gpt-oss-120b", hw)
    products = grouped_products(hw, llm, ALONE, 8192.0, 1.0).parts["products"]
    flops = 2 * 8192 * 4 * EXPERT
    assert products.seconds == pytest.approx(flops / (0.42 * 989.5e12))


@pytest.mark.parametrize("gpus", [1.0, 8.0])
def test_every_gpu_gathers_all_tokens(gpus: float) -> None:
    hw = node(gpus)
    llm = layer_of("gpt-oss-120b", hw)
    gather = grouped_products(hw, llm, Split(gpus, 1.0), 512.0, 1.0).parts["gather"]
    # copies of 4 experts: gathered (read, written), read, written, summed
    assert gather.seconds == pytest.approx(5 * 512 * 4 * 2880 * 2 / (0.84 * HBM))


def test_experts_as_wide_as_their_products_stream_like_any_weights() -> None:
    hw = node(1.0)
    llm = replace(layer_of("gpt-oss-120b", hw), weight_width=2.0)
    products = grouped_products(hw, llm, ALONE, 1.0, 1.0).parts["products"]
    assert products.seconds == pytest.approx(4 * EXPERT * 2 / (0.84 * HBM))


def test_a_dense_layer_has_no_experts_to_group() -> None:
    hw = node(1.0)
    llm = layer_of("llama3.1-8b", hw)
    assert grouped_products(hw, llm, ALONE, 64.0, 1.0).seconds == 0
    assert without_experts(llm).layer_weight_bytes(64.0) == llm.layer_weight_bytes(64.0)


def test_products_of_8_bits_reach_less_of_their_peak() -> None:
    hw = node(1.0)
    units = gpu(hw)
    assert units.products(2.0).rate == pytest.approx(0.77 * 989.5e12)
    assert units.products(1.0).rate == pytest.approx(0.51 * 1979e12)

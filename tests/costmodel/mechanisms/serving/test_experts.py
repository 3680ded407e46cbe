"""Experts on a GPU as grouped products, against hand counts for gpt-oss-120b on H200."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import model

from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.costmodel.mechanisms.serving.experts import (
    grouped_products,
    most_chosen,
    multiplied,
    without_experts,
)
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

HBM = 4.8e12
"""Of one H200 [B/s]."""


ALONE = GpuSplit(1.0, 1.0)


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
    # 256 rows an expert in tiles of 128, of which the last is half empty
    flops = 2 * 128 * (256 + 64) * EXPERT
    assert products.seconds == pytest.approx(flops / (0.54 * 989.5e12))


def test_few_rows_an_expert_take_small_tiles() -> None:
    """2 rows of 16, multiplied as 64: of 128 experts a seventh has none."""
    hw = node(1.0).with_values({"gpu.packed_hbm": 100.0})
    llm = layer_of("gpt-oss-120b", hw)
    products = grouped_products(hw, llm, ALONE, 64.0, 1.0).parts["products"]
    used = 128 * (1 - (1 - 4 / 128) ** 64)
    tiles = 64 * 4 / 16 + used / 2
    assert products.seconds == pytest.approx(2 * tiles * 64 * EXPERT / (0.54 * 989.5e12))


TABLE = {64: 0.517, 128: 0.558, 256: 0.731, 512: 1.026, 1024: 1.340, 2048: 1.675, 4096: 2.439}
"""Milliseconds of gpt-oss-120b's experts on an H200 by tokens, vLLM 0.24, chosen by a power law.

aiconfigurator-core 0.12.0, systems/data/h200_sxm/moe.
"""


@pytest.mark.parametrize("tokens", TABLE)
def test_experts_take_as_long_as_in_a_published_table(tokens: int) -> None:
    hw = node(1.0)
    llm = layer_of("gpt-oss-120b", hw)
    layer = grouped_products(hw, llm, ALONE, float(tokens), 1.0)
    milliseconds = 1e3 * (layer.seconds + hw.gpu.experts_launch)
    assert milliseconds == pytest.approx(TABLE[tokens], rel=0.15)


@pytest.mark.parametrize("gpus", [1.0, 8.0])
def test_every_gpu_gathers_all_tokens(gpus: float) -> None:
    hw = node(gpus)
    llm = layer_of("gpt-oss-120b", hw)
    gather = grouped_products(hw, llm, GpuSplit(gpus, 1.0), 512.0, 1.0).parts["gather"]
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


def test_a_kernel_that_unpacks_weights_reaches_a_share_of_its_own() -> None:
    """Measured on a Radeon 8060S: 60.1 GFLOP in Q4_0 take 5.1 ms; 16-bit weights run faster."""
    hw = load_platform("strix-halo").machine()
    packed = replace(model("llama2-7b", hw), weight_width=4.5 / 8)
    share = multiplied(hw, packed, 2.0, hw.gpu.gemm)
    seconds = 2 * 4096 * 14336 * 512 / (share * hw.gpu.flops)
    assert 1e3 * seconds == pytest.approx(5.1, rel=0.03)
    assert multiplied(hw, model("llama2-7b", hw), 2.0, hw.gpu.gemm) == hw.gpu.gemm
    served = load_platform("hgx-h200").machine()
    assert multiplied(served, packed, 2.0, served.gpu.gemm) == served.gpu.gemm


@pytest.mark.parametrize("copies", [16, 64, 1024])
@pytest.mark.parametrize("ranks", [4, 16, 64])
def test_the_fullest_gpu_is_that_of_the_multinomial(copies: int, ranks: int) -> None:
    rng = np.random.default_rng(copies + ranks)
    drawn = rng.multinomial(copies, np.full(ranks, 1 / ranks), 2000).max(axis=1).mean()
    assert imbalance(float(copies), float(ranks), 1.0) == pytest.approx(
        drawn * ranks / copies, rel=0.12
    )


@pytest.mark.parametrize("ranks", [4, 16])
def test_the_fullest_gpu_follows_the_skew_of_the_router(ranks: int) -> None:
    """128 experts by Zipf's law, dealt out at random; each token chooses four."""
    layer = replace(model("gpt-oss-120b"), router_skew=0.6)
    odds = layer.expert_odds
    rng = np.random.default_rng(ranks)
    shares = [
        rng.permutation(odds).reshape(ranks, -1).sum(axis=1).max() * ranks / 4 for _ in range(2000)
    ]
    many = 1e9
    assert most_chosen(layer, many, float(ranks)) == pytest.approx(np.mean(shares), rel=0.12)
    uniform = replace(layer, router_skew=0.0)
    assert most_chosen(uniform, many, float(ranks)) == pytest.approx(1.0, abs=1e-3)

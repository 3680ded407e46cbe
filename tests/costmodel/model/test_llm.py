"""Shapes: bytes and FLOPs as the papers write them."""

from dataclasses import replace

import numpy as np
import pytest
from support.systems import NATIVE, model
from support.tiny import SHAPE

from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llms_from_parts
from nearkv.hardware.catalog import load_llm


def test_distinct_experts_of_a_batch() -> None:
    # physics: b = 16, k = 2: Mixtral 7.92 of 8, GLaM 25.5 of 64
    assert model("mixtral-8x7b").distinct_experts(16.0) == pytest.approx(7.92, abs=0.005)
    assert model("glam-143b").distinct_experts(16.0) == pytest.approx(25.5, abs=0.05)
    assert model("opt-66b").distinct_experts(1.0) == 1.0
    assert model("mixtral-8x7b").distinct_experts(1.0) == pytest.approx(2.0)


def test_a_skewed_router_over_several_counts_of_experts_is_as_over_each() -> None:
    """Of 20 experts beside 32, ranks 16 to 31 hold five: the other twelve are not there."""
    skewed = replace(LLM(**SHAPE), active_experts=2.0, router_skew=1.0)
    alone = [replace(skewed, experts=count) for count in (20.0, 32.0)]
    each = [np.asarray(llm.distinct_experts(16.0)).item() for llm in alone]
    both = replace(skewed, experts=np.array([20.0, 32.0])).distinct_experts(16.0)
    assert np.ravel(both) == pytest.approx(each, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "ratio"),
    [("opt-66b", 2.0), ("mixtral-8x7b", 0.5), ("qwen2.5-32b", 0.4), ("llama2-70b", 0.25)],
)
def test_kv_over_x_is_two_over_the_group(name: str, ratio: float) -> None:
    llm = model(name)
    assert llm.kv_bytes(3.0, 100.0) / llm.x_bytes(3.0, 100.0) == pytest.approx(ratio)
    assert llm.group * ratio == pytest.approx(2.0)


def test_dense_layer_of_opt_is_twelve_h_squared() -> None:
    llm = model("opt-175b")
    assert llm.layer_parameters(1.0) == 12 * 12288**2
    assert llm.linear_flops(1.0) == 2 * 12 * 12288**2


def test_kv_cache_of_175b_at_128k_is_618_gb() -> None:
    # claims: hilos-dram-oom-b1
    llm = model("opt-175b")
    assert llm.layers * llm.kv_bytes(1.0, 131072.0) == pytest.approx(618.5e9, rel=1e-3)


def test_mqa_holds_one_head_of_kv() -> None:
    from dataclasses import replace

    mha, mqa = model("opt-66b"), replace(model("opt-66b"), kv_heads=1.0)
    assert mqa.kv_bytes(1.0, 1.0) * mha.heads == mha.kv_bytes(1.0, 1.0)
    assert mqa.attention_flops(1.0, 10.0) == mha.attention_flops(1.0, 10.0)


def test_gated_mlp_has_three_matrices() -> None:
    llm = model("llama2-7b")
    assert llm.expert_parameters == 3 * 4096 * 11008


def test_element_widths_scale_bytes_only() -> None:
    from dataclasses import replace

    wide, narrow = model("opt-66b"), replace(model("opt-66b"), weight_width=0.5, kv_width=1.0)
    assert narrow.weight_bytes * 4 == wide.weight_bytes
    assert narrow.kv_bytes(1.0, 8.0) * 2 == wide.kv_bytes(1.0, 8.0)
    assert narrow.linear_flops(7.0) == wide.linear_flops(7.0)


def test_a_batch_of_models_equals_each() -> None:
    names = ("opt-66b", "mixtral-8x7b", "glam-143b")
    each = [model(name) for name in names]
    parts = [load_llm(name) for name in names]
    both = llms_from_parts(parts, np.arange(3), NATIVE)
    for method in ("parameters", "weight_bytes"):
        assert list(getattr(both, method)) == [getattr(llm, method) for llm in each]
    assert np.ravel(both.layer_weight_bytes(16.0)).tolist() == [
        llm.layer_weight_bytes(16.0) for llm in each
    ]


def test_models_of_experts_are_marked_by_one() -> None:
    assert [float(model(name).is_moe) for name in ("mixtral-8x7b", "opt-66b")] == [1.0, 0.0]
    assert replace(model("mixtral-8x7b"), experts=2.0).is_moe == 1.0


def test_a_head_of_its_own_width_is_counted_apart() -> None:
    """840 elements in each of 3 layers of one byte; (11 + 11 + 7) x 8 of embeddings at 2 bytes."""
    narrow = LLM(**SHAPE, weight_width=1.0)
    assert narrow.weight_bytes == 3 * 840 + 29 * 8
    assert replace(narrow, head_width=2.0).weight_bytes == 3 * 840 + 2 * 29 * 8
    # 384 of each layer's are of attention
    assert replace(narrow, dense_width=2.0).weight_bytes == 3 * (840 + 384) + 29 * 8

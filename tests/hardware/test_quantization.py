"""Widths that a quantised configuration states."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from support.configs import AWQ, FP8, quantised_llama

from nearkv.hardware.errors import InputError


@pytest.mark.parametrize(
    ("scheme", "operand"),
    [
        (None, 2.0),  # nothing quantised
        (FP8, 1.0),  # activations are quantised with the weights
        (AWQ, 2.0),  # weights alone: products of 16 bits
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 2.0),
        ({"quant_method": "mxfp4"}, 2.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5),
    ],
)
def test_operands_are_as_wide_as_the_scheme_leaves_them(
    tmp_path: Path, scheme: dict[str, Any] | None, operand: float
) -> None:
    assert quantised_llama(tmp_path, scheme).operands == (operand, operand)


def test_attention_that_is_not_quantised_keeps_its_operands(tmp_path: Path) -> None:
    scheme = {**FP8, "modules_to_not_convert": ["model.layers.*.self_attn"]}
    assert quantised_llama(tmp_path, scheme).operands == (2.0, 1.0)


def resolved(module: str, *parts: str, layers: int = 80) -> list[str]:
    """Names of parts of a module in each of some layers, as tools of quantisation write them."""
    return [f"model.layers.{i}.{module}{part}" for i in range(layers) for part in parts]


@pytest.mark.parametrize(
    ("kept", "bits"),
    [
        # matrices outside the layers of the text (Qwen3-VL, Gemma 3, drafting layers)
        (["model.visual.blocks.0.attn.qkv", "model.visual.blocks.0.attn.proj"], 8),
        (["vision_tower.vision_model.encoder.layers.0.self_attn.q_proj"], 8),
        (["re:.*vision_model.*attention.*", "mtp.layers.0.self_attn*"], 8),
        # small parts (Qwen3-Next, DeepSeek-V3.2), and what only sounds like attention (Qwen3 MoE)
        (resolved("linear_attn.", "conv1d", "in_proj_ba", "in_proj_a", "in_proj_b"), 8),
        (resolved("self_attn.", "q_norm", "indexer.wq_b", "indexer.weights_proj"), 8),
        (resolved("", "post_attention_layernorm", "mlp.gate"), 8),
        # all of attention by name, by pattern, by matrix
        (["model.layers.*.self_attn"], 16),
        (["re:.*self_attn.*"], 16),
        ([r"re:.*self_attn\..*_proj"], 16),
        (["*linear_attn*", "*self_attn*", "model.visual*", "mtp*"], 16),
        ([r"re:.*self_attn\.(q|k|v|o)_proj"], 16),
        (resolved("self_attn", ""), 16),
        (resolved("self_attn.", "q_proj", "k_proj", "v_proj", "o_proj"), 16),
        (resolved("self_attn.", "q_a_proj", "q_b_proj", "kv_b_proj", "o_proj"), 16),
        (resolved("linear_attn.", "in_proj_qkvz", "out_proj"), 16),
        (resolved("self_attention.", "query_key_value", "dense"), 16),
    ],
)
def test_attention_is_kept_where_its_matrices_are_named(
    tmp_path: Path, kept: list[str], bits: float
) -> None:
    scheme = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", *kept]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quantised_llama(tmp_path, scheme).dense_width == bits / 8


@pytest.mark.parametrize(
    ("kept", "bits", "counted"),
    [
        (resolved("self_attn", "", layers=2), 8, "as quantised"),
        (resolved("self_attn", "", layers=79), 16, "in 16 bits"),
        (resolved("self_attn.", "kv_b_proj"), 8, "as quantised"),
        ([r"re:.*layers\.0\.self_attn.*"], 8, "as quantised"),
    ],
)
def test_attention_that_is_kept_in_part_counts_as_most_of_it(
    tmp_path: Path, kept: list[str], bits: float, counted: str
) -> None:
    scheme = {"quant_method": "fp8", "ignore": kept}
    with pytest.warns(match=f"quantises others; all of attention counts {counted}"):
        llm = quantised_llama(tmp_path, scheme)
    assert llm.dense_width == bits / 8


def test_the_scheme_that_modelopt_writes_beside_a_config_counts(tmp_path: Path) -> None:
    scheme = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": scheme}))
    llm = quantised_llama(tmp_path)
    assert (llm.weight_width, llm.kv_width, llm.operands) == (1.0, 1.0, (1.0, 1.0))


def test_a_cache_scheme_may_be_named_by_its_format(tmp_path: Path) -> None:
    assert (
        quantised_llama(tmp_path, {"quant_algo": "FP8", "kv_cache_scheme": "FP8"}).kv_width == 1.0
    )


def mixed(**modules: str) -> dict[str, Any]:
    """A scheme that names an algorithm for each module."""
    layers = {name.replace("__", "."): {"quant_algo": to} for name, to in modules.items()}
    return {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


@pytest.mark.parametrize(
    ("scheme", "mlp", "dense", "head", "operand"),
    [
        # weights in 4 bits with a scale of 8 for 16 of them; attention in 8; the head like the MLP
        (
            mixed(l0__mlp__up="W4A16_NVFP4", l0__self_attn__q="FP8", lm_head="W4A16_NVFP4"),
            *(4.5, 8, (16 + 4.5) / 2, 16),
        ),
        (
            mixed(l1__experts__0__w1="NVFP4", l1__shared_experts__up="MXFP8", l0__mlp__up="MXFP8"),
            *(4.5, 8.25, 16, 4),
        ),
        # attention that is not listed stays in the 8 bits of the others
        ({**mixed(l0__ffn__experts="NVFP4"), "quant_method": "fp8"}, 4.5, 8, 16, 4),
        (mixed(l0__ffn__experts="NVFP4"), 4.5, 16, 16, 4),
    ],
)
def test_modules_have_widths_of_their_own(
    tmp_path: Path, scheme: dict[str, Any], mlp: float, dense: float, head: float, operand: float
) -> None:
    llm = quantised_llama(tmp_path, scheme)
    assert (llm.weight_width, llm.dense_width, llm.head_width, llm.operand_width) == (
        mlp / 8,
        dense / 8,
        head / 8,
        operand / 8,
    )


@pytest.mark.parametrize(
    ("scheme", "problem"),
    [
        (mixed(l0__mlp__up="INT3"), "quantized_layers with quant_algo 'INT3'"),
        ({"quant_algo": "MIXED_PRECISION"}, "must name the algorithm of each module"),
        ({"quant_algo": "W4A0_FP8"}, "quant_algo 'W4A0_FP8', which is not modelled"),
        ({"quant_algo": "W4A16_FP8"}, "quant_algo 'W4A16_FP8', which is not modelled"),
        ({"quant_algo": "W8A99999_FP8"}, "quant_algo 'W8A99999_FP8', which is not modelled"),
        ({"quant_algo": f"W{'9' * 5000}A16_FP8"}, "which is not modelled"),
        ({"quant_method": "bitsandbytes"}, "just one of load_in_4bit and load_in_8bit"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True},
            "just one of load_in_4bit and load_in_8bit",
        ),
    ],
)
def test_a_scheme_that_is_not_known_or_cannot_be_is_refused(
    tmp_path: Path, scheme: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        quantised_llama(tmp_path, scheme)


def test_scales_of_mxfp4_have_8_bits(tmp_path: Path) -> None:
    weights = {"num_bits": 4, "group_size": 32}
    group = {"weights": weights, "format": "mxfp4-pack-quantized"}
    scheme = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    assert quantised_llama(tmp_path, scheme).weight_width == 4.25 / 8


def test_groups_of_activations_change_no_bytes(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """NVFP4 as llm-compressor writes it: only weights are stored with their scales."""
    numbers = {"num_bits": 4, "group_size": 16, "type": "float"}
    group = {"weights": numbers, "input_activations": {**numbers, "dynamic": "local"}}
    llm = quantised_llama(
        tmp_path,
        {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": group},
        },
    )
    assert (llm.weight_width, llm.operand_width) == (4.5 / 8, 4 / 8)
    assert not recwarn.list

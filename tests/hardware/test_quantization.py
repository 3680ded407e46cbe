"""Widths that a quantised configuration states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.configs import AWQ, FP8, quantised_llama


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


def test_the_scheme_that_modelopt_writes_beside_a_config_counts(tmp_path: Path) -> None:
    scheme = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": scheme}))
    llm = quantised_llama(tmp_path)
    assert (llm.weight_width, llm.kv_width, llm.operands) == (1.0, 1.0, (1.0, 1.0))


def test_a_cache_scheme_may_be_named_by_its_format(tmp_path: Path) -> None:
    assert (
        quantised_llama(tmp_path, {"quant_algo": "FP8", "kv_cache_scheme": "FP8"}).kv_width == 1.0
    )

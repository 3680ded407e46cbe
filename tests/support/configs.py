"""Configurations as Hugging Face publishes them, with and without a scheme of quantisation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.systems import NATIVE

from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.hardware.catalog import load_llm

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def quantised_llama(folder: Path, scheme: dict[str, Any] | None = None) -> LLM:
    """Llama of 70 billion parameters, read from its configuration with a quantisation scheme."""
    config = LLAMA if scheme is None else {**LLAMA, "quantization_config": scheme}
    (folder / "config.json").write_text(json.dumps(config))
    return llm_from_part(load_llm(str(folder / "config.json")), NATIVE)

"""Read a model's shape from a Hugging Face config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.part import Part, check_shape
from nearkv.hardware.quantity import LARGEST, Quantity
from nearkv.hardware.schema import KINDS

# schema key -> config key, or a constant of the family, or (config key, default of the family)
_Rule = str | int | tuple[str, int]
_LLAMA: dict[str, _Rule] = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size",
    "heads": "num_attention_heads", "kv_heads": ("num_key_value_heads", 0),
    "head_size": ("head_dim", 0), "vocab": "vocab_size", "positions": 0,
    "gated": 1, "tied": ("tie_word_embeddings", 0),
    "experts": 1, "active_experts": 1, "moe_every": 1,
}  # fmt: skip
FAMILIES: dict[str, dict[str, _Rule]] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": {**_LLAMA, "experts": "num_local_experts", "active_experts": "num_experts_per_tok"},
    "opt": {
        **_LLAMA, "ffn": "ffn_dim", "positions": "max_position_embeddings", "gated": 0,
        "tied": ("tie_word_embeddings", 1), "kv_heads": 0, "head_size": 0,
    },
    "gpt2": {
        **_LLAMA, "layers": "n_layer", "hidden": "n_embd", "ffn": ("n_inner", 0),
        "heads": "n_head", "kv_heads": 0, "head_size": 0, "positions": "n_positions", "gated": 0,
        "tied": ("tie_word_embeddings", 1),
    },
}  # fmt: skip


def load_config(path: Path) -> Part:
    """Read a model's shape from a config.json.

    Args:
        path: the file; its folder names the model.

    Raises:
        InputError: unreadable, not JSON, of an unknown family, or lacking a key.
    """
    config = _read(path)
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise unknown("model_type", str(family), FAMILIES, str(path))
    shape = {key: _value(config, rule, path) for key, rule in FAMILIES[family].items()}
    shape["kv_heads"] = shape["kv_heads"] or shape["heads"]
    shape["ffn"] = shape["ffn"] or 4 * shape["hidden"]
    shape["head_size"] = shape["head_size"] or shape["hidden"] // max(shape["heads"], 1)
    for key, value in shape.items():
        if fault := KINDS["llm"][key].fault(value):
            raise InputError(f"{path}: {key} comes to {value}, which {fault}")
    check_shape(shape, str(path))
    numbers = {
        key: Quantity(value, "1", "datasheet", str(path), "config.json")
        for key, value in shape.items()
    }
    return Part(path.resolve().parent.name or path.stem, "llm", str(path), numbers)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 1 << 20:
            raise InputError(f"{path}: larger than 1 MiB, which no config.json is; check the path")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as problem:  # also what is no JSON, no UTF-8, or a number of 5,000 digits
        raise InputError(f"{path}: not a valid JSON file ({problem}); correct it there") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: must hold a JSON object with model_type and sizes")
    return config


def _value(config: dict[str, Any], rule: _Rule, path: Path) -> int:
    if isinstance(rule, int):
        return rule
    key, default = rule if isinstance(rule, tuple) else (rule, None)
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise InputError(
            f"{path}: lacks {key!r}, which a {config['model_type']} config must have; add it"
        )
    flag = key == "tie_word_embeddings" and isinstance(value, bool)
    if not flag and (
        isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST
    ):
        raise InputError(f"{path}: {key} must be a whole number from 0 to {LARGEST:g}")
    return int(value)

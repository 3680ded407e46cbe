"""A config.json with an odd value anywhere is read or refused in one sentence, never believed."""

from __future__ import annotations

import copy
import json
import math
import random
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError
from nearkv.hardware.part import Part

HERE = Path(__file__).parent
ODD: tuple[object, ...] = (
    *(0, -4, 1.5, 1e9, 10**12, 10**400, math.nan, True),
    *("", "x", [], [1], ["x"], [[1]], {}, {"a": 1}),
)
"""Values that some key of a config.json does not take."""
SIZES = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
WEIGHTS = {"num_bits": 4, "group_size": 128, "symmetric": True, "type": "int"}
SCHEMES: dict[str, dict[str, Any]] = {
    "awq": {"bits": 4, "group_size": 128, "zero_point": True},
    "gptq": {"bits": 4, "group_size": 128, "sym": True, "desc_act": False},
    "fp8": {"weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]},
    "bitsandbytes": {"load_in_4bit": True, "bnb_4bit_use_double_quant": True},
    "mxfp4": {"modules_to_not_convert": ["model.layers.*.self_attn"]},
    "modelopt": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "ignore": []},
    "compressed-tensors": {
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": WEIGHTS, "input_activations": None}},
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    },
}

Place = tuple[Any, ...]


def published() -> dict[str, dict[str, Any]]:
    """Configs of published models, by name."""
    configs = {}
    for file in ("published_configs.toml", "newer_configs.toml"):
        entries = tomllib.loads((HERE / file).read_text())
        for name, entry in entries.items():
            configs[name] = entry.get("config", entry)
    return configs


def places(table: Mapping[str, Any], above: Place = ()) -> Iterator[Place]:
    """Where a value stands in a table, the first of every list included."""
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))
        if isinstance(value, list) and value:
            yield (*above, key, 0)


def changed(table: Mapping[str, Any], place: Place, value: object) -> dict[str, Any]:
    """A copy of a table with another value in one place."""
    copied: Any = copy.deepcopy(table)
    inner = copied
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return dict(copied)


def read(config: Mapping[str, Any], folder: Path) -> Part | None:
    """The model of a config; None where it is refused, in one sentence that names the file."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load_llm(str(path))
        except InputError as refusal:
            sentence = str(refusal)
    assert "\n" not in sentence
    assert str(path) in sentence
    return None


def check(part: Part | None) -> None:
    """Every number of a model is finite and not negative."""
    if part is not None:
        for kind in (part, *part.layer_types):
            for number in kind.numbers.values():
                assert 0 <= number.si < math.inf


@pytest.mark.parametrize("name", published())
def test_an_odd_value_of_a_published_config_is_read_or_refused(name: str, tmp_path: Path) -> None:
    config = published()[name]
    draws = random.Random(name)
    for place in places(config):
        for value in draws.sample(ODD, 2):
            check(read(changed(config, place, value), tmp_path))


@pytest.mark.parametrize("method", SCHEMES)
def test_an_odd_value_of_a_quantisation_is_read_or_refused(method: str, tmp_path: Path) -> None:
    config = {**SIZES, "quantization_config": {"quant_method": method, **SCHEMES[method]}}
    draws = random.Random(method)
    for place in places({"quantization_config": config["quantization_config"]}):
        for value in draws.sample(ODD, 8):
            check(read(changed(config, place, value), tmp_path))


@pytest.mark.parametrize(
    ("method", "place", "value", "words"),
    [
        ("awq", ("bits",), -4, "bits must be a number from 1 to 32"),
        ("awq", ("bits",), 0, "bits must be a number from 1 to 32"),
        ("gptq", ("group_size",), math.nan, "group_size must be a number from -1"),
        ("awq", ("zero_point",), "x", "zero_point must be true or false"),
        ("fp8", ("weight_block_size", 0), -4, "must be two whole numbers, as in [128, 128]"),
        ("fp8", ("modules_to_not_convert",), 3, "modules_to_not_convert must list names"),
        ("compressed-tensors", ("config_groups",), [], "config_groups must be a JSON object"),
        ("compressed-tensors", ("config_groups",), {}, "must be one group"),
    ],
)
def test_an_impossible_quantisation_is_refused(
    method: str, place: Place, value: object, words: str, tmp_path: Path
) -> None:
    scheme = changed({"quant_method": method, **SCHEMES[method]}, place, value)
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "quantization_config": scheme}))
    with pytest.raises(InputError) as refusal:
        load_llm(str(tmp_path / "config.json"))
    assert words in str(refusal.value)


def test_an_unknown_key_of_a_quantisation_is_told(tmp_path: Path) -> None:
    scheme = {"quant_method": "awq", "bits": 4, "outliers_bits": 16}
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "quantization_config": scheme}))
    with pytest.warns(match="the meaning of outliers_bits = 16 is unknown"):
        load_llm(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("qwen3-next-80b-a3b", "full_attention_interval"),
        ("deepseek-v2", "moe_layer_freq"),
        ("kimi-k2-thinking", "moe_layer_freq"),
    ],
)
def test_one_layer_in_none_is_refused(model: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**published()[model], key: 0}))
    with pytest.raises(InputError, match=f"{key} must be 1 or more"):
        load_llm(str(tmp_path / "config.json"))

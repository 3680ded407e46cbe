"""Models from config.json: sizes, types of layer, widths; odd values are refused."""

from __future__ import annotations

import copy
import json
import math
import random
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.configs import LLAMA as LLAMA_3
from support.systems import NATIVE, model

from nearkv.costmodel.model.layers import attention_of
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.hardware.huggingface import part_of_config
from nearkv.hardware.platform import Part

Config = dict[str, Any]
LLAMA: Config = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
OPT: Config = {
    "model_type": "opt",
    "num_hidden_layers": 64,
    "hidden_size": 9216,
    "ffn_dim": 36864,
    "num_attention_heads": 72,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
}
MIXTRAL: Config = {
    **LLAMA,
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
GPT2: Config = {
    "model_type": "gpt2",
    "n_layer": 48,
    "n_embd": 1600,
    "n_head": 25,
    "vocab_size": 50257,
    "n_positions": 1024,
}


def written(folder: Path, config: object) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return str(file)


def read(folder: Path, config: object) -> LLM:
    return llm_from_part(load_llm(written(folder, config)), NATIVE)


@pytest.mark.parametrize(
    ("config", "name"), [(LLAMA, "llama2-70b"), (OPT, "opt-66b"), (MIXTRAL, "mixtral-8x7b")]
)
def test_a_config_has_the_shape_of_the_catalogue(tmp_path: Path, config: Config, name: str) -> None:
    ours, theirs = load_llm(name).si, load_llm(written(tmp_path, config)).si
    same = ours.keys() & theirs.keys() - {"positions"}
    assert len(same) >= 11
    assert {key: theirs[key] for key in same} == {key: ours[key] for key in same}


def test_gpt2_xl_has_its_published_parameters(tmp_path: Path) -> None:
    assert read(tmp_path, GPT2).parameters == pytest.approx(1.5576e9, rel=0.001)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}, "lacks 'num_hidden_layers'"),
        (
            {k: v for k, v in MIXTRAL.items() if k != "num_local_experts"},
            "lacks 'num_local_experts'",
        ),
        ({k: v for k, v in LLAMA.items() if k != "model_type"}, "names no model_type"),
        ({**LLAMA, "hidden_size": "big"}, "must be a whole number"),
        ({**LLAMA, "hidden_size": -1}, "must be a whole number"),
        ({**LLAMA, "num_attention_heads": 0}, "must be more than zero"),
        ({**LLAMA, "num_key_value_heads": 7}, "must be a multiple"),
        ({**LLAMA, "n_layers": 5}, "num_hidden_layers = 80 and n_layers = 5 contradict"),
        ({**LLAMA, "num_key_value_heads": 0}, "num_key_value_heads = 0 must be 1 or more"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "1 to 10,000"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "one entry for each layer, 80"),
        ({**LLAMA, "layer_types": ["mystery"] * 80}, "layer_types names 'mystery'"),
        ({**LLAMA, "quantization_config": {"quant_method": "aqlm"}}, "quant_method 'aqlm'"),
        ({**MIXTRAL, "num_experts_per_tok": 9}, "must be at most experts, 8"),
        ({**OPT, "word_embed_proj_dim": 512}, "word_embed_proj_dim = 512"),
        ({**LLAMA, "text_config": [1, 2]}, "text_config must be a JSON object"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 80, "sliding_window": 0}, "1 or more"),
        ([1, 2], "JSON object"),
    ],
)
def test_a_broken_config_says_what_is_wrong(tmp_path: Path, config: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_llm(written(tmp_path, config))


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """JSON lets the last win, so one of two numbers would be ignored in silence."""
    file = Path(written(tmp_path, LLAMA))
    file.write_text('{"num_hidden_layers": 2, ' + json.dumps(LLAMA)[1:])
    with pytest.raises(InputError, match="key 'num_hidden_layers' stands 2 times"):
        load_llm(str(file))


def test_a_missing_or_mangled_config_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_llm(str(tmp_path / "config.json"))
    (tmp_path / "config.json").write_text("{" * 3000)
    with pytest.raises(InputError, match="not a valid JSON"):
        load_llm(str(tmp_path / "config.json"))


def test_nan_is_no_size_and_infinity_a_limit_of_mamba(tmp_path: Path) -> None:
    """Python's reader takes both; infinity stands in `time_step_limit` of published configs."""
    file = Path(written(tmp_path, LLAMA))
    text = file.read_text()
    file.write_text('{"time_step_limit": [0.0, Infinity], ' + text[1:])
    load_llm(str(file))
    file.write_text('{"rope_theta": NaN, ' + text[1:])
    with pytest.raises(InputError, match="NaN is no number"):
        load_llm(str(file))


def test_a_tower_beside_a_wider_text_has_its_own_width(tmp_path: Path) -> None:
    """Qwen2-VL: 675 million parameters (arXiv:2409.12191, sec. 2), which end 3,584 wide."""
    tower = {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "in_channels": 3}
    tower |= {"patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
    llm = read(tmp_path, {**LLAMA, "hidden_size": 3584, "vision_config": tower})
    # 12 matrices of the width in a block; patches of 2 x 3 x 14 x 14; four of them to the text
    blocks, patches = 32 * 12 * 1280**2, 2 * 3 * 14**2 * 1280
    assert llm.idle_parameters == blocks + patches + 5120 * 5120 + 5120 * 3584
    assert llm.idle_parameters == pytest.approx(675e6, rel=0.001)


def test_an_unknown_family_is_never_guessed_in_silence(tmp_path: Path) -> None:
    with pytest.warns(NearkvWarning, match="unknown model_type 'lama'; all its keys are those of"):
        load_llm(written(tmp_path, {**LLAMA, "model_type": "lama", "hidden_act": "silu"}))
    with pytest.raises(InputError, match="whose num_experts is not modelled") as problem:
        load_llm(written(tmp_path, {**LLAMA, "model_type": "qwen4", "num_experts": 128}))
    assert "did you mean" not in str(problem.value)
    with pytest.raises(InputError, match="unknown model_type 'rwkv'"):
        load_llm(written(tmp_path, {"model_type": "rwkv", "num_hidden_layers": 4}))


@pytest.mark.parametrize("odd", [3, True, "LlamaForCausalLM", [3]])
def test_architectures_of_an_unknown_family_are_names(tmp_path: Path, odd: object) -> None:
    with pytest.raises(InputError, match="architectures must list names"):
        read(tmp_path, {**LLAMA, "model_type": "lama", "architectures": odd})


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl"])
def test_a_model_with_a_tower_may_state_its_text_beside_it(
    tmp_path: Path, model_type: str, recwarn: pytest.WarningsRecorder
) -> None:
    """Qwen2-VL 7B: one table, whose window is not used."""
    windows = {"sliding_window": 32768, "max_window_layers": 80, "use_sliding_window": False}
    tower = {"depth": 32, "embed_dim": 1280, "hidden_size": 8192, "spatial_merge_size": 2}
    tokens = {"vision_start_token_id": 1, "vision_end_token_id": 2, "vision_token_id": 3}
    tokens |= {"image_token_id": 4, "video_token_id": 5}
    scaling = {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    tower |= {"in_chans": 3, "mlp_ratio": 4, "num_heads": 16, "spatial_patch_size": 14}
    own = {"model_type": model_type, "vision_config": tower, **windows, **tokens, **scaling}
    llm, text = read(tmp_path, {**LLAMA, **own}), read(tmp_path, LLAMA)
    assert llm.parameters == text.parameters + llm.idle_parameters
    assert llm.idle_parameters > 0
    assert not llm.layer_types
    assert not recwarn.list


def test_a_window_may_be_stated_twice(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Gemma 2 as published."""
    gemma = {**LLAMA, "model_type": "gemma2", "sliding_window": 4096, "sliding_window_size": 4096}
    assert layers(read(tmp_path, gemma)) == {"full": 40, "window": 40}
    assert not recwarn.list


def test_an_unknown_family_of_known_keys_says_what_a_known_one_needs(tmp_path: Path) -> None:
    """CodeGen has keys of GPT-2 and of GPT-J alone, which no family that is guessed has."""
    codegen = {"model_type": "codegen", "n_embd": 4096, "n_layer": 28, "n_head": 16}
    with pytest.raises(InputError, match="'codegen', which read as llama lacks '"):
        read(tmp_path, {**codegen, "vocab_size": 50400})


def test_a_key_of_unknown_meaning_is_named(tmp_path: Path) -> None:
    with pytest.warns(NearkvWarning, match="meaning of cross_layer_kv = 2 is unknown"):
        load_llm(written(tmp_path, {**LLAMA, "cross_layer_kv": 2}))


# --- layer types -----------------------------------------------------------------------------


def layers(llm: LLM) -> dict[str, float]:
    """Number of layers of each kind."""
    return {name: float(kind.layers) for name, kind in llm.layer_types.items()}


def test_windows_from_a_layer_on_only_where_they_are_used(tmp_path: Path) -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 60}
    assert layers(read(tmp_path, {**qwen, "use_sliding_window": False})) == {}
    windowed = read(tmp_path, {**qwen, "use_sliding_window": True})
    assert layers(windowed) == {"full": 60, "window": 20}
    # 60 full layers of 2 x 8 x 128 elements in 2 B, 20 that stop at 4,096 tokens
    assert windowed.kv_cache_bytes(1, 8192) == 4096 * (60 * 8192 + 20 * 4096)


def test_layer_types_override_the_pattern_of_a_family(tmp_path: Path) -> None:
    types = ["full_attention"] * 79 + ["sliding_attention"]
    llm = read(tmp_path, {**LLAMA, "sliding_window": 1024, "layer_types": types})
    assert layers(llm) == {"full": 79, "window": 1}


def test_every_kind_reads_its_attention_from_its_name(tmp_path: Path) -> None:
    llm = read(tmp_path, {**LLAMA, "model_type": "mistral", "sliding_window": 4096})
    assert {name: attention_of(kind) for name, kind in llm.layer_types.items()} == {
        "window": "window"
    }


# --- quantisation -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + (16 + 4) / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4 + 32 / 64),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384),
        ({"quant_method": "mxfp4"}, 4 + 8 / 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4 + 8 / 16),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            4 + 16 / 32,
        ),
    ],
)
def test_bits_of_a_weight_follow_from_the_scheme(
    tmp_path: Path, scheme: Config, bits: float
) -> None:
    llm = read(tmp_path, {**LLAMA, "quantization_config": scheme})
    assert llm.weight_width == pytest.approx(bits / 8)
    # both embeddings of 32,000 x 8,192 stay in 16 bits
    embeddings = 2 * 32000 * 8192
    matrices = llm.parameters - embeddings
    assert llm.weight_bytes == pytest.approx(matrices * bits / 8 + embeddings * 2)


def test_matrices_that_stay_unquantised_count_in_full(tmp_path: Path) -> None:
    scheme = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    llm = read(tmp_path, {**LLAMA, "quantization_config": scheme})
    attention = 2 * 8192 * (64 + 8) * 128
    mlp = 3 * 8192 * 28672
    assert llm.layer_weight_bytes(1.0) == pytest.approx(attention * 2 + mlp * 4.25 / 8)


@pytest.mark.parametrize(
    "keys",
    [
        {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {
            "quantization_config": {
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "kv_cache_quant_algo": "FP8",
            }
        },
    ],
)
def test_a_cache_in_8_bits_takes_half(tmp_path: Path, keys: Config) -> None:
    full, half = read(tmp_path, LLAMA), read(tmp_path, {**LLAMA, **keys})
    assert half.kv_cache_bytes(1, 1) == full.kv_cache_bytes(1, 1) / 2


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
    "modelopt": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "ignore": [],
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16}}},
    },
    "compressed-tensors": {
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": WEIGHTS, "input_activations": None}},
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    },
}

Place = tuple[Any, ...]


@cache
def published() -> dict[str, dict[str, Any]]:
    """Configs of published models, by name."""
    configs = {}
    for file in ("published_configs.toml", "newer_configs.toml", "autumn_configs.toml"):
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


NARROW = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "intermediate_size": 100,
    "vocab_size": 1000,
    "hidden_size": 96,
    "num_attention_heads": 3,
}


def read_or_refused(config: Mapping[str, Any], folder: Path) -> Part | None:
    """The model of a config; None where it is refused, in one sentence that names the file."""
    path = folder / "config.json"
    table = json.loads(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return part_of_config(table, "odd", str(path), "test")
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
            check(read_or_refused(changed(config, place, value), tmp_path))


@pytest.mark.parametrize("method", SCHEMES)
def test_an_odd_value_of_a_quantisation_is_read_or_refused(method: str, tmp_path: Path) -> None:
    config = {**SIZES, "quantization_config": {"quant_method": method, **SCHEMES[method]}}
    draws = random.Random(method)
    for place in places({"quantization_config": config["quantization_config"]}):
        for value in draws.sample(ODD, 8):
            check(read_or_refused(changed(config, place, value), tmp_path))


@pytest.mark.parametrize(
    ("method", "place", "value", "words"),
    [
        ("awq", ("bits",), -4, "bits must be a number from 1 to 32"),
        ("awq", ("bits",), 0, "bits must be a number from 1 to 32"),
        ("gptq", ("group_size",), math.inf, "group_size must be a number from -1"),
        ("gptq", ("group_size",), 1e-320, "group_size must be 1 or more, or -1 for a row"),
        ("gptq", ("group_size",), 0, "group_size must be 1 or more, or -1 for a row"),
        ("fp8", ("bits",), 1000, "bits must be 8"),
        ("modelopt", ("config_groups", "group_0", "weights", "num_bits"), 8, "must be 4"),
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


def test_what_modelopt_says_twice_is_no_doubt(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    operand = {"dynamic": False, "group_size": 16, "num_bits": 4, "type": "float"}
    group = {"weights": operand, "input_activations": operand, "targets": ["Linear"]}
    scheme = {
        "quant_algo": "NVFP4",
        "quant_method": "modelopt",
        "config_groups": {"group_0": group},
    }
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "quantization_config": scheme}))
    assert load_llm(str(tmp_path / "config.json")).si["weight_width"] == 4.5 / 8
    assert not recwarn.list


@pytest.mark.parametrize("name", ["Qwen3-NVFP4", "llama-w4a16", "x-AWQ-int4", "Phi-4-bnb-4bit"])
def test_a_name_that_says_a_scheme_which_no_file_states_is_told(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SIZES))
    with pytest.warns(match=r"hf_quant_config\.json beside it states a scheme; weights count 16"):
        load_llm(str(folder / "config.json"))
    scheme = {"quantization": {"quant_algo": "NVFP4"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(scheme))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_llm(str(folder / "config.json")).si["weight_width"] == 4.5 / 8


def test_a_type_of_weights_is_sixteen_bits_or_told(tmp_path: Path) -> None:
    def load(key: str, stated: object) -> None:
        (tmp_path / "config.json").write_text(json.dumps({**SIZES, key: stated}))
        load_llm(str(tmp_path / "config.json"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load("torch_dtype", "bfloat16")
        load("dtype", "torch.float16")
    with pytest.warns(match="stores float32; weights count 16 bits"):
        load("torch_dtype", "float32")
    for nonsense in ("int3", 16, ["float16"]):
        with pytest.raises(InputError, match="is no type that weights are stored in"):
            load("dtype", nonsense)


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
    with pytest.raises(InputError, match=f"{key} = 0 must be 1 or more"):
        load_llm(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"hidden_size": 100}, "a width of 100 does not divide into 3 heads"),
        ({"head_dim": 0}, "head_dim = 0 must be 1 or more"),
    ],
)
def test_a_head_has_a_whole_size(keys: dict[str, int], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**NARROW, **keys}))
    with pytest.raises(InputError, match=problem):
        load_llm(str(file))


def test_an_unread_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_3, "mystery": 7}))
    with pytest.warns(NearkvWarning, match="mystery = 7 is unknown.*may change bytes or FLOPs"):
        load_llm(str(tmp_path / "config.json"))


def test_a_catalogued_model_reads_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model("deepseek-v3.2").parameters > 671e9


@pytest.mark.parametrize(
    ("scaling", "window"),
    [
        (
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                }
            },
            131072,
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"factor": 4, "original_max_position_embeddings": 32768}
                }
            },
            131072,
        ),
        # Llama 3's own scaling: the config states more
        ({"rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 2048}}, 40960),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 40960),
        ({}, 40960),
    ],
)
def test_scaled_positions_widen_the_window(
    scaling: dict[str, object], window: float, tmp_path: Path
) -> None:
    """Qwen3-32B states 40,960 positions; with YaRN by its card, 4 times 32,768."""
    llm = read(tmp_path, {**LLAMA, "max_position_embeddings": 40960, **scaling})
    assert llm.longest == window


def test_a_factor_that_is_no_number_is_refused(tmp_path: Path) -> None:
    scaling = {"factor": "four"}
    config = {**LLAMA, "max_position_embeddings": 4096, "rope_scaling": scaling}
    with pytest.raises(InputError, match=r"rope_scaling: factor must be a number from 1"):
        read(tmp_path, config)


def test_a_model_is_named_after_its_file_or_the_folder_of_its_config(tmp_path: Path) -> None:
    (tmp_path / "qwen3-yarn.json").write_text(json.dumps(LLAMA))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert load_llm(str(tmp_path / "qwen3-yarn.json")).name == "qwen3-yarn"
    assert load_llm(str(tmp_path / "config.json")).name == tmp_path.name


def test_an_encoder_is_refused_as_one(tmp_path: Path) -> None:
    """A head that ranks passages, and a BERT whose config names no architecture."""
    path = tmp_path / "bge.json"
    ranker = {"model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"]}
    for own in (ranker, {"model_type": "bert", "type_vocab_size": 2}):
        path.write_text(json.dumps({**LLAMA, **own, "hidden_act": "gelu"}))
        with pytest.raises(InputError, match="is an encoder, which generates no tokens"):
            load_llm(str(path))

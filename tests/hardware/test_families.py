"""40 configurations as published: read right, and no hostile twin of one is read as the same."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.systems import NATIVE

import nearkv.costmodel  # noqa: F401  # owner of the models
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.hardware.families import FAMILIES, NEUTRAL
from nearkv.hardware.files import names, path_of
from nearkv.hardware.huggingface import part_of_config

Config = dict[str, Any]
MILLION = 2.0**20
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
INT8 = {"quant_method": "bitsandbytes", "load_in_8bit": True}


def quoted() -> dict[str, tuple[float, Config]]:
    """Published parameters and config by name: of the catalogue, and of the tests."""
    configs: dict[str, tuple[float, Config]] = {}
    for name in names("model"):
        table = tomllib.loads(path_of("model", name).read_text())
        if "config" in table:
            configs[name] = (table["published"]["value"], table["config"])
    return configs | {name: (table["published"], table["config"]) for name, table in OWN.items()}


FILES = ("published_configs.toml", "newer_configs.toml", "autumn_configs.toml")
TEXTS = [(Path(__file__).parent / file).read_text() for file in FILES]
OWN = {name: table for text in TEXTS for name, table in tomllib.loads(text).items()}
CARDS = {name: table["card"] for name, table in OWN.items()}
CONFIGS = quoted()
# Cards that round: their own digits are the tolerance. GLM-4.5 and Qwen3-Next count a layer of
# multi-token prediction, Llama 4 its vision part.
ROUNDED = {"falcon-40b": 0.035, "kimi-k2": 0.03, "glm-4.5": 0.01, "jamba-v0.1": 0.01}
ROUNDED |= {"falcon-7b": 0.015, "llama4-scout": 0.015, "phi3-mini": 0.01, "minimax-m2": 0.01}
ROUNDED |= {"ernie-4.5-0.3b": 0.005, "ernie-4.5-21b-a3b": 0.005, "glm-4.7-flash": 0.005}
ROUNDED |= {"nemotron-4-15b": 0.005}
# of 2026: cards in whole billions; MiniMax-M3 counts a vision tower that its text config lacks
ROUNDED |= {"minimax-m3": 0.005, "qwen3.5-397b-a17b": 0.002, "qwen3.5-27b": 0.02}
ROUNDED |= {"kimi-k3": 0.01, "mimo-7b": 0.005, "deepseek-v4-flash": 0.002, "deepseek-v4-pro": 0.02}
ROUNDED |= {"gemma-4-26b-a4b": 0.003, "nemotron-h-56b": 0.01, "qwen3-vl-30b-a3b": 0.002}
ROUNDED |= {"minimax-m2.5": 0.01, "qwen3.6-27b": 0.005, "qwen3.6-35b-a3b": 0.01}
ROUNDED |= {"qwen3-next-80b-a3b": 0.01, "mixtral-8x22b": 0.005, "llama4-maverick": 0.005}


def text_of(config: Config) -> Config:
    """The keys that describe the text model."""
    text: Config = config.get("text_config", config)
    return text


def answer(config: Config) -> tuple[float, ...]:
    """All that a config decides: parameters, bytes of weights, KV at 1M tokens, FLOPs."""
    llm = llm_from_part(part_of_config(config, "twin", "config.json", "test"), NATIVE)
    attention = llm.sum_over_layers(lambda kind: kind.attention_flops(1, MILLION))
    prefill = llm.sum_over_layers(lambda kind: kind.prefill_attention_flops(1, MILLION))
    linear = llm.sum_over_layers(lambda kind: kind.linear_flops(1))
    cache = llm.kv_cache_bytes(1, MILLION) + llm.all_state_bytes(1)
    held = (llm.mtp_parameters, llm.longest)
    sizes = (llm.parameters, llm.active_parameters, llm.weight_bytes, cache, *held)
    return tuple(float(value) for value in (*sizes, attention, prefill, linear))


def test_sixty_configs_name_the_card_that_states_their_parameters() -> None:
    assert len(CONFIGS) >= 60
    assert all(re.match(r"(huggingface\.co|arxiv\.org)/\w", card) for card in CARDS.values())
    catalogued = {name for name in CONFIGS if name in names("model")}
    assert CARDS.keys() | catalogued == CONFIGS.keys()


@pytest.mark.parametrize("name", sorted(tomllib.loads(TEXTS[-1]).keys() & set(names("model"))))
def test_a_catalogued_model_has_the_published_config(name: str) -> None:
    """Every key of the published one, with its value; widths of weights come beside them."""
    catalogued = tomllib.loads(path_of("model", name).read_text())["config"]
    published = OWN[name]["config"]
    names_of_its_class = {"model_type", "remove_invalid_values", "tie_encoder_decoder"}
    for shorter, longer in ((published, catalogued), (text_of(published), text_of(catalogued))):
        for key in shorter.keys() - names_of_its_class - {"text_config"}:
            assert longer[key] == shorter[key], key


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_has_its_published_parameters(name: str) -> None:
    published, config = CONFIGS[name]
    rel = ROUNDED.get(name, 0.0013)
    assert answer(config)[0] == pytest.approx(published, rel=rel)


def changed(config: Config, keys: Config) -> Config:
    twin = copy.deepcopy(config)
    text_of(twin).update(keys)
    return twin


def doubled(config: Config, *keys: str) -> Config | None:
    """A twin with twice as much of the first of these keys; None where it has none."""
    text = text_of(config)
    present = [key for key in keys if isinstance(text.get(key), int) and text[key] > 0]
    return changed(config, {present[0]: 2 * text[present[0]]}) if present else None


def twins(config: Config) -> dict[str, Config | None]:
    """Configs that differ in bytes or FLOPs from one, by what was done to it."""
    text = text_of(config)
    window = text.get("sliding_window") or 1024
    halved: Config = {"sliding_window": window // 2}
    if text["model_type"] == "mimo" or text["model_type"].startswith(("qwen", "smollm")):
        halved |= {"use_sliding_window": True, "max_window_layers": 1}
    if set(text.get("layer_types", [])) == {"full_attention"}:
        halved["layer_types"] = None
    return {
        "layers": doubled(config, "num_hidden_layers", "n_layer", "n_layers"),
        "width": doubled(config, *WIDTHS),
        "experts": doubled(config, *EXPERTS),
        "active": doubled(config, "num_experts_per_tok", "moe_k"),
        "heads": doubled(config, "kv_lora_rank", "num_key_value_heads", "num_kv_heads"),
        "chunks": doubled(config, "attention_chunk_size"),
        "shared": doubled(config, *SHARED),
        "window": changed(config, halved),
        "quantised": {**config, "quantization_config": AWQ},
        "8 bits": {**config, "quantization_config": INT8},
        "kv in 8 bits": changed(config, {"kv_cache_scheme": {"num_bits": 8}}),
        "indexer": changed(config, {"index_topk": 1000}),
        "unknown key": changed(config, {"kv_shared_layers": 4}),
    }


WIDTHS = ("moe_intermediate_size", "intermediate_size", "ffn_dim", "expansion_ratio", "head_dim")
"""The first that a config has is used by some layer; MoE models may leave the second unused."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
SHARED: tuple[str, ...] = (
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "num_shared_experts",
)
SHARED += ("moe_num_shared_experts", "shared_intermediate_size")
STATELESS = {"mamba2-2.7b"}
"""Models without a KV cache, which its width and shape cannot change."""


@pytest.mark.parametrize("name", CONFIGS)
def test_no_hostile_twin_is_read_as_the_same(name: str) -> None:
    """Each changes the answer, is refused, or makes a sentence."""
    config = CONFIGS[name][1]
    original = answer(config)
    for what, twin in twins(config).items():
        if twin is None or (what == "kv in 8 bits" and name in STATELESS):
            continue
        try:
            differs = answer(twin) != original
        except (InputError, NearkvWarning):
            continue
        assert differs, f"{name}: {what}"


def test_a_mamba_keeps_a_constant_state() -> None:
    config = CONFIGS["mamba2-2.7b"][1]
    llm = llm_from_part(part_of_config(config, "mamba2", "config.json", "test"), NATIVE)
    # 64 layers x (80 heads x 64 x 128 of state + 3 inputs of 5,120 + 2 x 128 channels) x 2 B
    assert llm.all_state_bytes(1) == 64 * (80 * 64 * 128 + 3 * (5120 + 256)) * 2
    assert llm.kv_cache_bytes(1, MILLION) == 0


def test_a_latent_without_a_query_rank_has_one_query_matrix() -> None:
    config = CONFIGS["deepseek-v2-lite"][1]
    llm = llm_from_part(part_of_config(config, "lite", "config.json", "test"), NATIVE)
    # 2048 x 16 x 192 of queries; 2048 x 576 and 512 x 16 x 256 of latents; 16 x 128 x 2048 out
    matrices = 2048 * 16 * 192 + 2048 * 576 + 512 * 16 * 256 + 16 * 128 * 2048
    assert llm.layer_types["latent_moe"].attention_parameters == matrices


def test_exaone_names_its_windows_by_a_pattern_of_letters() -> None:
    config = dict(CONFIGS["exaone4-32b"][1])
    listed = answer(config)
    del config["layer_types"]
    # three windows, then one full layer, is what `layer_types` lists
    assert answer(config) == listed
    assert answer({**config, "sliding_window_pattern": 4}) == listed
    assert answer({**config, "sliding_window_pattern": "LG"}) != listed
    with pytest.raises(InputError, match="letters other than L and G"):
        answer({**config, "sliding_window_pattern": "LLX"})


def test_granite_4_without_experts_keeps_its_shared_mlp() -> None:
    """Granite 4.0 H Micro has no experts: the shared MLP is all that a layer has."""
    config = {**CONFIGS["granite-4.0-h-small"][1], "num_local_experts": 0}
    llm = llm_from_part(part_of_config(config, "micro", "config.json", "test"), NATIVE)
    for kind in llm.layer_types.values():
        assert kind.layer_parameters(1) - kind.attention_parameters == 3 * 4096 * 1536


LEFT_UNSAID: dict[str, Config] = {
    "hidden_act = 'relu2', so its MLP may have no gate": {"hidden_act": "relu2"},
    "hidden_act = None, so its MLP may have no gate": {"hidden_act": None},
    "whether embeddings are tied": {"tie_word_embeddings": None},
    "how many KV heads": {"num_key_value_heads": None},
    "which layers its sliding_window limits": {"sliding_window": 4096},
}


@pytest.mark.parametrize("reason", LEFT_UNSAID)
def test_an_unknown_family_that_leaves_something_unsaid_is_refused(reason: str) -> None:
    """Apertus and Nemotron have no gate, Gemma ties, OLMo 3 has windows in three of four layers."""
    config = {**CONFIGS["seed-oss-36b"][1], "model_type": "newcomer"}
    with pytest.warns(NearkvWarning, match="all its keys are those of llama"):
        answer(config)
    with pytest.raises(InputError, match=reason):
        answer({**config, **LEFT_UNSAID[reason]})


# --- families of 2026 -------------------------------------------------------------------------

ACTIVE = {
    name: entry["active"]
    for name, entry in tomllib.loads(
        (Path(__file__).parent / "autumn_configs.toml").read_text()
    ).items()
}
"""Parameters that a token uses, as cards count them."""
# cards leave out the embedding, or both embeddings, in whole billions
WITH_EMBEDDINGS = {"mimo-7b", "nemotron-3-nano", "nemotron-3-super", "nemotron-h-56b"}
WITH_EMBEDDINGS |= {"mimo-v2-flash", "step-3.7-flash", "qwen3.5-397b-a17b"}
WITH_EMBEDDINGS |= {"gemma-4-26b-a4b", "gemma-4-31b", "qwen3.5-27b", "qwen3-vl-30b-a3b"}


@pytest.mark.parametrize("name", ACTIVE)
def test_a_token_uses_as_many_parameters_as_the_card_says(name: str) -> None:
    llm = model_of(name)
    held = 0 if name in WITH_EMBEDDINGS else llm.embedding_parameters
    assert llm.active_parameters - held == pytest.approx(ACTIVE[name], rel=0.035)


def model_of(name: str) -> LLM:
    part = part_of_config(CONFIGS[name][1], name, "config.json", "test")
    return llm_from_part(part, NATIVE)


def test_gated_delta_layers_keep_a_state_in_32_bits() -> None:
    linear = model_of("qwen3.5-27b").layer_types["state"]
    # 48 heads of a matrix of 128 x 128 in 4 B; 3 inputs of 2 x 16 x 128 + 48 x 128 channels in 2 B
    assert linear.state_bytes(1) == 48 * 128 * 128 * 4 + 3 * (4096 + 6144) * 2
    # q, k, v; z; a and b of 48 heads; out; a convolution over 4 tokens
    convolved = 4096 + 6144
    matrices = 5120 * (convolved + 6144 + 2 * 48) + 6144 * 5120 + convolved * 4
    assert linear.attention_parameters == matrices


def test_blocks_of_a_pattern_are_layers_of_a_mixer_and_what_follows_it() -> None:
    llm = model_of("nemotron-3-nano")
    # MEMEM*EMEMEM*E...: 23 of M and 6 of *, 23 of E; a M before a * has no MLP
    counts = {name: int(kind.layers) for name, kind in llm.layer_types.items()}
    assert counts == {"state_moe": 17, "state_alone": 6, "full": 6}
    mamba = llm.layer_types["state_alone"]
    # 64 heads x 64 x 128 in 4 B, 3 inputs of 4,096 + 2 x 8 x 128 channels in 2 B
    assert mamba.state_bytes(1) == 64 * 64 * 128 * 4 + 3 * (4096 + 2048) * 2


def test_experts_between_narrow_activations_keep_their_parameters() -> None:
    moe = model_of("nemotron-3-super").layer_types["full"]
    # 512 experts of two matrices, 1,024 x 2,688; latents of 4,096 x 1,024 twice; a shared expert
    # of two matrices 4,096 x 5,376; a router
    assert moe.expert_parameters * moe.experts == 512 * 2 * 1024 * 2688
    beside = 2 * 4096 * 1024 + 2 * 4096 * 5376 + 4096 * 512
    assert moe.shared_parameters == beside


def test_a_model_without_a_width_is_refused_with_narrow_experts_too() -> None:
    config = {**CONFIGS["nemotron-3-super"][1], "hidden_size": 0}
    with pytest.raises(InputError, match="hidden comes to 0, which must be more than zero"):
        part_of_config(config, "narrow", "config.json", "test")


def test_one_kv_head_serves_all_queries_of_bigcode() -> None:
    """StarCoderBase, of 15.5 billion parameters (arXiv 2305.06161, sec. 5)."""
    config: Config = {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48}
    config |= {"n_inner": 24576, "n_positions": 8192, "vocab_size": 49152, "multi_query": True}
    part = part_of_config(config, "starcoder", "config.json", "test")
    llm = llm_from_part(part, NATIVE)
    assert llm.parameters == pytest.approx(15.5e9, rel=0.005)
    assert llm.kv_bytes(1, 1) == 2 * 128 * 2
    many = part_of_config({**config, "multi_query": False}, "starcoder", "config.json", "test")
    assert llm_from_part(many, NATIVE).kv_bytes(1, 1) == 48 * llm.kv_bytes(1, 1)


def test_a_word_says_how_heads_of_mpt_share_keys_and_values() -> None:
    def kv_heads(attention: Config) -> float:
        config = {**CONFIGS["mpt-7b"][1], "attn_config": attention}
        return part_of_config(config, "mpt", "config.json", "test").si["kv_heads"]

    assert kv_heads({}) == kv_heads({"attn_type": "multihead_attention", "kv_n_heads": 8}) == 32
    assert kv_heads({"attn_type": "grouped_query_attention", "kv_n_heads": 8}) == 8
    assert kv_heads({"attn_type": "multiquery_attention"}) == 1
    with pytest.raises(InputError, match="attn_type names 'sparse', which is not modelled"):
        kv_heads({"attn_type": "sparse"})


def test_experts_of_attention_are_refused_by_the_key_that_chooses_them() -> None:
    config: Config = {"model_type": "jetmoe", "num_hidden_layers": 24, "num_experts_per_tok": 2}
    with pytest.raises(InputError, match="num_experts_per_tok = 2 chooses heads of attention"):
        part_of_config(config, "jetmoe", "config.json", "test")


def test_layers_without_an_indexer_take_the_tokens_of_an_earlier_one() -> None:
    kinds = model_of("glm-5.2").layer_types
    own, shared = kinds["sparse_moe"], kinds["sparse_shared"]
    # queries of 32 heads of 128 from rank 2,048, a key and 32 weights from a width of 6,144
    indexer = 2048 * 32 * 128 + 6144 * (128 + 32)
    assert own.attention_parameters - shared.attention_parameters == indexer
    assert own.kv_bytes(1, 1) - shared.kv_bytes(1, 1) == 128 * 2
    assert shared.cache_traffic(1, 100_000) == 2048 * 576 * 2


def test_compressed_layers_have_the_rows_of_the_report() -> None:
    kinds = model_of("deepseek-v4-flash").layer_types
    # 128 rows of the window, one of 512 for every 4 tokens, an index key of 128 beside it
    rows = (128 + 1024) * 512 + 1024 * 128
    assert kinds["compressed"].kv_bytes(1, 4096) == rows * 2
    assert kinds["compressed_heavily"].kv_bytes(1, 4096) == (128 + 32) * 512 * 2
    assert kinds["compressed_window"].kv_bytes(1, 4096) == 128 * 512 * 2
    # queries by rank 1,024, a row, outputs in 8 groups by rank 1,024
    window = 1024 * (4096 + 64 * 512) + 4096 * 512 + 64 * 512 * 1024 + 8 * 1024 * 4096
    assert kinds["compressed_window"].attention_parameters == window
    # two projections of a row and of its weights
    assert kinds["compressed_heavily"].attention_parameters == window + 4096 * 2 * 512


def test_window_layers_have_heads_of_their_own() -> None:
    mimo, gemma = model_of("mimo-v2-flash").layer_types, model_of("gemma-4-31b").layer_types
    # keys of 192 and values of 128: 4 KV heads in full layers, 8 in windows
    assert mimo["full_moe"].kv_bytes(1, 1) == 4 * (192 + 128) * 2
    assert mimo["window"].kv_bytes(1, 1) == 8 * (192 + 128) * 2
    # global layers of Gemma 4 take values from the projection of keys: three matrices, not four
    assert gemma["full"].attention_parameters == 5376 * 512 * (32 + 32 + 4)
    assert gemma["full"].kv_bytes(1, 1) == 2 * 4 * 512 * 2


def test_delta_attention_of_kimi_has_a_gate_of_full_rank() -> None:
    kda = model_of("kimi-k3").layer_types["state_moe"]
    inner = 96 * 128
    # q, k, v, gate and out; a decay of rank 128; a number a head; convolutions over 4 tokens
    matrices = 5 * 7168 * inner + (7168 + inner) * 128 + 7168 * 96 + 3 * inner * 4
    assert kda.attention_parameters == matrices
    assert kda.state_bytes(1) == inner * 128 * 4 + 3 * inner * 3 * 2


def test_last_layers_borrow_the_cache_of_earlier_ones() -> None:
    twin = changed(CONFIGS["gemma-4-31b"][1], {"num_kv_shared_layers": 20})
    llm = llm_from_part(part_of_config(twin, "twin", "config.json", "test"), NATIVE)
    whole = model_of("gemma-4-31b")
    borrowed = [kind for name, kind in llm.layer_types.items() if name.startswith("borrowed")]
    assert sum(float(kind.layers) for kind in borrowed) == 20
    assert llm.kv_cache_bytes(1, 1) < whole.kv_cache_bytes(1, 1)
    assert sum(kind.kv_bytes(1, 1) for kind in borrowed) == 0


GEMMA_3N: Config = {
    "model_type": "gemma3n_text",
    "hidden_size": 2048,
    "intermediate_size": [16384] * 35,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
    "num_kv_shared_layers": 15,
    "vocab_size": 262400,
    "sliding_window": 512,
    "max_position_embeddings": 32768,
}
"""Gemma 3n E4B."""


def test_embeddings_of_layers_are_held_and_not_read() -> None:
    llm = llm_from_part(part_of_config(GEMMA_3N, "3n", "config.json", "test"), NATIVE)
    # MLPs; projections of a layer's embedding; Q and output; K and V in 20 layers; embeddings
    layers = 35 * 2048 * (3 * 16384 + 3 * 256 + 2 * 8 * 256) + 20 * 2048 * 2 * 2 * 256
    assert llm.parameters == layers + 262400 * 2048 + 35 * 256 * 262144
    assert llm.idle_parameters == 35 * 256 * 262144
    # 20 layers hold K and V of 2 x 256, 16 of them those of 512 tokens; 15 read them
    assert llm.kv_cache_bytes(1, 4096) == 2 * 512 * (4 * 4096 + 16 * 512) * 2
    with pytest.raises(InputError, match="intermediate_size must be a whole number"):
        answer({**GEMMA_3N, "intermediate_size": [8192, *[16384] * 34]})


def test_lightning_layers_keep_a_matrix_for_every_head() -> None:
    twin = {**CONFIGS["minimax-m2"][1], "attn_type_list": [0] * 61 + [1]}
    llm = llm_from_part(part_of_config(twin, "twin", "config.json", "test"), NATIVE)
    linear = llm.layer_types["state"]
    assert (linear.layers, llm.layer_types["full"].layers) == (61, 1)
    # 48 heads of 128 x 128 in 4 B; q, k, v, gate and out of 3,072 x 6,144
    assert linear.state_bytes(1) == 48 * 128 * 128 * 4
    assert linear.attention_parameters == 5 * 3072 * 6144


def test_a_window_beside_lightning_layers_limits_the_others() -> None:
    config = {**CONFIGS["minimax-m2"][1], "attn_type_list": [0] * 61 + [1], "sliding_window": 512}
    llm = llm_from_part(part_of_config(config, "twin", "config.json", "test"), NATIVE)
    assert {name: kind.layers for name, kind in llm.layer_types.items()} == {
        "state": 61,
        "window": 1,
    }


# --- every key of the configs of 2026 -----------------------------------------------------------

HOSTILE = [name for name in ACTIVE if name not in ("qwen3-vl-30b-a3b", "deepseek-v4-pro")]
Place = tuple[str, ...]
NO_USE = {"use_double_wide_mlp"}
"""MLPs of layers that share a cache, which none does."""


def leaves(table: Config, above: Place = ()) -> Iterator[tuple[Place, object]]:
    """Places of a table that hold a value, lists whole."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def replaced(config: Config, place: Place, value: object) -> Config:
    """A twin with another value in one place, or without it where the value is None."""
    twin = copy.deepcopy(config)
    table = twin
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    return twin


def other(value: object) -> object:
    """A value of the same type that is not the same."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        another = next((entry for entry in value if entry != value[0]), "hostile")
        return [another, *value[1:]]
    return value + 1 if isinstance(value, int) else "hostile"


def differs(config: Config, original: tuple[float, ...]) -> bool:
    """True if a twin changes the answer, is refused, or makes a sentence."""
    try:
        return answer(config) != original
    except (InputError, NearkvWarning):
        return True


def said_to_change_nothing(config: Config, place: Place) -> bool:
    """True if a family's table, or the list of neutral keys, lets a key pass."""
    family = FAMILIES[text_of(config)["model_type"]]
    key = place[-1]
    ignored = {name.rpartition(".")[2] for name in family.keys.get("ignored", [])}
    return key in ignored | NEUTRAL


def is_overruled(config: Config, place: Place) -> bool:
    """True if the text part says it again, or `use_sliding_window` leaves it unused."""
    text = text_of(config)
    unused = text.get("use_sliding_window") is False
    if unused and place[-1] in ("sliding_window", "max_window_layers"):
        return True
    return len(place) == 1 and "text_config" in config and place[0] in text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_twin_in_any_key_is_noticed(name: str) -> None:
    """Each key changed, mistyped, or given a type that none has."""
    config = CONFIGS[name][1]
    original = answer(config)
    for place, value in leaves(config):
        if said_to_change_nothing(config, place) or place[0] == "vision_config":
            continue
        if place[-1] in NO_USE or is_overruled(config, place):
            continue
        for hostile in (other(value), "mistyped", [["mistyped"]]):
            assert differs(replaced(config, place, hostile), original), f"{place}: {hostile!r}"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_key_left_out_is_noticed_unless_the_family_says_the_same(name: str) -> None:
    config = CONFIGS[name][1]
    original, sizes = answer(config), 0
    for place, _ in leaves(config):
        sizes += differs(replaced(config, place, None), original)
    assert sizes >= 7


def test_a_list_and_a_count_that_contradict_each_other_are_told() -> None:
    config = dict(CONFIGS["glm-5.2"][1])
    with pytest.warns(
        NearkvWarning, match="mlp_layer_types and first_k_dense_replace say otherwise"
    ):
        answer({**config, "first_k_dense_replace": 4})
    config = CONFIGS["qwen3.5-27b"][1]
    with pytest.warns(NearkvWarning, match="tie_word_embeddings is not what text_config says"):
        answer(changed({**config, "tie_word_embeddings": True}, {"tie_word_embeddings": False}))


# --- sizes of checkpoints -----------------------------------------------------------------------

CHECKPOINTS = tomllib.loads((Path(__file__).parent / "checkpoints.toml").read_text())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_weights_are_as_large_as_the_checkpoint(name: str) -> None:
    """Within 1 %: biases, norms, and a draft layer's copies of the embeddings are left out."""
    row = CHECKPOINTS[name]
    config = CONFIGS[row["config"]][1] if "config" in row else {}
    config = {**config, **row.get("keys", {})}
    llm = llm_from_part(part_of_config(config, name, "config.json", "test"), NATIVE)
    drafts = llm.mtp_parameters if row.get("drafts") else 0
    # 16 bits where the scheme leaves draft layers out
    left_out = "mtp*" in config.get("quantization_config", {}).get("ignore", [])
    width = 2.0 if left_out else llm.weight_width
    assert llm.weight_bytes + drafts * width == pytest.approx(row["bytes"], rel=0.01)

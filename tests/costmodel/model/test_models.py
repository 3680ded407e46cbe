"""KV bytes, parameters and kinds of layer of models of today, against hand-derived values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.systems import NATIVE, model

from nearkv.costmodel.algebra.span import Leaf, Real, Span
from nearkv.costmodel.model.latent import Latent, Sparse
from nearkv.costmodel.model.layers import Recurrent, Windowed, over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import alike_llm, llm_from_part, llms_from_parts
from nearkv.hardware.catalog import load_llm, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.folders import path_of
from nearkv.hardware.machine import Role
from nearkv.sweeps.evaluate.models import (
    kv_per_token,
    kv_per_token_unlimited,
    model_numbers,
    model_rows,
)
from nearkv.sweeps.study.study import Study, blocks

K = 1024.0


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("llama3.1-8b", 131_072),  # 32 layers x 2 x 8 heads x 128 x 2 B
        ("llama3.1-70b", 327_680),  # 80 x 2 x 8 x 128 x 2
        ("llama3.1-405b", 516_096),  # 126 x 2 x 8 x 128 x 2
        ("qwen3-30b-a3b", 98_304),  # 48 x 2 x 4 x 128 x 2
        ("deepseek-v3", 70_272),  # 61 layers x (512 latent + 64 rotary) x 2 B
        ("kimi-k2", 70_272),  # 61 x (512 + 64) x 2
        ("gpt-oss-120b", 36_864),  # 18 full layers x 2 x 8 x 64 x 2
        ("gemma3-27b", 81_920),  # 10 full layers x 2 x 16 x 128 x 2
        ("jamba-v0.1", 16_384),  # 4 attention layers x 2 x 8 x 128 x 2
        ("mistral-7b", 0),  # every layer stops at its window
    ],
)
def test_kv_of_one_token_more(name: str, token: int) -> None:
    assert kv_per_token(model(name)) == token


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("gpt-oss-120b", 18 * 2 * 8 * 64 * 2 * 128),  # 18 windows of 128 tokens
        ("gemma3-27b", 436_207_616),  # 52 windows of 1,024 tokens x 2 x 16 x 128 x 2 B
        ("mistral-7b", 32 * 2 * 8 * 128 * 2 * 4096),  # 32 windows of 4,096 tokens
        # 28 states of 8,192 channels x (16 + the last 3 inputs of the convolution) x 2 B
        ("jamba-v0.1", 28 * 8192 * (16 + 3) * 2),
        ("deepseek-v3", 0),
    ],
)
def test_kv_that_does_not_grow(name: str, constant: int) -> None:
    llm = model(name)
    cache = llm.kv_cache_bytes(1, 64 * K) + llm.all_state_bytes(1)
    assert cache - 64 * K * kv_per_token(llm) == constant


def test_an_engine_that_keeps_all_tokens_holds_twice_as_much_of_gpt_oss() -> None:
    # a vLLM log: 5.38 GiB for 78,384 tokens, 73,700 B each
    token = kv_per_token_unlimited(model("gpt-oss-120b"))
    assert token == 73_728
    assert pytest.approx(token, rel=1e-3) == 5.38 * K**3 / 78_384
    rows = {row["key"]: row["value"] for row in model_numbers("gpt-oss-120b")}
    assert rows["kv per token"] == 36_864
    assert rows["kv per token, no windows"] == 73_728


def test_models_show_says_whose_heads_and_what_a_layer_keeps() -> None:
    jamba = {row["key"]: row for row in model_numbers("jamba-v0.1")}
    assert jamba["heads"]["note"] == "of state_moe layers"
    assert jamba["layers: full"]["note"] == "32 heads, 8 of K and V, 4,096 B per token"
    assert jamba["kv at 8k"]["note"] == "of one sequence, its states included"
    llama = {row["key"]: row for row in model_numbers("llama3.1-8b")}
    assert str(llama["kv per token"]["value"]) == "131072"
    assert "kv per token, no windows" not in llama
    sparse = {row["key"]: row["note"] for row in model_numbers("deepseek-v3.2")}
    assert "2,048 tokens that an indexer chooses" in sparse["layers: sparse_moe"]
    listed = {row["model"]: row for row in model_rows()}
    assert listed["jamba-v0.1"]["heads"] == 32


def test_short_contexts_fill_no_window() -> None:
    llm = model("gemma3-27b")
    assert llm.kv_cache_bytes(2, 1000.0) == 62 * 2 * 16 * 128 * 2 * 2 * 1000


NONE, TOKEN, BOTH = 0, 1, 2
"""Embeddings that a card leaves out: none, that of tokens, the output head too."""
ACTIVE = {
    "deepseek-v3": (TOKEN, 37),
    "deepseek-r1": (TOKEN, 37),
    "deepseek-v3.2": (TOKEN, 37),
    "kimi-k2": (TOKEN, 32),
    "glm-4.5": (BOTH, 32),
    "gpt-oss-20b": (TOKEN, 3.6),
    "gpt-oss-120b": (TOKEN, 5.1),
    "gpt-oss-120b-gguf": (TOKEN, 5.1),
    "jamba-v0.1": (NONE, 12),
    "mixtral-8x22b": (NONE, 39),
    "qwen3-235b-a22b": (NONE, 22),
    "qwen3-30b-a3b": (NONE, 3.3),
}
"""What cards print, in 1e9."""


def test_every_published_active_count_is_checked() -> None:
    stated = {n for n in names("model") if "published_active" in load_llm(n).si}
    assert stated == set(ACTIVE)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_have_the_digits_of_the_card(name: str) -> None:
    left_out, printed = ACTIVE[name]
    llm = model(name)
    counted = float(llm.active_parameters - left_out * llm.vocab * llm.hidden) / 1e9
    digits = 1 if isinstance(printed, float) else 0
    # Qwen cuts 3.35 where others round
    rounded = np.floor(10 * counted) / 10 if name == "qwen3-30b-a3b" else round(counted, digits)
    assert rounded == printed
    assert load_llm(name).si["published_active"] == printed * 1e9


# --- formulas of a kind -------------------------------------------------------------------------


def kind(name: str, label: str) -> LLM:
    return model(name).kinds[label]


def test_a_window_bounds_bytes_and_flops_and_makes_prefill_linear() -> None:
    window = kind("gemma3-27b", "window")
    assert isinstance(window, Windowed)
    assert window.attention_flops(1, 10**6) == window.attention_flops(1, 1024)
    # sum over queries of min(position, w), continuous: w^2 / 2 + (s - w) w; times 4 H d
    s, w = 8192.0, 1024.0
    pairs = w**2 / 2 + (s - w) * w
    assert window.prefill_attention_flops(1, s) == 4 * pairs * 32 * 128
    assert window.prefill_attention_flops(1, w) == 2 * w**2 * 32 * 128


def test_a_latent_layer_absorbs_its_projections() -> None:
    latent = kind("deepseek-v3", "latent_moe")
    assert isinstance(latent, Latent)
    # DeepSeek-V3: q 7168 x 1536 and 1536 x 128 x 192; kv 7168 x 576 and 512 x 128 x 256; out
    matrices = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    assert latent.attention_parameters == matrices
    assert latent.qkv_flops(1) + latent.output_flops(1) == 2 * matrices
    # each head: 576 multiply-adds of the query, 512 of the output, a token
    assert latent.attention_flops(1, 1) == 2 * 128 * (576 + 512)
    assert latent.kv_bytes(1, 1) == 576 * 2
    # FLOPs per byte of 16-bit cache: what a kernel built for `group` queries sees
    assert latent.group == latent.attention_flops(1, 1) / latent.kv_bytes(1, 1)


def test_a_state_costs_the_same_at_any_context() -> None:
    state = kind("jamba-v0.1", "state_moe")
    assert isinstance(state, Recurrent)
    assert state.state_bytes(3) == 3 * state.state_bytes(1)
    assert state.kv_bytes(3, 10**6) == state.x_bytes(3, 10**6) == 0
    # a step reads and writes it
    assert state.cache_traffic(3, 10**6) == 2 * state.state_bytes(3)
    assert state.prefill_attention_flops(2, 100) == 100 * state.attention_flops(2, 5)


def test_a_step_sums_over_the_kinds() -> None:
    llm = model("gpt-oss-120b")

    def layer(block: LLM) -> Span:
        return Leaf("gpu.hbm", "read", block.kv_bytes(1, 4096.0), 1.0, "B")

    step = over_layers(llm, layer)
    assert step.seconds == llm.kv_cache_bytes(1, 4096.0)
    assert set(step.breakdown()) == {"full", "window"}
    plain = model("llama2-7b")
    assert over_layers(plain, layer).seconds == 32 * plain.kv_bytes(1, 4096.0)


def test_models_of_different_kinds_share_one_grid() -> None:
    chosen = ["llama2-7b", "gemma3-27b", "deepseek-v3", "jamba-v0.1", "glm-4.5", "gpt-oss-20b"]
    parts = [load_llm(name) for name in chosen]
    together = llms_from_parts(parts, np.arange(len(parts)), NATIVE)
    methods: list[Callable[[LLM], Real]] = [
        lambda llm: llm.parameters,
        lambda llm: llm.weight_bytes,
        lambda llm: llm.kv_cache_bytes(3.0, 5000.0),
        lambda llm: llm.sum_over_layers(lambda kind: kind.linear_flops(7.0)),
        lambda llm: llm.sum_over_layers(lambda kind: kind.prefill_attention_flops(2.0, 3000.0)),
    ]
    for method in methods:
        each = [method(llm_from_part(part, NATIVE)) for part in parts]
        assert np.asarray(method(together)).tolist() == pytest.approx(each, rel=1e-14)


def test_widths_that_the_user_sets_override_those_of_a_model() -> None:
    part = load_llm("gpt-oss-20b")
    wide = Role("", "precision", {"weight": 4.0, "kv": 2.0, "activation": 2.0})
    own = llms_from_parts([part], np.array([0]), wide)
    assert own.weight_width == pytest.approx(4.25 / 8)
    overridden = llms_from_parts([part], np.array([0]), wide, ["weight"])
    assert overridden.weight_bytes == pytest.approx(4 * overridden.parameters)


# --- names --------------------------------------------------------------------------------------


def test_a_hub_name_finds_the_catalogues_model_or_says_where_to_save_its_config() -> None:
    assert load_llm("meta-llama/Llama-3.1-8B").name == "llama3.1-8b"
    assert load_llm("deepseek-ai/deepseek-v3").name == "deepseek-v3"
    with pytest.raises(InputError, match=r"save its config\.json as Qwen4-1T/config\.json"):
        load_llm("Qwen/Qwen4-1T")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3-31b", ""),
        ("qwen3-32", "qwen3-32b"),
        ("opt-65b", ""),
        ("gptoss-120b", "gpt-oss-120b"),
        # of the size of longchat-7b and mistral-7b, and of no family of the catalogue
        ("falcon-7b", ""),
        ("vicuna-7b", ""),
        ("lama3.1-8b", "llama3.1-8b"),
        ("Gemma-3-27B", "gemma3-27b"),
    ],
)
def test_hints_never_cross_sizes_or_families(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"unknown model '{name}'") as problem:
        load_llm(name)
    assert (f"did you mean {hint!r}" in str(problem.value)) == bool(hint)


def test_a_shape_far_from_its_published_count_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    text = path_of("model", "opt-66b").read_text()
    assert "66e9" in text
    file.write_text(text.replace("66e9", "88e9"))
    with pytest.raises(InputError, match=r"its shape has 6\.571e\+10 parameters, published are 8"):
        blocks(Study(("hilos",), (str(file),)))


def test_solvers_refuse_layers_that_they_do_not_model() -> None:
    with pytest.raises(InputError, match="multi-head latent attention is not modelled by placem"):
        alike_llm(load_llm("deepseek-v3"), NATIVE, "placement")


# --- attention to chosen tokens -----------------------------------------------------------------


def test_an_indexer_reads_every_key_and_few_latents() -> None:
    sparse = kind("deepseek-v3.2", "sparse_moe")
    assert isinstance(sparse, Sparse)
    # a token caches 512 + 64 latent elements and an indexer's key of 128, in 2 B
    assert sparse.kv_bytes(1, 1) == (576 + 128) * 2
    # a step at 64k reads all keys, 2,048 latents
    assert sparse.cache_traffic(1, 64 * K) == (64 * K * 128 + 2048 * 576) * 2
    assert sparse.cache_traffic(1, 1000) == sparse.kv_bytes(1, 1000)
    scores = 2 * 64 * K * 64 * 128
    attended = 2 * 2048 * 128 * (576 + 512)
    assert sparse.attention_flops(1, 64 * K) == scores + attended
    # queries 1536 x 64 x 128, key 7168 x 128, weights 7168 x 64
    indexer = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64
    latent = kind("deepseek-v3", "latent_moe")
    assert sparse.attention_parameters - latent.attention_parameters == indexer


def test_a_long_prompt_attends_to_chosen_latents_and_a_short_one_to_heads() -> None:
    sparse = kind("deepseek-v3.2", "sparse_moe")
    dense = kind("deepseek-v3", "latent_moe")
    scores = 64 * 128
    short, long = 1024.0, 64 * K
    assert sparse.prefill_attention_flops(1, short) == (
        scores * short**2 + dense.prefill_attention_flops(1, short)
    )
    band = 2048 * long - 2048**2 / 2
    assert sparse.prefill_attention_flops(1, long) == (
        scores * long**2 + 2 * band * 128 * (576 + 512)
    )

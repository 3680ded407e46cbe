"""Bytes of a cache by the numbers that `models show` prints."""

from __future__ import annotations

import pytest
from support.systems import model

from nearkv.sweeps.evaluate.models import (
    kv_per_token,
    kv_per_token_unlimited,
    model_numbers,
    model_rows,
)

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
    assert (jamba["heads"]["value"], jamba["heads"]["note"]) == (32, "of layers that attend")
    assert jamba["layers: full"]["note"] == "32 heads, 8 of K and V, 4,096 B per token"
    assert jamba["kv at 8k"]["note"] == "of one sequence, its states included"
    llama = {row["key"]: row for row in model_numbers("llama3.1-8b")}
    assert str(llama["kv per token"]["value"]) == "131072"
    assert "kv per token, no windows" not in llama
    sparse = {row["key"]: row["note"] for row in model_numbers("deepseek-v3.2")}
    assert "2,048 tokens that an indexer chooses" in sparse["layers: sparse_moe"]
    listed = {row["model"]: row for row in model_rows()}
    assert listed["jamba-v0.1"]["heads"] == 32


def test_models_show_says_what_each_kind_keeps() -> None:
    kinds = {row["key"]: row["value"] for row in model_numbers("gpt-oss-120b")}
    # 18 layers of 2,048 B a token; of windows no more than 128 tokens, 1/64 of 8k
    assert kinds["kv per token at 8k: full"] == 18 * 2048
    assert kinds["kv per token at 8k: window"] == 18 * 2048 / 64
    assert kinds["kv per token at 128k: window"] == 18 * 2048 / 1024
    # cards count without the embedding and the head of 201,088 x 2,880
    active = kinds["active parameters"] - kinds["active, no embeddings"]
    assert active == pytest.approx(2 * 201_088 * 2880 / 1e9)
    jamba = model("jamba-v0.1")
    rows = {row["key"]: row["value"] for row in model_numbers("jamba-v0.1")}
    states = [value for key, value in rows.items() if key.startswith("state: ")]
    assert sum(states) == jamba.all_state_bytes(1)

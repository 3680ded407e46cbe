"""Layers that attend to some tokens of a cache: bytes and FLOPs by hand, in small numbers."""

from __future__ import annotations

from typing import Any

import pytest

from nearkv.costmodel.model.chosen import Borrowed, Compressed, Selected
from nearkv.costmodel.model.llm import LLM

SHAPE: dict[str, Any] = {
    "layers": 2.0,
    "hidden": 10.0,
    "ffn": 7.0,
    "heads": 4.0,
    "kv_heads": 2.0,
    "head_size": 3.0,
    "vocab": 11.0,
    "positions": 0.0,
    "gated": 1.0,
    "tied": 0.0,
    "experts": 1.0,
    "active_experts": 1.0,
}
SELECTED = Selected(**SHAPE, index_heads=2.0, index_size=5.0, chosen=6.0)
ROWS: dict[str, Any] = {**SHAPE, "kv_heads": 0.5, "mixer_parameters": 100.0, "window": 4.0}
COMPRESSED = Compressed(
    **ROWS, rate=2.0, state_size=9.0, index_heads=2.0, index_size=5.0, chosen=3.0
)


def test_selected_layers_read_keys_of_all_tokens_and_rows_of_the_chosen() -> None:
    # a token caches K and V of 2 x 3 elements and one index key of 5, in 2 B
    assert SELECTED.kv_bytes(1, 20) == 20 * (12 + 5) * 2
    assert SELECTED.cache_traffic(1, 20) == (6 * 12 + 20 * 5) * 2
    assert SELECTED.cache_traffic(1, 4) == 4 * (12 + 5) * 2
    # Q and output of 10 x 12, K and V of 10 x 6; index queries of 10 x 10, a key of 10 x 5
    assert SELECTED.attention_parameters == 2 * 120 + 2 * 60 + 100 + 50


def test_selected_layers_score_all_tokens_and_attend_to_the_chosen() -> None:
    # 20 scores of 2 heads of 5; 6 tokens, 4 heads of 3, as key and as value
    assert SELECTED.attention_flops(1, 20) == 2 * 20 * 10 + 4 * 6 * 12
    # of a prompt of 20 tokens token i attends to min(i, 6): 120 - 18 pairs, its half counted
    assert SELECTED.prefill_attention_flops(1, 20) == 20**2 * 10 + 4 * (120 - 18) * 12


def test_compressed_layers_keep_a_window_and_a_row_for_every_two_tokens() -> None:
    # rows of 3 elements, key and value at once: 4 of the window, 10 compressed; 10 index keys of 5
    assert COMPRESSED.kv_bytes(1, 20) == ((4 + 10) * 3 + 10 * 5) * 2
    assert COMPRESSED.cache_traffic(1, 20) == ((4 + 3) * 3 + 10 * 5) * 2
    assert COMPRESSED.state_bytes(3) == 3 * 9 * 2
    assert COMPRESSED.cache_shards == 1.0


def test_compressed_layers_attend_to_the_window_and_to_chosen_rows() -> None:
    # 10 scores of 2 heads of 5; 4 + 3 rows, 4 heads of 3, as key and as value
    assert COMPRESSED.attention_flops(1, 20) == 2 * 10 * 10 + 4 * 7 * 12
    # window: 20 x 4 - 8 pairs; rows: token i has i / 2, at most 3, so (20 x 6 - 18) / 2 pairs
    pairs = (80 - 8) + (120 - 18) / 2
    assert COMPRESSED.prefill_attention_flops(1, 20) == 20 * 10 * 10 + 4 * pairs * 12
    assert COMPRESSED.linear_flops(1) == 2 * (100 + 3 * 10 * 7)


def test_a_window_alone_compresses_nothing() -> None:
    alone = Compressed(**ROWS)
    assert alone.kv_bytes(1, 20) == 4 * 3 * 2
    assert alone.attention_flops(1, 20) == 4 * 4 * 12


def test_borrowed_layers_read_a_cache_that_they_do_not_hold() -> None:
    shared = Borrowed(**SHAPE, kv_projections=0.0, window=8.0)
    assert shared.kv_bytes(1, 20) == 0
    assert shared.cache_traffic(1, 20) == 8 * 12 * 2
    assert shared.attention_flops(1, 20) == 4 * 8 * 12
    # query and output alone
    assert shared.attention_parameters == 2 * 10 * 12
    assert shared.prefill_attention_flops(1, 20) == 4 * (160 - 32) * 12


def test_one_projection_serves_keys_and_values() -> None:
    one = LLM(**{**SHAPE, "kv_projections": 1.0})
    both = LLM(**SHAPE)
    assert both.attention_parameters - one.attention_parameters == 10 * 6
    assert both.qkv_flops(1) - one.qkv_flops(1) == 2 * 10 * 6
    assert one.kv_bytes(1, 1) == both.kv_bytes(1, 1)


def test_what_generating_text_does_not_read_is_held() -> None:
    tower = LLM(**SHAPE, idle_parameters=1000.0, mtp_layers=1.0)
    plain = LLM(**SHAPE)
    assert tower.parameters - plain.parameters == 1000
    assert tower.weight_bytes - plain.weight_bytes == 2000
    assert tower.active_parameters == plain.active_parameters
    # one layer more and what joins two vectors of 10: 2 x 10 x 10
    assert tower.mtp_parameters == pytest.approx(plain.layer_parameters(1) + 200)

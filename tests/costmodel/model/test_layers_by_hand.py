"""Every formula of a layer at a small shape, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.tiny import TINY

from nearkv.costmodel.algebra.span import Port, Real
from nearkv.costmodel.model.latent import Latent, Projected, Sparse
from nearkv.costmodel.model.layers import Chunked, Mixed, Recurrent, Windowed, over_layers
from nearkv.costmodel.model.llm import LLM

SIZES: dict[str, float] = {
    "layers": 2,
    "hidden": 10,
    "ffn": 7,
    "vocab": 13,
    "positions": 0,
    "gated": 1,
    "tied": 0,
    "experts": 1,
    "active_experts": 1,
    "weight_width": 1,
    "kv_width": 4,
    "activation_width": 2,
}
# 3 heads; a cached row of 5 + 2 elements, queries of 4 + 2, values of 3; queries of rank 6
LATENT = Latent(
    **SIZES,
    heads=3.0,
    kv_heads=0.5,
    head_size=7.0,
    query_rank=6.0,
    kv_rank=5.0,
    rope_size=2.0,
    key_size=4.0,
    value_size=3.0,
)
PROJECTED = Projected(**vars(LATENT))
# the same, with an indexer of 2 heads of 9 elements that chooses 8 tokens
SPARSE = Sparse(
    **vars(LATENT),
    index_heads=2.0,
    index_size=9.0,
    chosen=8.0,
)
QUERY = 6 * (10 + 3 * 6)
TO_LATENT = 10 * 7
FROM_LATENT = 5 * 3 * (4 + 3)
OUTPUT = 3 * 3 * 10
PROJECTIONS = QUERY + TO_LATENT + FROM_LATENT + OUTPUT
INDEXER = 6 * 2 * 9 + 10 * (9 + 2)
HEADS = {"heads": 6.0, "kv_heads": 2.0, "head_size": 3.0}
WINDOW = Windowed(**SIZES, **HEADS, window=16.0)
CHUNK = Chunked(**SIZES, **HEADS, window=16.0)
# weights of the mixer, elements of a state, FLOPs a token
STATE = Recurrent(**SIZES, **HEADS, mixer_parameters=530.0, state_size=11.0, state_flops=17.0)
MOE = {"experts": 4.0, "active_experts": 2.0, "positions": 3.0}
EXPERTS = LLM(**{**SIZES, **HEADS, **MOE}, shared_parameters=5.0)
ATTENTION = 2 * 10 * (18 + 6)
EXPERT = 3 * 10 * 7

Formula = Callable[[], Real]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        # --- multi-head latent attention ---
        (lambda: LATENT.cache_shards, 1),
        (lambda: LATENT.attention_parameters, PROJECTIONS),
        (lambda: LATENT.qkv_flops(11.0), 2 * 11 * (PROJECTIONS - OUTPUT)),
        (lambda: LATENT.output_flops(11.0), 2 * 11 * OUTPUT),
        (lambda: LATENT.kv_bytes(3.0, 11.0), 3 * 11 * 7 * 4),
        (lambda: LATENT.cache_traffic(3.0, 11.0), 3 * 11 * 7 * 4),
        # 3 heads multiply 7 elements of a row and weigh 5 of it
        (lambda: LATENT.attention_flops(3.0, 11.0), 2 * 3 * 11 * 3 * (7 + 5)),
        (lambda: LATENT.group * 7, 3 * (7 + 5)),
        # heads of 6 and 3, half of the pairs, two FLOPs each
        (lambda: LATENT.prefill_attention_flops(3.0, 11.0), 3 * 11**2 * 3 * (6 + 3)),
        (lambda: LATENT.activation_bytes(11.0), 11 * (10 + 2 * 3 * (6 + 3)) * 2),
        (
            lambda: replace(LATENT, ffn=50.0).activation_bytes(11.0),
            11 * (2 * 10 + 2 * 50) * 2,
        ),
        (
            lambda: replace(LATENT, query_rank=0.0).attention_parameters,
            PROJECTIONS - QUERY + 10 * 3 * 6,
        ),
        # two active experts, each with its own gated layers
        (
            lambda: replace(LATENT, ffn=50.0, active_experts=2.0).activation_bytes(11.0),
            11 * (2 * 10 + 2 * 50 * 2) * 2,
        ),
        (
            lambda: replace(LATENT, query_rank=1.0).attention_parameters,
            PROJECTIONS - QUERY + 10 + 3 * 6,
        ),
        # --- K and V of heads, projected once ---
        (lambda: PROJECTED.kv_bytes(3.0, 11.0), 3 * 11 * 3 * (6 + 3) * 4),
        (lambda: PROJECTED.attention_flops(3.0, 11.0), 2 * 3 * 11 * 3 * (6 + 3)),
        # --- attention to the tokens that an indexer chooses ---
        (lambda: SPARSE.attention_parameters, PROJECTIONS + INDEXER),
        (lambda: SPARSE.kv_bytes(3.0, 11.0), 3 * 11 * (7 + 9) * 4),
        (lambda: SPARSE.cache_traffic(3.0, 11.0), 3 * (8 * 7 + 11 * 9) * 4),
        (lambda: SPARSE.cache_traffic(3.0, 5.0), 3 * (5 * 7 + 5 * 9) * 4),
        (
            lambda: SPARSE.attention_flops(3.0, 11.0),
            2 * 3 * 11 * 2 * 9 + 2 * 3 * 8 * 3 * (7 + 5),
        ),
        # a prompt of 11 scores all pairs and attends in heads while that is fewer FLOPs
        (
            lambda: SPARSE.prefill_attention_flops(3.0, 11.0),
            3 * 11**2 * 2 * 9 + 3 * 11**2 * 3 * (6 + 3),
        ),
        # of 100 tokens each attends to 8 before it, the first 8 to fewer
        (
            lambda: SPARSE.prefill_attention_flops(3.0, 100.0),
            3 * 100**2 * 2 * 9 + 2 * 3 * (100 * 8 - 8**2 / 2) * 3 * (7 + 5),
        ),
        # --- a window of 16 tokens, and chunks of 16 ---
        (lambda: WINDOW.kv_bytes(3.0, 40.0), 3 * 16 * 2 * 6 * 4),
        (lambda: WINDOW.kv_bytes(3.0, 9.0), 3 * 9 * 2 * 6 * 4),
        (lambda: WINDOW.x_bytes(3.0, 40.0), 3 * 16 * 10 * 2),
        (lambda: WINDOW.kv_from_x_flops(3.0, 40.0), 2 * 3 * 16 * 2 * 10 * 6),
        (lambda: WINDOW.attention_flops(3.0, 40.0), 2 * 3 * 16 * 2 * 18),
        (lambda: WINDOW.attended_tokens(40.0), 16),
        # the band below the diagonal: a triangle of 16, then 24 rows of 16
        (lambda: WINDOW.prefill_attention_flops(3.0, 40.0), 4 * 3 * 18 * (16**2 / 2 + 24 * 16)),
        (lambda: WINDOW.prefill_attention_flops(3.0, 9.0), 4 * 3 * 18 * 9**2 / 2),
        # triangles of 16 along the diagonal
        (lambda: CHUNK.prefill_attention_flops(3.0, 48.0), 4 * 3 * 18 * 3 * 16**2 / 2),
        # --- a recurrent state ---
        (lambda: STATE.attention_parameters, 530),
        (lambda: STATE.state_bytes(3.0), 3 * 11 * 2),
        (lambda: STATE.cache_traffic(3.0, 40.0), 2 * 3 * 11 * 2),
        (lambda: STATE.kv_bytes(3.0, 40.0), 0),
        (lambda: STATE.x_bytes(3.0, 40.0), 0),
        (lambda: STATE.kv_from_x_flops(3.0, 40.0), 0),
        (lambda: STATE.eager_scores(40.0), 0),
        (lambda: STATE.attention_flops(3.0, 40.0), 3 * 17),
        (lambda: STATE.attention_flops(3.0, 0.5), 3 * 0.5 * 17),
        (lambda: STATE.prefill_attention_flops(3.0, 40.0), 3 * 40 * 17),
        (lambda: STATE.eager_attention_flops(3.0, 40.0), 3 * 40 * 17),
        (lambda: STATE.qkv_flops(3.0) + STATE.output_flops(3.0), 2 * 3 * 530),
        (lambda: STATE.output_flops(3.0), 2 * 3 * 18 * 10),
        # X of 10 and 53 projected from it exceed 2 x 10 and 2 x 7 of the feed-forward
        (lambda: STATE.activation_bytes(3.0), 3 * (10 + 53) * 2),
        (lambda: replace(STATE, ffn=90.0).activation_bytes(3.0), 3 * (2 * 10 + 2 * 90) * 2),
        # --- full attention with 4 experts, 2 of them active ---
        (lambda: EXPERTS.layer_parameters(4.0), ATTENTION + 5 + 4 * EXPERT),
        (lambda: EXPERTS.parameters, 2 * (ATTENTION + 5 + 4 * EXPERT) + (13 * 2 + 3) * 10),
        (lambda: EXPERTS.active_parameters, 2 * (ATTENTION + 5 + 2 * EXPERT) + (13 * 2 + 3) * 10),
        (lambda: replace(EXPERTS, tied=1.0).embedding_parameters, (13 + 3) * 10),
        # half of the experts are left out by one token, a quarter by two
        (lambda: EXPERTS.distinct_experts(1.0), 2),
        (lambda: EXPERTS.distinct_experts(2.0), 3),
        (lambda: EXPERTS.layer_weight_bytes(2.0), ATTENTION + 5 + 3 * EXPERT),
        (lambda: EXPERTS.ffn_flops(3.0), 2 * 3 * (5 + 2 * EXPERT)),
        (EXPERTS.weight_buffer_bytes, ATTENTION + 5 + 2 * EXPERT),
        (lambda: EXPERTS.activation_bytes(3.0), 3 * (10 + 2 * 18 + 2 * 6) * 2),
        (lambda: replace(EXPERTS, ffn=30.0).activation_bytes(3.0), 3 * (20 + 2 * 30 * 2) * 2),
        (lambda: EXPERTS.eager_scores(40.0), 6 * 40**2),
        (lambda: EXPERTS.eager_attention_flops(3.0, 40.0), 4 * 3 * 40**2 * 18),
        (lambda: EXPERTS.head_bytes, 13 * 10),
        # attention, router and shared experts keep 16 bits, embeddings 32, experts have 8
        (
            lambda: replace(EXPERTS, dense_width=2.0, head_width=4.0).weight_bytes,
            2 * (2 * (ATTENTION + 5) + 4 * EXPERT) + 4 * (13 * 2 + 3) * 10,
        ),
        (
            lambda: replace(EXPERTS, head_width=4.0).weight_bytes,
            2 * (ATTENTION + 5 + 4 * EXPERT) + 4 * (13 * 2 + 3) * 10,
        ),
        (
            lambda: replace(EXPERTS, dense_width=2.0).layer_weight_bytes(2.0),
            2 * (ATTENTION + 5) + 3 * EXPERT,
        ),
        (
            lambda: replace(EXPERTS, dense_width=2.0).layer_weight_bytes(0.5),
            0.5 * (2 * (ATTENTION + 5) + 4 * (1 - 0.5**0.5) * EXPERT),
        ),
        (lambda: replace(EXPERTS, head_width=4.0).head_bytes, 4 * 13 * 10),
        # 4-bit weights with embeddings of 32 bits, and with 16-bit attention
        (
            lambda: replace(EXPERTS, weight_width=0.5, head_width=4.0).weight_bytes,
            (ATTENTION + 5 + 4 * EXPERT) + 4 * (13 * 2 + 3) * 10,
        ),
        (
            lambda: replace(EXPERTS, weight_width=0.5).layer_bytes(4.0),
            ATTENTION / 2 + 2.5 + 2 * EXPERT,
        ),
        (
            lambda: replace(EXPERTS, weight_width=0.5, dense_width=2.0).layer_bytes(4.0),
            2 * (ATTENTION + 5) + 2 * EXPERT,
        ),
        (
            lambda: replace(EXPERTS, weight_width=0.5).weight_buffer_bytes(),
            (ATTENTION + 5 + 2 * EXPERT) / 2,
        ),
        (lambda: replace(EXPERTS, dense_width=2.0).attention_width, 2),
        (lambda: EXPERTS.attention_width, 1),
    ],
)
def test_a_formula_is_what_counting_gives(formula: Formula, expected: float) -> None:
    assert formula() == pytest.approx(expected)


def test_widths_are_16_bits_unless_a_model_says_otherwise() -> None:
    assert (TINY.weight_width, TINY.kv_width, TINY.activation_width) == (2, 2, 2)
    assert (TINY.shared_parameters, TINY.dense_width, TINY.head_width) == (0, None, None)


MIXED = Mixed(
    **{**SIZES, **HEADS, "layers": 5},
    layer_kinds={
        "window": replace(WINDOW, layers=3.0),
        "state": replace(STATE, layers=2.0),
        "latent": replace(LATENT, layers=0.0),
    },
)


def test_kinds_add_up_and_the_largest_of_those_present_counts() -> None:
    parameters = 3 * (ATTENTION + EXPERT) + 2 * (530 + EXPERT) + 2 * 13 * 10
    assert MIXED.parameters == parameters
    assert MIXED.kv_cache_bytes(3.0, 40.0) == 3 * (3 * 16 * 2 * 6 * 4)
    assert MIXED.all_state_bytes(3.0) == 2 * 3 * 11 * 2
    assert TINY.all_state_bytes(3.0) == 0
    assert MIXED.activation_bytes(3.0) == 3 * (10 + 53) * 2
    assert MIXED.weight_buffer_bytes() == 530 + 2 * EXPERT


def test_layers_follow_one_another_kind_by_kind() -> None:
    read = Port("gpu.hbm", "read", 2.0)
    whole = over_layers(MIXED, lambda kind: read(kind.attention_parameters))
    assert whole.seconds == (3 * ATTENTION + 2 * 530) / 2
    alike = over_layers(EXPERTS, lambda kind: read(kind.attention_parameters))
    assert alike.seconds == 2 * ATTENTION / 2

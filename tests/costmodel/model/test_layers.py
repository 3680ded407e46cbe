"""Formulas of every layer type by hand, at a small shape and for published models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.systems import machine_of, model
from support.tiny import TINY

from nearkv.costmodel.algebra.span import Leaf, Port, Real, Span
from nearkv.costmodel.model.chosen import Chunked, Sparse, Windowed
from nearkv.costmodel.model.latent import Latent, Projected
from nearkv.costmodel.model.layers import (
    Mixed,
    Recurrent,
    not_modelled,
    over_layers,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload

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
    types_by_name={
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


@pytest.mark.parametrize("name", ["accelerate", "deepspeed-uvm"])
def test_layers_that_a_system_lacks_have_no_answer(name: str) -> None:
    system = find_system(name)
    estimate = system(machine_of(system), model("deepseek-v3.2"), Workload(1.0, 100.0, 8.0), {})
    assert not estimate.fits.ok
    assert "an indexer chooses is not modelled" in estimate.fits.reasons[int(estimate.fits.reason)]


def test_a_system_answers_not_modelled_for_layers_it_does_not_sum_over() -> None:
    """Full layers beside windowed ones, in one study with a model of full layers alone."""
    plain, mixed = model("llama2-7b"), model("llama2-7b")
    kinds = {
        "full": replace(plain, layers=np.array([32.0, 16.0])),
        "window": Windowed(**{**vars(plain), "layers": np.array([0.0, 16.0])}, window=4096.0),
    }
    llm = Mixed(**vars(mixed), types_by_name=kinds)
    no_kinds = not_modelled(llm, ())
    assert {sentence: where.tolist() for sentence, where in no_kinds.items()} == {
        "layers of several types are not modelled": [False, True],
        "sliding-window attention is not modelled": [False, True],
    }
    assert list(not_modelled(llm, ("full",))) == ["sliding-window attention is not modelled"]
    assert not_modelled(llm, ("full", "window")) == {}
    assert not_modelled(plain, ()) == {}


def test_every_matrix_of_a_recurrent_mixer_is_multiplied_once() -> None:
    """Two FLOPs a weight and token, however they are shared out between the two projections."""
    kinds = model("jamba-v0.1").layer_types.values()
    recurrent = [kind for kind in kinds if isinstance(kind, Recurrent)]
    assert recurrent
    for kind in recurrent:
        projected = kind.qkv_flops(7.0) + kind.output_flops(7.0)
        assert projected == pytest.approx(2 * 7.0 * kind.mixer_parameters)


def test_short_contexts_fill_no_window() -> None:
    llm = model("gemma3-27b")
    assert llm.kv_cache_bytes(2, 1000.0) == 62 * 2 * 16 * 128 * 2 * 2 * 1000


def kind(name: str, label: str) -> LLM:
    return model(name).layer_types[label]


def test_a_window_bounds_bytes_and_flops_and_makes_prefill_linear() -> None:
    window = kind("gemma3-27b", "window")
    assert isinstance(window, Windowed)
    assert window.attention_flops(1, 10**6) == window.attention_flops(1, 1024)
    # sum over queries of min(position, w), continuous: w^2 / 2 + (s - w) w; times 4 H d
    s, w = 8192.0, 1024.0
    pairs = w**2 / 2 + (s - w) * w
    assert window.prefill_attention_flops(1, s) == 4 * pairs * 32 * 128
    assert window.prefill_attention_flops(1, w) == 2 * w**2 * 32 * 128


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

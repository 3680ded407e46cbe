"""Kernels of H2M2 by hand: arrays of 4 x 5, scratchpads of 64 bytes, one of everything a second.

The model is a mixture of 4 experts, 2 of them active, of half a byte a weight, 4 a cached element
and 3 an activation: 6 heads of 3 elements in groups of 3.
"""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
from support.systems import model
from support.tiny import SHAPE, amounts

from nearkv.costmodel.algebra.span import Leaf, Port, Real
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import (
    Side,
    attend,
    attend_prompt,
    gemm,
    memory_energy,
    powered,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    Asymmetric,
    BySublayer,
    Gemm,
    asymmetric_memory,
    attention,
    attention_bytes,
    decoder_bytes,
    fc,
    fc_bytes,
    fc_shapes,
    footprint,
    output_head,
    prompts_of,
    qkv,
    qkv_bytes,
    qkv_columns,
    step_of,
    sublayers,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.mapped_step import (
    ORDERS,
    change_mapping,
    even_share,
    every_layer,
    fastest_units,
    holds,
    prompt_heads,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.paging import tensors
from nearkv.costmodel.model.chosen import Windowed
from nearkv.costmodel.model.layers import Mixed
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform

MIXTURE = LLM(
    **{**SHAPE, "experts": 4, "active_experts": 2},
    weight_width=0.5,
    kv_width=4.0,
    activation_width=3.0,
)


WORK = Workload(2.0, 7.0, 4.0)


STEP = step_of(WORK.at_context(7.0))


SIDE = Side(
    name="hbm",
    arrays=Port("arrays", "run", 2.0, "op"),
    skew=Port("arrays", "wait", 1.0, "op"),
    vectors=Port("vectors", "run", 1.0, "op"),
    memory=Port("memory", "read", 1.0),
    walk=Port("mmu", "wait", 1.0, "op"),
    rows=4.0,
    columns=5.0,
    fill=64.0,
    capacity=1e9,
    power=0.0,
)


PAGED = replace(SIDE, paged=1.0)


# 60 multiply-adds a second beside 40
OTHER = replace(SIDE, name="lpddr", arrays=Port("others", "run", 1.0, "op"), columns=15.0)


TWO = Asymmetric(SIDE, OTHER, Port("barrier", "wait", 1.0, "op"), Port("link", "move", 1.0))


# bytes in all 3 layers: K and V of 7 tokens of 2 sequences; Q, K and V; output and experts, and
# the output head
CACHE = 3 * 2 * 2 * 6 * 7 * 4


QKV = 3 * 8 * 30 * 0.5


FC = (3 * (18 * 8 + 4 * 456) + 11 * 8) * 0.5


def sized(hbm: float, lpddr: float) -> Asymmetric:
    return replace(TWO, hbm=replace(SIDE, capacity=hbm), lpddr=replace(OTHER, capacity=lpddr))


@pytest.mark.parametrize(("m", "deep"), [(3.0, 4), (6.0, 6)])
def test_a_product_fills_tiles(m: float, deep: int) -> None:
    """[m, 10] x [10, 12], twice: 3 x 3 tiles, each as deep as its rows or as m."""
    moved = 2 * (10 * 12 * 0.5 + m * 22 * 3)
    expected = {
        "arrays run": 2 * 9 * deep,
        "arrays wait": 2 * (2 * 4 + 5),
        "memory read": moved,
        "mmu wait": moved / 64,
    }
    assert amounts(gemm(PAGED, MIXTURE, m, 10.0, 12.0, 2.0)) == pytest.approx(expected)


def test_no_tokens_and_no_columns_are_no_product() -> None:
    assert amounts(gemm(PAGED, MIXTURE, 0.0, 10.0, 12.0)) == {}
    assert amounts(gemm(PAGED, MIXTURE, 3.0, 10.0, 0.0)) == {}


def test_four_heads_read_two_groups() -> None:
    """K and V of 3 elements of 4 B, 7 tokens of 2 sequences: 336 B a group."""
    step = attend(PAGED, MIXTURE, WORK.at_context(7.0), 4.0)
    assert amounts(step) == pytest.approx(
        {"vectors run": 2 * 3 * 14 * 4, "memory read": 672, "mmu wait": 672 / 64}
    )
    prompt = attend_prompt(PAGED, MIXTURE, Workload(2.0, 7.0, 1.0), 4.0)
    # half of the pairs of 7 x 7 tokens, twice, on 20 multipliers
    cycles = 2 * 3 * 2 * 7**2 / 2 * 4 / 20
    assert amounts(prompt) == pytest.approx(
        {"arrays run": cycles, "memory read": 672, "mmu wait": 672 / 64}
    )


def test_experts_share_the_tokens() -> None:
    """Two tokens use 3 of 4 experts, 4/3 tokens each; half an expert more is for all."""
    shapes = fc_shapes(MIXTURE, 2.0)
    assert shapes["output"] == Gemm(2.0, 18, 8)
    assert astuple(shapes["up"]) == pytest.approx((4 / 3, 8, 38, 3))
    assert astuple(shapes["down"]) == pytest.approx((4 / 3, 19, 8, 3))
    shared = fc_shapes(replace(MIXTURE, shared_parameters=228.0), 2.0)["up"]
    assert (shared.m, shared.matrices) == pytest.approx((2 * 2.5 / 3.5, 3.5))
    assert fc_shapes(MIXTURE, 0.0)["up"].matrices == 0


@pytest.mark.parametrize(
    ("span", "exchanged", "barriers"),
    [
        # 18 elements of a query of 3 B
        (attention(TWO, MIXTURE, STEP, 4.0), 2 * 18 * 3, 1),
        (attention(TWO, MIXTURE, prompts_of(WORK), 4.0), 2 * 7 * 18 * 3, 1),
        (qkv(TWO, MIXTURE, 2.0, 4.0), 2 * (18 + 12) * 3, 1),
        # of 2 tokens, 4 tokens among the experts
        (fc(TWO, MIXTURE, 2.0, 4.0), (2 * 8 + 4 * 38 + 4 * 8) * 3, 3),
        (attention(TWO, MIXTURE, step_of(Workload(0.0, 7.0, 4.0)), 4.0), 0, 0),
    ],
)
def test_outputs_are_exchanged_behind_a_barrier(
    span: Leaf, exchanged: float, barriers: int
) -> None:
    moved = amounts(span)
    assert moved.get("link move", 0) == pytest.approx(exchanged)
    assert moved.get("barrier wait", 0) == barriers


def test_both_sides_together_do_all() -> None:
    """Each side reads all inputs of a product, and its own columns of the weights."""
    attended = amounts(attention(TWO, MIXTURE, STEP, 4.0))
    assert attended["vectors run"] == pytest.approx(2 * 3 * 14 * 6)
    output = 18 * 8 * 0.5 + 2 * (2 * 18 + 8) * 3
    up = 3 * (8 * 38 * 0.5 + 4 / 3 * (2 * 8 + 38) * 3)
    down = 3 * (19 * 8 * 0.5 + 4 / 3 * (2 * 19 + 8) * 3)
    assert amounts(fc(TWO, MIXTURE, 2.0, 4.0))["memory read"] == pytest.approx(output + up + down)


def test_words_are_divided_over_both_sides() -> None:
    """Weights of half a byte or, where the head is kept so, of 2; each side reads h of 2 tokens."""
    for llm, width in ((MIXTURE, 0.5), (replace(MIXTURE, head_width=2.0), 2.0)):
        moved = amounts(output_head(TWO, llm, 2.0, 4.0))
        assert moved["memory read"] == pytest.approx(8 * 11 * width + 2 * (2 * 8 + 11) * 3)
        assert moved["link move"] == 2 * 11 * 3
    decoders = replace(MIXTURE, vocab=0.0)
    assert output_head(TWO, decoders, 2.0, 4.0).seconds == 0


def test_bytes_of_heads_on_one_side() -> None:
    """Four heads need both groups' K and V, 8 of 10 columns of Q, K and V, and two thirds of fc."""
    assert attention_bytes(MIXTURE, 2.0, 7.0, 6.0) == CACHE
    assert attention_bytes(MIXTURE, 2.0, 7.0, 4.0) == CACHE
    assert attention_bytes(MIXTURE, 2.0, 7.0, 3.0) == CACHE / 2
    assert qkv_bytes(MIXTURE, 4.0) == pytest.approx(0.8 * QKV)
    assert fc_bytes(MIXTURE, 4.0) == pytest.approx(2 / 3 * FC)
    assert decoder_bytes(MIXTURE, 2.0, 7.0) == pytest.approx(CACHE + QKV + FC)
    parts = footprint(MIXTURE, 2.0, 7.0, BySublayer(3.0, 6.0, 2.0))
    assert parts == pytest.approx((CACHE / 2, QKV, FC / 3))


def test_tensors_of_a_side() -> None:
    """The head once, and in each of 3 layers: a group of K and V of 9 tokens, Q, K and V of 8
    columns, two thirds of three matrices, of which the last two are of each of 4 experts."""
    sizes: list[tuple[float, float]] = [
        (11 * 8 / 3, 1),
        (432, 3),
        (8 * 24 * 0.5, 3),
        (18 * 8 / 3, 3),
        (8 * 38 / 3, 12),
        (19 * 8 / 3, 12),
    ]
    rows = zip(tensors(MIXTURE, WORK, BySublayer(3.0, 4.0, 4.0)), sizes, strict=True)
    for tensor, expected in rows:
        assert tensor == pytest.approx(expected)


def test_layers_of_two_types_keep_the_same_heads_on_hbm() -> None:
    """Two of three layers see 5 of 7 tokens; the third has 12 heads, of which 8 are 4 of 6."""
    windowed = Windowed(**{**vars(MIXTURE), "layers": 2.0, "window": 5.0})
    wide = replace(MIXTURE, layers=1.0, heads=2 * MIXTURE.heads)
    mixed = Mixed(**vars(MIXTURE), types_by_name={"window": windowed, "full": wide})
    one_layer = CACHE / 3
    assert attention_bytes(mixed, 2.0, 7.0, 6.0) == 2 * one_layer * 5 / 7 + one_layer
    assert attention_bytes(mixed, 2.0, 7.0, 3.0) == attention_bytes(mixed, 2.0, 7.0, 6.0) / 2
    columns = 2 * qkv_columns(MIXTURE, 4.0) + qkv_columns(wide, 8.0)
    assert qkv_bytes(mixed, 4.0) == MIXTURE.hidden * columns * MIXTURE.weight_width
    hw = load_platform("gh-asymmetric").machine()
    spans = sublayers(asymmetric_memory(hw), mixed, step_of(WORK), BySublayer(4.0, 4.0, 4.0))
    read = spans["attention"].traffic()["hbm.memory", "read"]
    assert read == pytest.approx((2 * 5 / 9 + 1) * one_layer * 9 / 7)


def test_a_barrier_reaches_both_memories_and_power_is_drawn_while_a_side_works() -> None:
    hw = load_platform("gh-asymmetric").machine()
    latencies = {"hbm.latency": 0.25, "lpddr.latency": 0.5, "c2c.count": 2.0, "c2c.bandwidth": 3.0}
    two = asymmetric_memory(hw.with_values(latencies))
    assert two.barrier.rate == 1 / 0.75
    assert two.link.rate == 6
    step = powered(Leaf("memory", "read", 3.0, 1.0, "B"), "hbm")
    several = hw.with_values({"hbm.count": 2.0, "hbm.power": 5.0})
    assert memory_energy(several, step, 4.0, "hbm") == 2 * 5 * 3 / 4
    assert memory_energy(several, step, 0.0, "hbm") == 2 * 5 * 3


@pytest.mark.parametrize(
    ("units", "share", "on_hbm"),
    [
        # 5 units take 5 x 0.6 on HBM, 6 x 0.4 on LPDDR: one more would end later
        (10.0, 0.4, 4),
        # 5 x 0.53 is less than 6 x 0.47
        (10.0, 0.47, 5),
        # a tie stays on LPDDR
        (3.0, 0.5, 1),
        (1.0, 0.6, 1),
        (3.0, 1.0, 3),
        (3.0, 0.0, 0),
    ],
)
def test_units_are_whole(units: float, share: float, on_hbm: int) -> None:
    assert fastest_units(units, share) == on_hbm


@pytest.mark.parametrize(
    ("hbm", "lpddr", "order", "heads"),
    [
        # 0.4 of 2 groups and of 6 heads, whole
        (1e9, 1e9, (2, 1, 0), (3, 3, 2)),
        # a third of fc and half of qkv fill HBM, or half of the cache
        (FC / 3 + QKV / 2, 1e9, (2, 1, 0), (0, 3, 2)),
        (FC / 3 + QKV / 2, 1e9, (0, 1, 2), (3, 0, 0)),
        # LPDDR holds two sixths of fc and nothing else
        (1e9, FC / 3, (2, 1, 0), (6, 6, 4)),
        # or four, and half of qkv
        (1e9, FC * 2 / 3 + QKV / 2, (2, 1, 0), (6, 3, 2)),
    ],
)
def test_prompts_are_cut_as_the_arrays_are_fast(
    hbm: float, lpddr: float, order: tuple[int, int, int], heads: tuple[float, float, float]
) -> None:
    two = sized(hbm, lpddr)
    assert even_share(two) == pytest.approx(0.4)
    assert prompt_heads(two, MIXTURE, WORK, order) == pytest.approx(heads)


def test_prompts_divide_the_kv_groups_of_no_kind_of_layer() -> None:
    """Gemma 4 has 16 KV heads in windows, 4 elsewhere: eights of 32 heads, which HBM then holds."""
    changes: dict[str, Real] = {"hbm.memory": 66.3e9, "hbm_chip.frequency": np.array([1e9, 3e9])}
    two = asymmetric_memory(load_platform("gh-decoders").machine().with_values(changes))
    gemma, work = model("gemma-4-31b"), Workload(23.0, 87_429.0, 1167.0)
    for order in ORDERS:
        heads = prompt_heads(two, gemma, work, order)
        assert not np.any(heads.attention % 8 + heads.qkv % 8)
        assert np.all(holds(two, gemma, work, heads))


def test_a_mapping_is_held_where_both_sides_have_room() -> None:
    heads = BySublayer(3.0, 6.0, 2.0)
    on_hbm, on_lpddr = CACHE / 2 + QKV + FC / 3, CACHE / 2 + FC * 2 / 3
    assert holds(sized(on_hbm + 1, on_lpddr + 1), MIXTURE, WORK, heads)
    assert not holds(sized(on_hbm - 1, on_lpddr + 1), MIXTURE, WORK, heads)
    assert not holds(sized(on_hbm + 1, on_lpddr - 1), MIXTURE, WORK, heads)


def test_what_changes_sides_is_read_sent_and_written() -> None:
    before, after = BySublayer(6.0, 4.0, 6.0), BySublayer(3.0, 6.0, 2.0)
    moved = change_mapping(TWO, MIXTURE, WORK, before, after)
    expected = CACHE / 2 + 0.2 * QKV + FC * 2 / 3
    sent = [leaf.amount for _, leaf, _ in moved.leaves()]
    assert sent == pytest.approx([expected] * 3)
    nobody = replace(WORK, batch=0.0)
    assert change_mapping(TWO, MIXTURE, nobody, before, after).seconds == 0


def test_mapped_layers_fill_all_memories_of_a_side() -> None:
    """Gigabytes of three sub-layers; the cache of the last step counts for both sides together."""
    sizes = {"hbm.count": 2.0, "hbm.memory": 5e9, "lpddr.count": 3.0, "lpddr.memory": 7e9}
    hw = load_platform("gh-asymmetric").machine().with_values(sizes)
    span = Leaf("memory", "read", 3.0, 1.0, "B")
    on_hbm = BySublayer(1e9, 2e9, 3e9)
    on_lpddr = BySublayer(3e9, 1e9, 0.0)
    answer = every_layer(hw, MIXTURE, WORK, span, powered(span, "hbm"), on_hbm, on_lpddr, 0.25)
    used = [answer.columns[f"{name}_gb"] for name in ("hbm_used", "lpddr_used", "hbm_qkv")]
    assert used == [6, 4, 2]
    assert answer.attention == {"hbm": 0.25, "lpddr": 0.75}
    # activations of two prompts take more than what the last steps add to the cache
    most = decoder_bytes(MIXTURE, 2.0, WORK.prompt) + MIXTURE.activation_bytes(2 * WORK.prompt)
    assert most > decoder_bytes(MIXTURE, 2.0, 11.0)
    assert answer.fits.tiers == {"hbm": (6e9, 1e10), "lpddr": (4e9, 2.1e10), "both": (most, 3.1e10)}
    assert answer.fits.contents["hbm"] == {"KV cache": 1e9, "weights": 5e9}

"""Head-aware mapping: each sub-layer split by heads over HBM and LPDDR (H2M2 sec. 3.1, fig. 5).

Attention and qkv-linear are cut between heads, fc between columns in the same shares, and with fc
the output head, which the paper leaves out (sec. 5.1: decoder layers alone). After every
kernel a barrier closes and the sides exchange its output, so that both hold all activations.

Symbols: n heads on HBM, N heads, g queries a KV head, b batch, m tokens, h hidden, d head size,
L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    ByName,
    Port,
    Real,
    Span,
    choose,
    overlap,
    serial,
    total,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import (
    Side,
    attend,
    attend_prompt,
    gemm,
    kv_head_bytes,
    powered,
    side,
)
from nearkv.costmodel.mechanisms.prompt_chunks import chunk_knob
from nearkv.costmodel.model.layers import over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob
from nearkv.costmodel.model.resources import per
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

ATTENDS = ("full", "window", "chunk")
"""Attention that it models: of every layer the same heads are on HBM."""
_ROW_OF_ALL_HEADS = (
    "all heads share one row, which a split by heads would keep on both sides"
)
LACKS = {
    "latent": _ROW_OF_ALL_HEADS,
    "sparse": _ROW_OF_ALL_HEADS,
    "selected": "its chips have no unit that chooses tokens",
    "borrowed": "heads would have to follow those of the layer whose cache they read",
    "state": "its chips have no unit that updates a state",
}
"""Why it models no other."""
MOST_UNITS = 1024
"""Most heads, or layers, that can be mapped one by one; models have at most 128."""


class BySublayer(NamedTuple):
    """A number of each sub-layer: heads on HBM [1], or bytes on a side [B]."""

    attention: Real
    qkv: Real
    fc: Real

    def rest(self, most: Real) -> BySublayer:
        """The number on the other side, where both sides have as many of each sub-layer."""
        return BySublayer(most - self.attention, most - self.qkv, most - self.fc)

    def by_content(self) -> dict[str, Real]:
        """Bytes of a side: attention holds the cache, the others weights [B]."""
        return {"KV cache": self.attention, "weights": self.qkv + self.fc}


def of_each(number: Real) -> BySublayer:
    """As many of every sub-layer."""
    return BySublayer(number, number, number)


SUBLAYERS = BySublayer._fields
"""Sub-layers in the order in which Algorithm 1 maps them."""


@dataclass(frozen=True)
class Asymmetric:
    """Two memories, each with chips of its own.

    Attributes:
        hbm, lpddr: the sides.
        barrier: kernels whose ends wait for each other [op].
        link: between the chips [B].
    """

    hbm: Side
    lpddr: Side
    barrier: Port
    link: Port


def asymmetric_memory(hw: Machine, paged: Real = 0.0) -> Asymmetric:
    """Build both sides.

    The paper prints no time for its hardware barrier; it takes at least an access to each memory,
    one to post that a side is done and one to see it (Table 2: 32 + 45 ns).

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c.
        paged: 1 where address translation is paid for, else 0 [1].
    """
    delay = hw.hbm.latency + hw.lpddr.latency
    return Asymmetric(
        hbm=side(hw, "hbm", "hbm_chip", paged=paged),
        lpddr=side(hw, "lpddr", "lpddr_chip", paged=paged),
        barrier=Port("c2c.barrier", "wait", per(delay), "op"),
        link=Port("c2c.link", "move", hw.c2c.count * hw.c2c.bandwidth),
    )


def _first_where(wrong: Booleans, value: Real) -> float:
    """Value at the first design point that is wrong [that of the value]."""
    return float(np.broadcast_to(value, wrong.shape)[wrong][0])


def check_heads(llm: LLM) -> None:
    """Refuse a model whose queries do not divide into KV groups.

    Raises:
        InputError: they do not.
    """
    uneven = np.asarray(llm.heads % llm.kv_heads != 0)
    if uneven.any():
        heads = _first_where(uneven, llm.heads)
        kv_heads = _first_where(uneven, llm.kv_heads)
        raise InputError(
            f"model: {heads:g} heads do not divide into {kv_heads:g} KV groups; "
            "correct heads or kv_heads"
        )


def check_units(most: Real, unit: str, mapped: BySublayer) -> None:
    """Refuse a mapping with more heads, or layers, than a model has.

    Args:
        most: heads or layers of the model [1].
        unit: their prefix in knobs.
        mapped: how many on HBM [1].

    Raises:
        InputError: outside 0..most or not whole.
    """
    for name, n in mapped._asdict().items():
        outside = (n < 0) | (n > most)
        wrong = np.asarray(outside | (np.floor(n) != n))
        if wrong.any():
            units, limit = _first_where(wrong, n), _first_where(wrong, most)
            raise InputError(
                f"knob {unit}_{name}: {units:g} must be a whole number from 0 to {limit:g}; "
                "choose one of these"
            )


# --- time of one sub-layer, n heads on HBM ---


def split(
    two: Asymmetric,
    kernel: Callable[[Side, Real], Span],
    n: Real,
    all_heads: Real,
    output: Real,
) -> Span:
    """Run n heads of a kernel on HBM beside the rest on LPDDR, wait for both, exchange the output.

    Args:
        two: both sides.
        kernel: side, heads -> span.
        n, all_heads: heads on HBM and in all [1].
        output: bytes both sides together put out [B].
    """
    work = overlap(
        hbm=powered(kernel(two.hbm, n), two.hbm.name),
        lpddr=powered(kernel(two.lpddr, all_heads - n), two.lpddr.name),
    )
    return serial(
        work=work,
        barrier=two.barrier(1.0 * np.greater(output, 0), "one a kernel"),
        exchange=two.link(output, "outputs copied to both sides"),
    )


@dataclass(frozen=True)
class LayerPass:
    """A decode step, or all prompts: the tokens that pass a layer, and their attention.

    Attributes:
        work: sequences and prompts.
        tokens: computed together [1].
        times: how often as many pass a layer [1].
        attend: attention of all of them on a side, as `accelerator.attend`.
    """

    work: Workload
    tokens: Real
    times: Real
    attend: Callable[[Side, LLM, Workload, Real], Span]


def step_of(work: Workload) -> LayerPass:
    """One new token of every sequence against its context."""
    return LayerPass(work, work.batch, 1.0, attend)


def prompts_of(work: Workload) -> LayerPass:
    """All tokens of all prompts, a chunk of each prompt at a time."""
    n = work.chunks
    return LayerPass(work, work.batch * work.prompt / n, n, attend_prompt)


def attention(two: Asymmetric, llm: LLM, phase: LayerPass, n: Real) -> Span:
    """Attention of one layer to all that passes it."""

    def heads_on(on: Side, heads: Real) -> Span:
        return phase.attend(on, llm, phase.work, heads)

    output = llm.query_bytes(phase.times * phase.tokens)
    return split(two, heads_on, n, llm.heads, output)


def qkv(two: Asymmetric, llm: LLM, m: Real, n: Real) -> Span:
    """Q of n heads, K and V of their groups; a group cut in two is projected on both sides."""

    def heads_on(on: Side, heads: Real) -> Span:
        return gemm(on, llm, m, llm.hidden, qkv_columns(llm, heads))

    output = m * (llm.query_size + 2 * llm.kv_size) * llm.activation_width
    return split(two, heads_on, n, llm.heads, output)


def qkv_columns(llm: LLM, n: Real) -> Real:
    """Columns of the weights of n heads, (n + 2 ceil(n / g)) d [1]."""
    return (n + 2 * np.ceil(n / llm.group)) * llm.head_size


@dataclass(frozen=True)
class Gemm:
    """Shape of a product [m, k] x [k, w], and how many such matrices [1]."""

    m: Real
    k: Real
    w: Real
    matrices: Real = 1.0


def fc_shapes(llm: LLM, m: Real) -> dict[str, Gemm]:
    """GEMMs of projection and MLP for m tokens; gate and up matrix are one kernel [1].

    In an MoE layer every expert that a token uses is a GEMM over its share of the tokens.
    """
    used = llm.layer_parameters(llm.distinct_experts(m)) - llm.attention_parameters
    active = llm.layer_parameters(llm.active_experts) - llm.attention_parameters
    experts = used / llm.expert_parameters
    split_over = choose(experts > 0, experts, 1.0)  # an empty batch uses none
    tokens = m * (active / llm.expert_parameters) / split_over
    return {
        "output": Gemm(m, llm.query_size, llm.hidden),
        "up": Gemm(tokens, llm.hidden, (1 + llm.gated) * llm.ffn, experts),
        "down": Gemm(tokens, llm.ffn, llm.hidden, experts),
    }


def fc(two: Asymmetric, llm: LLM, m: Real, n: Real) -> Span:
    """Projection and MLP, split column-wise (sec. 3.1, fig. 5b)."""

    def kernel(shape: Gemm) -> Span:
        def columns_on(on: Side, heads: Real) -> Span:
            columns = shape.w * heads / llm.heads
            return gemm(on, llm, shape.m, shape.k, columns, shape.matrices)

        output = shape.matrices * shape.m * shape.w * llm.activation_width
        return split(two, columns_on, n, llm.heads, output)

    shapes = fc_shapes(llm, m)
    return serial(**{name: kernel(shape) for name, shape in shapes.items()})


def output_head(two: Asymmetric, llm: LLM, m: Real, n: Real) -> Span:
    """Logits of m tokens, once a model: the words divided over both sides as the columns of fc."""
    stored = replace(llm, weight_width=llm.embedding_width)

    def words_on(on: Side, heads: Real) -> Span:
        return gemm(on, stored, m, llm.hidden, llm.vocab * heads / llm.heads)

    return split(two, words_on, n, llm.heads, m * llm.vocab * llm.activation_width)


# --- all layers ---


def all_layers(llm: LLM, n: Real, sublayer: Callable[[LLM, Real], Span]) -> Span:
    """A sub-layer of all layers: n heads on HBM, or that share of them where a type has others.

    Args:
        llm: the model.
        n: heads of its most frequent layers on HBM [1].
        sublayer: a model whose layers are all alike, its heads on HBM -> the span of one layer.
    """
    return over_layers(llm, lambda layer: sublayer(layer, n * layer.heads / llm.heads))


def sublayers(
    two: Asymmetric, llm: LLM, phase: LayerPass, heads: BySublayer
) -> dict[str, Span]:
    """Sub-layers of a phase over all layers, and the output head, which follows fc.

    Args:
        two: both sides.
        llm, phase: what runs.
        heads: on HBM [1].
    """

    def attention_of(layer: LLM, n: Real) -> Span:
        return attention(two, layer, phase, n)

    def qkv_of(layer: LLM, n: Real) -> Span:
        return phase.times * qkv(two, layer, phase.tokens, n)

    def fc_of(layer: LLM, n: Real) -> Span:
        return phase.times * fc(two, layer, phase.tokens, n)

    return {
        "qkv": all_layers(llm, heads.qkv, qkv_of),
        "attention": all_layers(llm, heads.attention, attention_of),
        "fc": all_layers(llm, heads.fc, fc_of),
        "head": output_head(two, llm, phase.work.batch, heads.fc),
    }


def attention_bytes(llm: LLM, batch: Real, tokens: Real, n: Real) -> Real:
    """KV cache of n query heads on one side; a group cut in two is held on both [B]."""

    def of_layer(layer: LLM) -> Real:
        """Bytes of one layer [B]."""
        groups = np.ceil(n * layer.heads / llm.heads / layer.group)
        return kv_head_bytes(layer, batch, tokens) * groups

    return llm.sum_over_layers(of_layer)


def qkv_bytes(llm: LLM, n: Real) -> Real:
    """Weights of n heads of qkv-linear on one side [B]."""

    def of_layer(layer: LLM) -> Real:
        """Bytes of one layer [B]."""
        columns = qkv_columns(layer, n * layer.heads / llm.heads)
        return layer.hidden * columns * layer.weight_width

    return llm.sum_over_layers(of_layer)


def fc_bytes(llm: LLM, n: Real) -> Real:
    """Weights of n of N shares of fc and of the output head on one side, all experts [B]."""

    def of_layer(layer: LLM) -> Real:
        """Bytes of one layer [B]."""
        mlp = layer.layer_parameters(layer.experts) - layer.attention_parameters
        return (layer.query_size * layer.hidden + mlp) * layer.weight_width

    return (llm.sum_over_layers(of_layer) + llm.head_bytes) * n / llm.heads


def decoder_contents(llm: LLM, batch: Real, tokens: Real) -> dict[str, Real]:
    """Bytes that decoder layers and output head hold, embeddings apart (sec. 5.1) [B]."""
    return footprint(llm, batch, tokens, of_each(llm.heads)).by_content()


def most_contents(llm: LLM, work: Workload) -> dict[str, Real]:
    """Contents at their most: at the last step, or with the prompts' activations before [B].

    Activations of a chunk of each prompt are released when prompts are done; the cache that steps
    then add takes their place.
    """
    most = decoder_contents(llm, work.batch, np.maximum(work.final, work.context))
    begun = decoder_contents(llm, work.batch, work.prompt)
    in_flight = llm.activation_bytes(work.batch * work.together)
    later = total(most.values()) - total(begun.values())
    return most | {"activations": np.maximum(in_flight - later, 0.0)}


def chunk_in(*memories: str) -> Knob:
    """The knob of chunks whose activations fit memories beside weights and cache.

    Args:
        memories: their roles.
    """

    def room(hw: Machine, llm: LLM, work: Workload, _: ByName) -> Real:
        """Room for each prompt's chunk [B]."""
        sizes = total(hw[role].count * hw[role].memory for role in memories)
        free = sizes - decoder_bytes(llm, work.batch, work.prompt)
        return free / np.maximum(work.batch, 1.0)

    return chunk_knob(room)


def decoder_bytes(llm: LLM, batch: Real, tokens: Real) -> Real:
    """Everything that decoder layers and output head hold, embeddings apart (sec. 5.1) [B]."""
    return total(decoder_contents(llm, batch, tokens).values())


def footprint(llm: LLM, batch: Real, tokens: Real, heads: BySublayer) -> BySublayer:
    """Bytes of each sub-layer on a side, given its heads of each (fig. 14) [B].

    Args:
        batch, tokens: sequences and their cached tokens [1].
        heads: on that side [1].
    """
    cache = attention_bytes(llm, batch, tokens, heads.attention)
    return BySublayer(cache, qkv_bytes(llm, heads.qkv), fc_bytes(llm, heads.fc))

"""Kinds of layer beside full attention, and sums over the kinds of a model.

A kind is a model whose layers are all of that kind; what it does not override it computes as any
other. A full layer of grouped heads is `LLM` itself.

Symbols: b sequences, s tokens, h hidden, H query heads, w window, r latent rank, dr rotary size,
dn size of a key's other part, dv of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.compose import serial
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.span import Real, Span


def over_layers(llm: LLM, layer: Callable[[LLM], Span]) -> Span:
    """All layers of a model one after the other, kind by kind.

    Args:
        llm: the model.
        layer: the span of one layer, given as a model whose layers are all like it.
    """
    if not llm.kinds:
        return llm.layers * layer(llm)
    spans = {name: kind.layers * layer(kind) for name, kind in llm.kinds.items()}
    return serial(**spans)


def with_widths(llm: LLM, **widths: Real) -> LLM:
    """The same model with elements of other widths, in all of its kinds of layer.

    Args:
        llm: the model.
        widths: bytes of one element, as `kv_width=0.5` [B].
    """
    if not isinstance(llm, Mixed):
        return replace(llm, **widths)
    kinds = {name: replace(kind, **widths) for name, kind in llm.kinds.items()}
    return replace(llm, **widths, layer_kinds=kinds)


def not_modelled(llm: LLM, attends: Collection[str]) -> dict[str, NDArray[np.bool_]]:
    """Where a model has layers that a system does not model, by the sentence that says so.

    Args:
        llm: the model.
        attends: attention that the system models, kind by kind; none where it takes models of full
            attention in layers that are all alike.
    """
    missing: dict[str, NDArray[np.bool_]] = {}
    for kind in llm.kinds.values():
        attention = attention_kind(kind)
        if attention in attends:
            continue
        alone = np.equal(kind.layers, llm.layers) if attention == "full" else False
        present = np.greater(kind.layers, 0)
        sentence = f"{_SENTENCES[attention]} not modelled"
        affected = np.logical_and(present, np.logical_not(alone))
        missing[sentence] = np.logical_or(missing.get(sentence, False), affected)
    return missing


def attention_kind(llm: LLM) -> str:
    """How the layers of one kind attend: `full`, `window`, `chunk`, `latent`, `sparse` or `state`."""
    return _NAMES[type(llm)]


@dataclass(frozen=True)
class Mixed(LLM):
    """A model of several kinds of layer, or of one that is not full attention.

    Its own sizes are those of the most frequent kind, with heads that divide.

    Attributes:
        layer_kinds: the kinds by name.
    """

    layer_kinds: Mapping[str, LLM] = field(default_factory=dict)

    @property
    def kinds(self) -> Mapping[str, LLM]:
        """Kinds of layer by name, each a model of its own `layers`."""
        return self.layer_kinds

    def activation_bytes(self, tokens: Real) -> Real:
        """Largest set of activations that any layer holds at once [B]."""
        return self.most_of_a_layer(lambda kind: kind.activation_bytes(tokens))

    def weight_buffer_bytes(self) -> Real:
        """Weights of the largest layer on the GPU while it streams [B]."""
        return self.most_of_a_layer(lambda kind: kind.weight_buffer_bytes())


@dataclass(frozen=True)
class Windowed(LLM):
    """Layers that attend to the last w tokens and keep no others (Mistral 7B, sec. 2).

    Attributes:
        window: tokens attended to, the new one included [1].
    """

    window: Real = np.inf

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """K and V of the window, 2 Hkv d b min(s, w) elements [B]."""
        return super().kv_bytes(batch, np.minimum(tokens, self.window))

    def x_bytes(self, batch: Real, tokens: Real) -> Real:
        """X of the window, h b min(s, w) elements [B]."""
        return super().x_bytes(batch, np.minimum(tokens, self.window))

    def kv_from_x_flops(self, batch: Real, tokens: Real) -> Real:
        """K and V of the window from cached X [FLOP]."""
        return super().kv_from_x_flops(batch, np.minimum(tokens, self.window))

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """One query per sequence against its window, 4 b min(s, w) H d [FLOP]."""
        return super().attention_flops(batch, np.minimum(tokens, self.window))

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Band of a causal square, 2 b (2 s w - w^2) H d where s exceeds w [FLOP]."""
        width = np.minimum(prompt, self.window)
        band: Real = 2 * prompt * width - width**2
        return 2 * batch * band * self.query_size


@dataclass(frozen=True)
class Chunked(Windowed):
    """Layers that attend within chunks of w tokens (Llama 4): the last step of a chunk.

    The mean over the steps of a chunk attends to half as many; memory must hold the whole chunk.
    """

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Causal squares along the diagonal, 2 b s w H d where s exceeds w [FLOP]."""
        chunk: Real = np.minimum(prompt, self.window)
        return 2 * batch * prompt * chunk * self.query_size


@dataclass(frozen=True)
class Latent(LLM):
    """Multi-head latent attention: all heads share one cached vector (DeepSeek-V2, sec. 2.1).

    A token caches r + dr elements, which serve as key and as value. In `LLM`'s words that is half
    a KV head of r + dr elements, so K and V together are one row. Decoding absorbs the projections
    from the latent into the query and the output: every head multiplies its query of r + dr
    elements with the cached row and weighs r elements of it. A prompt is projected back to heads.

    Attributes:
        query_rank: rank of the query's projection, 0 where it has one matrix [1].
        kv_rank: r [1].
        rope_size: dr [1].
        key_size: dn [1].
        value_size: dv [1].
    """

    query_rank: Real = 0.0
    kv_rank: Real = 0.0
    rope_size: Real = 0.0
    key_size: Real = 0.0
    value_size: Real = 0.0

    @property
    def group(self) -> Real:
        """Multiply-adds per cached element and pair of products, H (2 r + dr) / (r + dr) [1]."""
        return self.heads * (2 * self.kv_rank + self.rope_size) / self.head_size

    @property
    def attention_parameters(self) -> Real:
        """Projections of the query, to the latent, from the latent, and of the output [1]."""
        query = self.heads * (self.key_size + self.rope_size)
        low_rank = self.query_rank * (self.hidden + query)
        to_query = np.where(np.greater(self.query_rank, 0), low_rank, self.hidden * query)[
            ()
        ]
        to_latent = self.hidden * (self.kv_rank + self.rope_size)
        from_latent = self.kv_rank * self.heads * (self.key_size + self.value_size)
        return to_query + to_latent + from_latent + self._output_parameters

    @property
    def _output_parameters(self) -> Real:
        return self.heads * self.value_size * self.hidden

    def activation_bytes(self, tokens: Real) -> Real:
        """Largest set of activations of a prompt: X, queries, keys, values and outputs [B]."""
        heads = 2 * (self.key_size + self.rope_size + self.value_size) * self.heads
        mlp = 2 * self.hidden + (1 + self.gated) * self.ffn * self.active_experts
        return tokens * np.maximum(self.hidden + heads, mlp) * self.activation_width

    def qkv_flops(self, tokens: Real) -> Real:
        """All projections but the output's, absorbed or not [FLOP]."""
        return 2 * tokens * (self.attention_parameters - self._output_parameters)

    def output_flops(self, tokens: Real) -> Real:
        """Output projection of the attention [FLOP]."""
        return 2 * tokens * self._output_parameters

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """One absorbed query per head against the latent, 2 b s H (2 r + dr) [FLOP]."""
        return 2 * batch * tokens * self.heads * (2 * self.kv_rank + self.rope_size)

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Causal attention of a prompt in heads, b s^2 H (dn + dr + dv) [FLOP]."""
        pair = self.key_size + self.rope_size + self.value_size
        return batch * prompt**2 * self.heads * pair


@dataclass(frozen=True)
class Sparse(Latent):
    """Latent attention to the k tokens that an indexer scores highest (DeepSeek-V3.2, sec. 2.1).

    Beside the latent, a token caches one key of the indexer, which all its heads share. A step
    reads every such key, and the latents of the tokens it chose. It attends in latents also over
    a prompt, where that is cheaper than projecting to heads.

    Attributes:
        index_heads: heads of the indexer [1].
        index_size: elements of its keys [1].
        chosen: tokens attended to, k [1].
    """

    index_heads: Real = 0.0
    index_size: Real = 0.0
    chosen: Real = np.inf

    @property
    def attention_parameters(self) -> Real:
        """Those of latent attention; queries, key and weights of the indexer [1]."""
        queries = self.query_rank * self.index_heads * self.index_size
        key_and_weights = self.hidden * (self.index_size + self.index_heads)
        return super().attention_parameters + queries + key_and_weights

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """Latents and keys of the indexer, (r + dr + di) b s elements [B]."""
        return super().kv_bytes(batch, tokens) + self._index_bytes(batch, tokens)

    def attended_bytes(self, batch: Real, tokens: Real) -> Real:
        """All keys of the indexer, the latents of the chosen tokens [B]."""
        latents = super().kv_bytes(batch, np.minimum(tokens, self.chosen))
        return latents + self._index_bytes(batch, tokens)

    def _index_bytes(self, batch: Real, tokens: Real) -> Real:
        return self.index_size * batch * tokens * self.kv_width

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """Scores of all tokens, 2 b s Hi di; attention to the chosen ones [FLOP]."""
        scores = 2 * batch * tokens * self.index_heads * self.index_size
        return scores + super().attention_flops(batch, np.minimum(tokens, self.chosen))

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Scores of a causal square; the cheaper of its heads and a band of k latents [FLOP]."""
        scores = batch * prompt**2 * self.index_heads * self.index_size
        width = np.minimum(prompt, self.chosen)
        band: Real = prompt * width - width**2 / 2
        latents = super().attention_flops(batch, band)
        return scores + np.minimum(
            latents, super().prefill_attention_flops(batch, prompt)
        )


@dataclass(frozen=True)
class Recurrent(LLM):
    """Linear attention or a state space: a state of constant size (Mamba-2, sec. 3 and 6).

    A step reads and writes the whole state, so `kv_bytes` of one new token are its bytes as well.

    Attributes:
        mixer_parameters: all matrices of the mixer [1].
        state_size: elements that one sequence keeps in one layer [1].
        state_flops: to update and read the state for one token [FLOP].
    """

    mixer_parameters: Real = 0.0
    state_size: Real = 0.0
    state_flops: Real = 0.0

    @property
    def attention_parameters(self) -> Real:
        """All matrices of the mixer [1]."""
        return self.mixer_parameters

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """The state of every sequence, whatever its length [B]."""
        return batch * np.minimum(tokens, 1.0) * self.state_size * self.activation_width

    def qkv_flops(self, tokens: Real) -> Real:
        """All projections of the mixer but the output's, which `output_flops` has [FLOP]."""
        return 2 * tokens * self.mixer_parameters - self.output_flops(tokens)

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """Update and read the state once [FLOP]."""
        return batch * np.minimum(tokens, 1.0) * self.state_flops

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Update and read the state once for each token of a prompt [FLOP]."""
        return batch * prompt * self.state_flops


_NAMES: dict[type[LLM], str] = {
    LLM: "full",
    Windowed: "window",
    Chunked: "chunk",
    Latent: "latent",
    Sparse: "sparse",
    Recurrent: "state",
}
_SENTENCES = {
    "full": "layers of several kinds are",
    "window": "sliding-window attention is",
    "chunk": "attention in chunks is",
    "latent": "multi-head latent attention is",
    "sparse": "attention to tokens that an indexer chooses is",
    "state": "a recurrent state in place of a KV cache is",
}
KIND_OF = {name: kind for kind, name in _NAMES.items()}
"""Class of layer by the name of its attention."""

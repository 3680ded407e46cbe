"""Layers whose heads share one cached vector per token, and those that choose tokens of it.

Symbols: b sequences, s tokens, H query heads, r latent rank, dr rotary size, dn size of a key's
other part, dv of a value, k chosen tokens, Hi and di heads and size of the indexer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Real, choose
from nearkv.costmodel.model.llm import LLM


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
    def cache_shards(self) -> Real:
        """One: every head needs the full row [1]."""
        return 1.0

    @property
    def group(self) -> Real:
        """Multiply-adds per cached element and pair of products, H (2 r + dr) / (r + dr) [1]."""
        return self.heads * (2 * self.kv_rank + self.rope_size) / self.head_size

    @property
    def attention_parameters(self) -> Real:
        """Projections of the query, to the latent, from the latent, and of the output [1]."""
        query = self.heads * (self.key_size + self.rope_size)
        low_rank = self.query_rank * (self.hidden + query)
        to_query = choose(self.query_rank > 0, low_rank, self.hidden * query)
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
        return batch * prompt**2 * self.head_elements

    def eager_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """The full square of a prompt in heads, twice the causal one [FLOP]."""
        return 2 * self.prefill_attention_flops(batch, prompt)

    @property
    def head_elements(self) -> Real:
        """Elements of K and V of one token projected to heads, H (dn + dr + dv) [1]."""
        pair = self.key_size + self.rope_size + self.value_size
        return self.heads * pair


@dataclass(frozen=True)
class Projected(Latent):
    """Latent attention whose cache holds K and V of heads, projected once for every token.

    So caches Hugging Face transformers in eager attention (`DeepseekV3Attention` updates its cache
    with keys of dn + dr and values of dv elements a head).
    """

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """K and V of all heads, H (dn + dr + dv) b s elements [B]."""
        return self.head_elements * batch * tokens * self.kv_width

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """One query per head against its keys and values, 2 b s H (dn + dr + dv) [FLOP]."""
        return 2 * batch * tokens * self.head_elements

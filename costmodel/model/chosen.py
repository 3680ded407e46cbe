"""Layers that attend to some tokens of a cache: a window, chosen ones, or compressed rows.

Symbols: b sequences, s tokens, p of a prompt, h hidden, H query heads, d head size, k chosen
tokens, Hi and di heads and size of the indexer, w window, m tokens of a compressed row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Real, choose
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.llm import LLM


def _band(prompt: Real, width: Real) -> Real:
    """Pairs of a causal square of which every token keeps at most `width`, p w - w^2 / 2 [1]."""
    kept = np.minimum(prompt, width)
    return prompt * kept - kept**2 / 2


@dataclass(frozen=True)
class Windowed(LLM):
    """Layers that attend to the last w tokens and keep no others (Mistral 7B, sec. 2).

    Attributes:
        window: tokens attended to, the new one included [1].
    """

    window: Real = np.inf

    def attended_tokens(self, tokens: Real) -> Real:
        """Tokens of the window, min(s, w) [1]."""
        return np.minimum(tokens, self.window)

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Band of a causal square, 4 b (p w - w^2 / 2) H d where p exceeds w [FLOP]."""
        return 4 * batch * _band(prompt, self.window) * self.query_size


@dataclass(frozen=True)
class Chunked(Windowed):
    """Layers that attend within chunks of w tokens (Llama 4): the last step of a chunk.

    The mean over the steps of a chunk attends to half as many; memory must hold the full chunk.
    """

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Causal squares along the diagonal, 2 b s w H d where s exceeds w [FLOP]."""
        chunk: Real = np.minimum(prompt, self.window)
        return 2 * batch * prompt * chunk * self.query_size


@dataclass(frozen=True)
class Indexed(LLM):
    """Attention to the k tokens that an indexer scores highest (DeepSeek-V3.2, sec. 2.1).

    Beside its row, a token caches one key of the indexer, which all its heads share. A step reads
    every such key, and the rows of the tokens it chose. A layer that takes the tokens which an
    earlier layer chose has an indexer of size 0.

    Attributes:
        index_heads: heads of the indexer [1].
        index_size: elements of its keys [1].
        chosen: tokens attended to, k [1].
    """

    index_heads: Real = 0.0
    index_size: Real = 0.0
    chosen: Real = np.inf

    @property
    def _index_input(self) -> Real:
        """Elements that the indexer's queries are projected from [1]."""
        return self.hidden

    @property
    def _index_weights(self) -> Real:
        """Parameters that weigh the indexer's heads [1]."""
        return 0.0

    @property
    def attention_parameters(self) -> Real:
        """Parameters of all heads; queries, key and weights of the indexer [1]."""
        queries = self._index_input * self.index_heads * self.index_size
        key = self.hidden * self.index_size
        return super().attention_parameters + queries + key + self._index_weights

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """Rows of all tokens, and keys of the indexer, di b s elements [B]."""
        return super().kv_bytes(batch, tokens) + self._index_bytes(batch, tokens)

    def cache_traffic(self, batch: Real, tokens: Real) -> Real:
        """All keys of the indexer, the rows of the chosen tokens [B]."""
        rows = super().kv_bytes(batch, np.minimum(tokens, self.chosen))
        return rows + self._index_bytes(batch, tokens)

    def _index_bytes(self, batch: Real, tokens: Real) -> Real:
        return self.index_size * batch * tokens * self.kv_width

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """Scores of all tokens, 2 b s Hi di; attention to the chosen ones [FLOP]."""
        scores = 2 * batch * tokens * self.index_heads * self.index_size
        return scores + super().attention_flops(batch, np.minimum(tokens, self.chosen))

    def _prefill_scores(self, batch: Real, prompt: Real) -> Real:
        """Scores of a causal square, b p^2 Hi di [FLOP]."""
        return batch * prompt**2 * self.index_heads * self.index_size


@dataclass(frozen=True)
class Sparse(Indexed, Latent):
    """Latents of the tokens that an indexer chooses; its queries come from the latent query.

    It attends in latents also over a prompt, where that is cheaper than projecting to heads.
    """

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """Rows of all tokens, and keys of the indexer [B].

        Kernels that read 8 bits keep the rotated part in 16, and a scale of 32 bits to each 128 of
        the other elements (FlashMLA, `fp8_ds_mla`): 656 + 132 bytes of a layer of DeepSeek-V3.2.
        """
        beside = self.rope_size + 4 * (self.kv_rank + self.index_size) / 128
        is_8_bit = self.kv_width == 1.0
        kept = super().kv_bytes(batch, tokens)
        return kept + batch * tokens * np.where(is_8_bit, beside, 0.0)

    @property
    def _index_input(self) -> Real:
        return self.query_rank

    @property
    def _index_weights(self) -> Real:
        return self.hidden * self.index_heads

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Scores of a causal square; the cheaper of its heads and a band of k latents [FLOP]."""
        band = _band(prompt, self.chosen)
        latents = Latent.attention_flops(self, batch, band)
        heads = Latent.prefill_attention_flops(self, batch, prompt)
        return self._prefill_scores(batch, prompt) + np.minimum(latents, heads)


@dataclass(frozen=True)
class Selected(Indexed):
    """K and V of heads, of the blocks of tokens that an indexer chooses (MiniMax-M3)."""

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Scores of a causal square, and a band of k tokens, 4 b (p k - k^2 / 2) H d [FLOP]."""
        band = _band(prompt, self.chosen)
        return self._prefill_scores(batch, prompt) + LLM.attention_flops(self, batch, band)


@dataclass(frozen=True)
class Borrowed(Windowed):
    """Layers that read the K and V of an earlier one and cache none (Gemma 3n, KV sharing)."""

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """None: the earlier layer holds them [B]."""
        return 0.0

    def cache_traffic(self, batch: Real, tokens: Real) -> Real:
        """K and V of the earlier layer, 2 Hkv d b min(s, w) elements [B]."""
        return super().kv_bytes(batch, tokens)


@dataclass(frozen=True)
class Compressed(LLM):
    """A window of rows, and one row for every m tokens (DeepSeek-V4, sec. 2.3).

    All heads share a row, which is key and value: half a KV head, as in `Latent`. A window alone
    has m = 0. Where an indexer chooses among the compressed rows, its keys are compressed as well.

    Attributes:
        mixer_parameters: all matrices of the attention [1].
        window: rows of single tokens, w [1].
        rate: tokens of a compressed row, m; 0 where there is none [1].
        state_size: elements of tokens whose row is not yet full [1].
        index_heads, index_size: of the indexer; 0 where all rows are attended to [1].
        chosen: compressed rows attended to [1].
    """

    mixer_parameters: Real = 0.0
    window: Real = np.inf
    rate: Real = 0.0
    state_size: Real = 0.0
    index_heads: Real = 0.0
    index_size: Real = 0.0
    chosen: Real = np.inf

    @property
    def attention_parameters(self) -> Real:
        """All matrices of the attention [1]."""
        return self.mixer_parameters

    @property
    def cache_shards(self) -> Real:
        """One: every head needs the full row [1]."""
        return 1.0

    def _rows(self, tokens: Real) -> Real:
        """Compressed rows of a context, s / m [1]."""
        return choose(self.rate > 0, tokens / np.maximum(self.rate, 1), 0.0)

    def _attended(self, tokens: Real) -> Real:
        """Rows that a query attends to, min(s, w) + min(s / m, k) [1]."""
        return np.minimum(tokens, self.window) + np.minimum(self._rows(tokens), self.chosen)

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """Rows of the window and compressed ones, keys of the indexer [B]."""
        rows = np.minimum(tokens, self.window) + self._rows(tokens)
        return super().kv_bytes(batch, rows) + self._index_bytes(batch, tokens)

    def _index_bytes(self, batch: Real, tokens: Real) -> Real:
        return self.index_size * batch * self._rows(tokens) * self.kv_width

    def state_bytes(self, batch: Real) -> Real:
        """Tokens whose compressed row is not yet full [B]."""
        return batch * self.state_size * self.activation_width

    def cache_traffic(self, batch: Real, tokens: Real) -> Real:
        """Rows attended to, and all keys of the indexer [B]."""
        rows = super().kv_bytes(batch, self._attended(tokens))
        return rows + self._index_bytes(batch, tokens)

    def qkv_flops(self, tokens: Real) -> Real:
        """All projections, the output's too [FLOP]."""
        return 2 * tokens * self.mixer_parameters

    def output_flops(self, tokens: Real) -> Real:
        """No FLOPs beside those in `qkv_flops` [FLOP]."""
        return 0.0

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """One query per head against its rows, and the indexer's scores of all [FLOP]."""
        scores = 2 * batch * self._rows(tokens) * self.index_heads * self.index_size
        return scores + super().attention_flops(batch, self._attended(tokens))

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """A band of the window, one of compressed rows, and scores of half of p^2 / m [FLOP]."""
        rate = np.maximum(self.rate, 1)
        compressed = self._rows(_band(prompt, self.chosen * rate))
        scores = batch * self._rows(prompt) * prompt * self.index_heads * self.index_size
        pairs = _band(prompt, self.window) + compressed
        return scores + super().attention_flops(batch, pairs)

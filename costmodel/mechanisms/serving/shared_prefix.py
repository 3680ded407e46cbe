"""A prefix that all requests share, whose K and V are there before they come.

Symbols: p shared tokens, s tokens of a prompt beside them, c context beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real, quotient
from nearkv.costmodel.mechanisms.serving.parallel import copies
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.model.chosen import Compressed, Indexed
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload

_CHOOSING_LAYERS = (Indexed, Compressed)
"""Layers in which every sequence reads other tokens of a prefix."""


@dataclass(frozen=True)
class SharedPrefix:
    """A prefix that all requests share, and the attention to it beyond that to the rest alone.

    A window sees the prefix only until the rest fills it, so every amount is what a layer does with
    the prefix, less what it does without.

    Attributes:
        tokens: p [1].
        rest: the work behind it, with prompts of s tokens.
    """

    tokens: Real
    rest: Workload

    def _added(self, of_layer: Callable[[Real, Real], Real]) -> Real:
        """Bytes, or FLOPs, that the prefix adds to a layer for one sequence at the mean context."""
        context = self.rest.context
        return of_layer(1, self.tokens + context) - of_layer(1, context)

    def stored_bytes(self, llm: LLM, split: GpuSplit) -> Real:
        """K and V of the prefix in all layers, on every replica [B]."""

        def of_layer(layer_type: LLM) -> Real:
            """K and V in one layer of a replica [B]."""
            kept = copies(layer_type, split.attention_tp)
            return kept * layer_type.kv_bytes(1, self.tokens)

        return split.replicas * llm.sum_over_layers(of_layer)

    def read_bytes(self, layer_type: LLM) -> Real:
        """Bytes of the prefix that a pass of one layer reads for all its sequences [B]."""
        return self._added(layer_type.cache_traffic)

    def step_flops(self, layer_type: LLM) -> Real:
        """Products of one decoding token of a layer with the prefix [FLOP]."""
        return self._added(layer_type.attention_flops)

    def prompt_flops(self, layer_type: LLM) -> Real:
        """Products of a mean token of a prompt with the prefix, in one layer [FLOP].

        Causal attention of p + s tokens, without that of p and of s alone.
        """
        p, s = self.tokens, self.rest.prompt
        causal = layer_type.prefill_attention_flops
        return quotient(causal(1, p + s) - causal(1, p) - causal(1, s), s)


def divided(
    work: Workload, prefix: Real, shared: Real
) -> tuple[Workload, SharedPrefix | None]:
    """The work behind prefixes of its own, and the prefix that all share, if any.

    Args:
        work: prompts without what the cache holds before them.
        prefix: tokens that it holds before each [1].
        shared: 1 where they are the same for all requests, else 0.
    """
    own = replace(work, before=(1 - shared) * prefix)
    tokens = shared * prefix
    if not np.any(tokens):
        return own, None
    if own.fixed_context is not None:
        own = own.at_context(np.maximum(own.fixed_context - tokens, 1.0))
    return own, SharedPrefix(tokens, own)


def not_shareable(llm: LLM, shared: Real) -> dict[str, Booleans]:
    """Mask of shared tokens [1] that cannot be shared, by the sentence that says so."""
    chooses = any(
        np.any(layer_type.layers > 0)
        for layer_type in llm.layer_types.values()
        if isinstance(layer_type, _CHOOSING_LAYERS)
    )
    sentence = "each sequence chooses tokens of its own from a shared prefix"
    return {sentence: np.greater(shared, 0) & chooses}

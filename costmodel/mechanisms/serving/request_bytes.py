"""Bytes that requests of a queue keep, and tokens that they attend to.

A window ends what a layer keeps, a recurrent state does not grow, so a token more is not a size
more: a request takes f(c) bytes at a context c, and a queue of requests the mean of f over their
lives. Where all layers are alike f(c) = kappa c.

Symbols: c context, w window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real, choose, quotient, total
from nearkv.costmodel.mechanisms.gpu_layer import prompt_attention_flops
from nearkv.costmodel.mechanisms.serving.parallel import beside_weights
from nearkv.costmodel.mechanisms.serving.residents import resident, tokens_reserved
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import LayerLoad, Serving, Workload
from nearkv.hardware.machine import Machine

OfLayer = Callable[[LLM, Real], Real]
"""Kind of layer, tokens of a sequence -> bytes that one layer keeps of it [B]."""


def cache_bytes(layer_type: LLM, tokens: Real) -> Real:
    """K and V of a sequence in one layer [B]."""
    return layer_type.kv_bytes(1, tokens)


def state_bytes(layer_type: LLM, tokens: Real) -> Real:
    """Recurrent state of a sequence in one layer, of any length [B]."""
    return layer_type.state_bytes(1)


def seen_by_type(llm: LLM, work: Workload) -> Mapping[str, LayerLoad]:
    """Share of a load that layers of each type see, averaged over the lives of its requests."""
    return {name: _seen(layer_type, work) for name, layer_type in llm.layer_types.items()}


def _seen(layer_type: LLM, work: Workload) -> LayerLoad:
    contexts, prompts = work.contexts, work.prompts
    pairs = [prompt * (prompt + 2 * work.before) for prompt in prompts]
    read = [layer_type.cache_traffic(1, context) for context in contexts]
    multiplied = _mean(layer_type.attention_flops(1, context) for context in contexts)
    computed = _mean(
        prompt_attention_flops(layer_type, 1, prompt, work.before) for prompt in prompts
    )
    kept = _mean(layer_type.kv_bytes(1, prompt) for prompt in prompts)
    evenness = quotient(_square_over_mean(read), _square_over_mean(contexts))
    # by a layer that keeps and reads every token
    all_read = layer_type.cache_traffic(1, 1) * _mean(contexts)
    all_multiplied = layer_type.attention_flops(1, 1) * _mean(contexts)
    all_computed = layer_type.prefill_attention_flops(1, 1) * _mean(pairs)
    all_kept = layer_type.kv_bytes(1, 1) * _mean(prompts)
    return LayerLoad(
        tokens=quotient(_mean(read), all_read),
        products=quotient(multiplied, all_multiplied),
        squares=quotient(computed, all_computed),
        kept=quotient(kept, all_kept),
        sizes=np.maximum(evenness * work.spread.context_square, 1.0),
    )


def _square_over_mean(numbers: Iterable[Real]) -> Real:
    """Mean square over squared mean [1]."""
    values = list(numbers)
    square = _mean(value**2 for value in values)
    return quotient(square, _mean(values) ** 2)


def _mean(numbers: Iterable[Real]) -> Real:
    """Mean of some numbers [theirs]."""
    values = list(numbers)
    return total(values) / len(values)


@dataclass(frozen=True)
class RequestBytes:
    """Bytes that a request keeps in one memory.

    Attributes:
        mean: averaged over its life and over requests, as a step sees them [B].
        final: when it ends, averaged as a step sees requests [B].
        longest: of the longest request when it ends [B].
    """

    mean: Real
    final: Real
    longest: Real

    def reserved(self, reserve: Real) -> Real:
        """Bytes that a resident request takes: its mean, or its final size if reserved [B]."""
        return self.mean + reserve * (self.final - self.mean)


def request_bytes(llm: LLM, work: Workload, of_layer: OfLayer) -> RequestBytes:
    """Bytes that a request keeps in a memory, over all layers.

    Args:
        llm, work: what runs.
        of_layer: layer type, tokens of a sequence -> what one layer keeps [B].
    """

    def over_layers(tokens: Real) -> Real:
        """Over all layers, of a sequence of these tokens [B]."""
        return llm.sum_over_layers(lambda layer_type: of_layer(layer_type, tokens))

    return RequestBytes(
        mean=_mean(over_layers(context) for context in work.contexts),
        final=_mean(over_layers(final) for final in work.finals),
        longest=over_layers(work.longest),
    )


def tokens_held(
    memory: Real, llm: LLM, work: Workload, reserve: Real, of_layer: OfLayer = cache_bytes
) -> Real:
    """Tokens of the requests that a memory holds, as `Serving.capacity` counts them [1].

    Args:
        memory: for caches, over all replicas [B].
        llm, work: what runs.
        reserve: 1 where a request is admitted with its final length.
        of_layer: layer type, tokens of a sequence -> what one layer keeps in it [B].
    """
    taken = work.distinct * request_bytes(llm, work, of_layer).reserved(reserve)
    requests = quotient(memory, taken)
    return requests * tokens_reserved(work, reserve)


def tokens_beside_states(
    hw: Machine, llm: LLM, work: Workload, memory: Real, reserve: Real
) -> Real:
    """Tokens of the requests whose caches a memory holds, and the GPUs their states [1].

    Args:
        hw, llm, work: the GPUs in use, and what runs.
        memory: for caches, apart from the GPUs [B].
        reserve: as in `tokens_held`.
    """
    held = tokens_held(memory, llm, work, reserve)
    states = tokens_held(beside_weights(hw, llm, work), llm, work, reserve, state_bytes)
    return choose(has_states(llm), np.minimum(held, states), held)


def weights_and_states(llm: LLM, work: Workload, serving: Serving) -> dict[str, Real]:
    """Bytes that GPUs hold whose caches are elsewhere [B]."""
    held = {"weights": serving.replicas * llm.weight_bytes}
    if llm.layer_types:
        held["recurrent states"] = cache_needed(llm, work, serving, state_bytes)
    return held


def longest_requests(memory: Real, llm: LLM, work: Workload) -> Real:
    """Requests of the longest size whose caches a memory holds [1]."""
    longest = request_bytes(llm, work, cache_bytes).longest
    return quotient(memory, longest)


def has_states(llm: LLM) -> Booleans:
    """True if layers have recurrent states."""
    return np.greater(llm.all_state_bytes(1), 0)


def cache_needed(
    llm: LLM, work: Workload, serving: Serving, of_layer: OfLayer = cache_bytes
) -> Real:
    """Memory for the residents, on each replica at least for the longest request [B].

    Args:
        llm, work, serving: what runs, and how it is served.
        of_layer: as in `tokens_held`.
    """
    of_request = request_bytes(llm, work, of_layer)
    of_residents = work.distinct * resident(work, serving) * of_request.mean
    return np.maximum(of_residents, serving.replicas * of_request.longest)

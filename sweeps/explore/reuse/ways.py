"""Ways in which a prefix that lies in a tier of a server comes back, and their seconds."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.kv_tiers import Tier, both
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.sweeps.explore.reuse.node import Node
from nearkv.sweeps.study.grid import scalar

QUERY_WIDTHS = 2.0
"""Vectors of the width of the heads that attention near a tier sends: the query, and its answer."""


def load_seconds(node: Node, tier: Tier, tokens: Real) -> Real:
    """Seconds to bring the KV of a prefix to the GPUs [s]."""
    return tier.load(node.kv_bytes(tokens, tier.name)).seconds


def restore(node: Node, tier: Tier, tokens: Real) -> Real:
    """Seconds to bring X of a prefix and rebuild K and V from it [s]: HCache, EuroSys 2025.

    Not a number where a layer keeps a state, which X of the prefix does not bring back.
    """
    if scalar(node.llm.all_state_bytes(1.0)):
        return np.nan
    flops = node.llm.sum_over_layers(
        lambda layer_type: layer_type.kv_from_x_flops(1.0, tokens)
    )
    rebuild = gpu(node.hw).run(flops).seconds
    x = node.llm.sum_over_layers(lambda layer_type: layer_type.x_bytes(1.0, tokens))
    return np.maximum(tier.load(x).seconds, rebuild)


def attend_near(node: Node, tier: Tier, tokens: Real, queries: Real = 1.0) -> Real:
    """Seconds that later tokens attend to a prefix beside the tier in all layers [s].

    Queries go out, partial sums come back, KV stays: t0 + q bytes / B + KV / B_near, once a
    layer (arXiv 2606.01502; HILOS moves the query alike). Each query reads the KV. Not a number
    where the tier has nothing that computes.
    """
    queries = np.maximum(queries, 1.0)
    if tier.attend is None:
        return np.nan

    def sent(layer_type: LLM) -> Real:
        width = layer_type.heads * layer_type.head_size
        return queries * QUERY_WIDTHS * width * layer_type.activation_width

    there_and_back = tier.load(node.llm.sum_over_layers(sent)).seconds
    turns = (node.llm.layers - 1) * tier.latency
    return there_and_back + turns + tier.attend(queries * node.kv_bytes(tokens)).seconds


def ways_back(
    node: Node, tier: Tier, tokens: Real, before: Real = 0.0, queries: Real = 1.0
) -> dict[str, Real]:
    """Seconds that tokens of a prefix take by each way; not a number where there is none [s].

    Args:
        node, tier: that compute, and that has the prefix.
        tokens, before: of the prefix in the tier, and ahead of them.
        queries: tokens after the prefix, which attend to it.
    """
    base = node.compute(before)

    def computed(some: Real) -> Real:
        return node.compute(before + some) - base

    return {
        "load": load_seconds(node, tier, tokens),
        "recompute": computed(tokens),
        "both": both(computed, lambda some: load_seconds(node, tier, some), tokens),
        "restore_x": restore(node, tier, tokens),
        "attend_near": attend_near(node, tier, tokens, queries),
    }


def fetch(node: Node, tier: Tier, tokens: Real, before: Real, queries: Real) -> Real:
    """Seconds by the best of `ways_back`; none where there are no tokens [s]."""
    seconds = ways_back(node, tier, tokens, before, queries).values()
    best = np.fmin.reduce(np.broadcast_arrays(*seconds))
    return np.where(np.greater(tokens, 0), best, 0.0)

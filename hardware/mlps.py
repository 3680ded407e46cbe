"""The MLPs of a family's layers, from its config.json: dense, or experts in some of them."""

from __future__ import annotations

from collections.abc import Callable

from nearkv.hardware.config import Config
from nearkv.hardware.layers import Mlp, hidden_of

Mlps = list[Mlp]


def gated(config: Config, layers: int) -> Mlps:
    """One dense MLP with a gate in every layer."""
    width = config.count("intermediate_size")
    return [Mlp(width)] * layers


def ungated(*names: str) -> Callable[[Config, int], Mlps]:
    """Two matrices, four times as wide as the model where the config does not say."""

    def mlp(config: Config, layers: int) -> Mlps:
        ratio = config.count("expansion_ratio", default=4)
        width = config.count(*names, default=ratio * hidden_of(config))
        return [Mlp(width, gated=False)] * layers

    return mlp


def experts_everywhere(config: Config, layers: int) -> Mlps:
    """Experts in every layer: num_local_experts of intermediate_size each."""
    width = config.count("intermediate_size")
    moe = Mlp(
        width,
        True,
        config.count("num_local_experts", "num_experts"),
        config.count("num_experts_per_tok", "experts_per_token"),
        config.count("shared_intermediate_size", default=0),
    )
    return [moe] * layers


def every_nth_sparse(config: Config, layers: int) -> Mlps:
    """Experts in every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`."""
    moe = Mlp(
        config.count("moe_intermediate_size"),
        True,
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        config.count("shared_expert_intermediate_size", default=0),
    )
    dense = Mlp(config.count("intermediate_size"))
    step = max(config.count("decoder_sparse_step", default=1), 1)
    only_dense = config.places("mlp_only_layers")
    sparse = [i not in only_dense and (i + 1) % step == 0 for i in range(layers)]
    return [moe if is_moe else dense for is_moe in sparse]


def first_dense(config: Config, layers: int) -> Mlps:
    """Dense MLPs in the first `first_k_dense_replace` layers, experts behind them.

    `mlp_layer_types`, where a config has it, names the MLP of every layer.
    """
    width = config.count("moe_intermediate_size")
    moe = Mlp(
        width,
        True,
        config.count("n_routed_experts"),
        config.count("num_experts_per_tok"),
        config.count("n_shared_experts", default=0) * width,
    )
    dense = Mlp(config.count("intermediate_size"))
    first = config.count("first_k_dense_replace", default=0)
    every = config.count("moe_layer_freq", default=1)
    types = config.items("mlp_layer_types", layers)
    if types:
        return [dense if kind == "dense" else moe for kind in types]
    return [moe if i >= first and i % every == 0 else dense for i in range(layers)]


def llama4_experts(config: Config, layers: int) -> Mlps:
    """Experts and one shared expert in every `interleave_moe_layer_step`-th layer."""
    width = config.count("intermediate_size")
    moe = Mlp(
        width,
        True,
        config.count("num_local_experts"),
        config.count("num_experts_per_tok", default=1),
        width,
    )
    dense = Mlp(config.count("intermediate_size_mlp"))
    step = config.count("interleave_moe_layer_step", default=1)
    listed = config.places("moe_layers")
    if listed:
        return [moe if i in listed else dense for i in range(layers)]
    return [moe if (i + 1) % step == 0 else dense for i in range(layers)]


def jamba_experts(config: Config, layers: int) -> Mlps:
    """Experts in one layer of `expert_layer_period`."""
    width = config.count("intermediate_size")
    moe = Mlp(
        width,
        True,
        config.count("num_experts", default=16),
        config.count("num_experts_per_tok", default=2),
    )
    period = config.count("expert_layer_period", default=2)
    offset = config.count("expert_layer_offset", default=1)
    dense = Mlp(width)
    return [moe if i % period == offset else dense for i in range(layers)]


def none(config: Config, layers: int) -> Mlps:
    """No MLP: the mixer is all of a layer."""
    return [Mlp(0)] * layers

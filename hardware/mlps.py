"""The MLPs of a family's layers, from its config.json: dense, or experts in some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearkv.hardware.config import Config


@dataclass(frozen=True)
class Mlp:
    """The MLP of one layer.

    Attributes:
        ffn: inner width, of one expert where there are several [1].
        gated: whether it has a gate matrix.
        experts, active: experts, and those that a token uses [1].
        shared: inner width of the experts that every token uses [1].
    """

    ffn: int
    gated: bool = True
    experts: int = 1
    active: int = 1
    shared: int = 0


Mlps = list[Mlp]


def _dense(config: Config) -> Mlp:
    return Mlp(config.count("intermediate_size"))


def _experts(
    config: Config,
    width: int,
    shared: int = 0,
    experts: str = "num_experts",
    active: str = "num_experts_per_tok",
) -> Mlp:
    """Experts of a width, beside shared ones of a width [1], counted under these keys."""
    return Mlp(width, True, config.count(experts), config.count(active), shared)


def gated(config: Config, layers: int) -> Mlps:
    """One dense MLP with a gate in every layer."""
    return [_dense(config)] * layers


def ungated(*names: str) -> Callable[[Config, int], Mlps]:
    """Two matrices, four times as wide as the model where the config does not say."""

    def mlp(config: Config, layers: int) -> Mlps:
        ratio = config.count("expansion_ratio", default=4)
        width = config.count(*names, default=ratio * config.hidden)
        return [Mlp(width, gated=False)] * layers

    return mlp


def none(config: Config, layers: int) -> Mlps:
    """No MLP: the mixer is all of a layer."""
    return [Mlp(0)] * layers


def experts_everywhere(config: Config, layers: int) -> Mlps:
    """Experts in every layer: num_local_experts of intermediate_size each."""
    moe = Mlp(
        config.count("intermediate_size"),
        True,
        config.count("num_local_experts", "num_experts"),
        config.count("num_experts_per_tok", "experts_per_token"),
        config.count("shared_intermediate_size", default=0),
    )
    return [moe] * layers


def granite_experts(config: Config, layers: int) -> Mlps:
    """Experts beside a shared one in every layer, or the shared one alone (Granite 4)."""
    if config.count("num_local_experts", default=0):
        return experts_everywhere(config, layers)
    config.value("num_experts_per_tok", "intermediate_size")
    return [Mlp(config.count("shared_intermediate_size"))] * layers


def every_nth_sparse(config: Config, layers: int) -> Mlps:
    """Experts in every `decoder_sparse_step`-th layer that is not in `mlp_only_layers`."""
    width = config.count("moe_intermediate_size")
    shared = config.count("shared_expert_intermediate_size", default=0)
    moe, dense = _experts(config, width, shared), _dense(config)
    step = config.period("decoder_sparse_step", default=1)
    only_dense = config.listed("mlp_only_layers", int, "numbers of layers")
    sparse = [i not in only_dense and (i + 1) % step == 0 for i in range(layers)]
    return [moe if is_moe else dense for is_moe in sparse]


def first_dense(config: Config, layers: int) -> Mlps:
    """Dense MLPs in the first `first_k_dense_replace` layers, experts behind them.

    `mlp_layer_types`, where a config has it, names the MLP of every layer.
    """
    width = config.count("moe_intermediate_size")
    shared = config.count("n_shared_experts", default=0) * width
    moe = _experts(config, width, shared, experts="n_routed_experts")
    dense = _dense(config)
    first = config.count("first_k_dense_replace", default=0)
    every = config.period("moe_layer_freq", default=1)
    if types := config.items("mlp_layer_types", layers):
        return [dense if entry == "dense" else moe for entry in types]
    return [moe if i >= first and i % every == 0 else dense for i in range(layers)]


def ling_experts(config: Config, layers: int) -> Mlps:
    """As in `first_dense`, under the names of Ling 2."""
    width = config.count("moe_intermediate_size")
    shared_width = config.count("moe_shared_expert_intermediate_size", default=width)
    shared = config.count("num_shared_experts", default=0) * shared_width
    moe, dense = _experts(config, width, shared), _dense(config)
    first = config.count("first_k_dense_replace", default=0)
    return [moe if i >= first else dense for i in range(layers)]


def ernie_experts(config: Config, layers: int) -> Mlps:
    """Experts in every `moe_layer_interval`-th layer between a first and a last one (ERNIE 4.5)."""
    width = config.count("moe_intermediate_size")
    shared = config.count("moe_num_shared_experts", default=0) * width
    moe = _experts(config, width, shared, experts="moe_num_experts", active="moe_k")
    dense = _dense(config)
    first = config.count("moe_layer_start_index", default=0)
    last = config.value("moe_layer_end_index")
    end = last if isinstance(last, int) and last >= 0 else layers - 1
    interval = config.period("moe_layer_interval", default=1)
    config.value("moe_capacity", "moe_norm_min", "moe_use_aux_free", "moe_gate")
    places = range(layers)
    return [moe if first <= i <= end and (i + 1) % interval == 0 else dense for i in places]


def llama4_experts(config: Config, layers: int) -> Mlps:
    """Experts and one shared expert in every `interleave_moe_layer_step`-th layer."""
    width = config.count("intermediate_size")
    active = config.count("num_experts_per_tok", default=1)
    moe = Mlp(width, True, config.count("num_local_experts"), active, shared=width)
    dense = Mlp(config.count("intermediate_size_mlp"))
    step = config.period("interleave_moe_layer_step", default=1)
    if with_experts := config.listed("moe_layers", int, "numbers of layers"):
        return [moe if i in with_experts else dense for i in range(layers)]
    return [moe if (i + 1) % step == 0 else dense for i in range(layers)]


def jamba_experts(config: Config, layers: int) -> Mlps:
    """Experts in one layer of `expert_layer_period`."""
    dense = _dense(config)
    experts = config.count("num_experts", default=16)
    moe = Mlp(dense.ffn, True, experts, config.count("num_experts_per_tok", default=2))
    period = config.period("expert_layer_period", default=2)
    offset = config.count("expert_layer_offset", default=1)
    return [moe if i % period == offset else dense for i in range(layers)]

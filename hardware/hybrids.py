"""Families with recurrent layers: state spaces and linear attention, from their config.json.

Rules are those of the models' own code, which a config leaves unsaid. Each function returns the
attention of every layer. Sources: Mamba, Mamba-2, Gated DeltaNet; configurations of Transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from nearkv.hardware.attention import Attentions, full_attention, listed
from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError
from nearkv.hardware.layers import Attention, hidden_of


def _recurrent(parameters: int, state: int, operations: int) -> Attention:
    numbers = (
        ("mixer_parameters", parameters),
        ("state_size", state),
        ("state_flops", operations),
    )
    return Attention("state", 1, 1, 1, numbers=numbers)


def _mamba1(hidden: int, inner: int, state: int, kernel: int, rank: int) -> Attention:
    """Selective state space (Mamba, sec. 3): in, convolution, x and dt projections, A, out."""
    projections = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    parameters = projections + inner * (kernel + state + 1)
    operations = 5 * inner * state + 2 * inner * kernel
    return _recurrent(parameters, inner * (state + kernel - 1), operations)


def jamba(config: Config, layers: int) -> Attentions:
    """One attention layer in `attn_layer_period`, state spaces between them."""
    hidden = hidden_of(config)
    rank = config.value("mamba_dt_rank")
    mamba = _mamba1(
        hidden,
        config.count("mamba_expand", default=2) * hidden,
        config.count("mamba_d_state", default=16),
        config.count("mamba_d_conv", default=4),
        rank if isinstance(rank, int) else ceil(hidden / 16),
    )
    if config.value("sliding_window"):
        raise config.refuse(
            "sliding_window", "limits attention, which is not modelled here"
        )
    period = config.period("attn_layer_period", default=8)
    offset = config.count("attn_layer_offset", default=4)
    full = full_attention(config)
    return [full if i % period == offset else mamba for i in range(layers)]


def mamba2(config: Config, layers: int) -> Attentions:
    """State-space duality in every layer (Mamba-2, sec. 7)."""
    heads, size = config.count("num_heads"), config.count("head_dim")
    hidden, inner = hidden_of(config), heads * size
    if config.count("expand", default=2) * hidden != inner:
        raise config.refuse("expand", f"does not agree with heads x head_dim = {inner}")
    mixer = _mamba2(
        hidden,
        heads,
        size,
        config.count("state_size"),
        config.count("n_groups", default=8),
        config.count("conv_kernel", default=4),
    )
    return [mixer] * layers


def _mamba2(
    hidden: int, heads: int, size: int, state: int, groups: int, kernel: int
) -> Attention:
    """Heads of a state, a convolution over x, B and C (Mamba-2, sec. 7): in, convolution, out.

    Args:
        hidden: width of the model [1].
        heads, size: of the mixer [1].
        state: of each channel [1].
        groups: of heads that share B and C [1].
        kernel: of the convolution [1].
    """
    inner = heads * size
    convolved = inner + 2 * groups * state
    parameters = hidden * (inner + convolved + heads) + inner * hidden
    parameters += convolved * kernel + inner + 3 * heads
    operations = 5 * inner * state + 2 * convolved * kernel
    return _recurrent(parameters, inner * state + convolved * (kernel - 1), operations)


def granite_hybrid(config: Config, layers: int) -> Attentions:
    """Mamba-2 and attention by `layer_types` (Granite 4)."""
    hidden, heads = hidden_of(config), config.count("mamba_n_heads", default=128)
    expanded = config.count("mamba_expand", default=2) * hidden
    size = config.value("mamba_d_head")
    size = size if isinstance(size, int) else expanded // max(heads, 1)
    if heads * size != expanded:
        raise config.refuse("mamba_d_head", f"does not agree with a width of {expanded}")
    mixer = _mamba2(
        hidden,
        heads,
        size,
        config.count("mamba_d_state", default=256),
        config.count("mamba_n_groups", default=1),
        config.count("mamba_d_conv", default=4),
    )
    kinds = {"attention": full_attention(config), "mamba": mixer}
    return _listed(config, layers, kinds)


def _listed(config: Config, layers: int, kinds: Mapping[str, Attention]) -> Attentions:
    """Layers by their entry in `layer_types`, which the config must have.

    Raises:
        InputError: it has none, or one names a layer that is not modelled.
    """
    attentions = listed(config, layers, kinds)
    if not attentions:
        raise InputError(
            f"{config.where}: lacks 'layer_types', which names every layer; add it"
        )
    return attentions


def qwen3_next(config: Config, layers: int) -> Attentions:
    """Gated delta rule in three layers of four, gated full attention in the fourth."""
    hidden = hidden_of(config)
    full = full_attention(config)
    gate = full.heads * full.head_size * hidden
    gated = Attention("full", full.heads, full.kv_heads, full.head_size, gate)
    key_size = config.count("linear_key_head_dim")
    value_heads = config.count("linear_num_value_heads")
    keys = config.count("linear_num_key_heads") * key_size
    values = value_heads * config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim")
    convolved = 2 * keys + values
    parameters = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
    matrix = values * key_size
    linear = _recurrent(
        parameters + convolved * kernel,
        matrix + convolved * (kernel - 1),
        7 * matrix + 2 * convolved * kernel,
    )
    interval = config.period("full_attention_interval", default=4)
    kinds = {"full_attention": gated, "linear_attention": linear}
    typed = listed(config, layers, kinds)
    places = range(1, layers + 1)
    return typed or [gated if place % interval == 0 else linear for place in places]

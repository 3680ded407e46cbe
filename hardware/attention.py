"""How the layers of a family attend, from its config.json: attention, or a recurrent state.

Rules are those of the models' own code, which a config leaves unsaid. The functions that families
name return the attention of every layer. Sources: the families' reports, the configurations of
Transformers; Mamba, Mamba-2 and Gated DeltaNet for the recurrent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError


@dataclass(frozen=True)
class Attention:
    """How one layer attends.

    Attributes:
        type: `full`, `window`, `chunk`, `latent`, `sparse` or `state`.
        heads, kv_heads, head_size: as cost models count them [1].
        beside: parameters beside the projections of these heads [1].
        numbers: what only this type has, by name.
    """

    type: str
    heads: int
    kv_heads: float
    head_size: int
    beside: int = 0
    numbers: tuple[tuple[str, float], ...] = ()

    def limited(self, limit: str, tokens: int) -> Attention:
        """These heads, limited to a `window` or a `chunk` of some tokens."""
        return replace(self, type=limit, numbers=(("window", tokens),))


Attentions = list[Attention]


def full_attention(config: Config) -> Attention:
    """Grouped heads: num_attention_heads, num_key_value_heads, head_dim.

    Raises:
        InputError: a size of zero, or a width that the heads do not divide.
    """
    heads = config.heads
    kv_heads = config.count("num_key_value_heads", default=heads)
    if heads and not kv_heads:
        raise config.refuse("num_key_value_heads", "must be 1 or more")
    if config.value("head_dim") is not None:
        size = config.count("head_dim")
        if not size:
            raise config.refuse(
                "head_dim", "is not a size of a head; correct it or leave it out"
            )
        return Attention("full", heads, kv_heads, size)
    size, rest = divmod(config.hidden, max(heads, 1))
    if rest:
        problem = f"a width of {config.hidden:,} does not divide into {heads:,} heads"
        raise InputError(f"{config.where}: {problem}; correct one, or add head_dim")
    return Attention("full", heads, kv_heads, size)


def listed(config: Config, layers: int, types: Mapping[str, Attention]) -> Attentions:
    """Layers by their entry in `layer_types`; empty where the config has none.

    Raises:
        InputError: an entry names a layer that is not modelled.
    """
    entries = config.items("layer_types", layers)
    for entry in entries:
        if entry not in list(types):  # an entry may be a list, which is no key of a table
            problem = f"names {entry!r}, which is not modelled"
            raise InputError(f"{config.where}: layer_types {problem}")
    return [types[entry] for entry in entries]


def _windows(
    config: Config,
    layers: int,
    window: int,
    is_limited: Callable[[int], bool],
    limit: str = "window",
) -> Attentions:
    """Layers by their entry in `layer_types`, or else by a rule of the family.

    Args:
        config: the keys.
        layers: how many [1].
        window: tokens of a window or chunk; 0 where the model has none [1].
        is_limited: the rule: layer, from 0 -> whether the window limits it.
        limit: what limits it, `window` or `chunk`.
    """
    full = full_attention(config)
    types = {"full_attention": full}
    if window:
        types["sliding_attention"] = full.limited("window", window)
        types["chunked_attention"] = full.limited("chunk", window)
    by_rule = full.limited(limit, window) if window else full
    typed = listed(config, layers, types)
    return typed or [by_rule if is_limited(layer) else full for layer in range(layers)]


# --- attention over a KV cache ------------------------------------------------------------------


def plain(config: Config, layers: int) -> Attentions:
    """Full attention in every layer, or a window of `sliding_window` tokens in every one."""
    if 0 in config.items("attn_type_list", layers):
        raise config.refuse("attn_type_list", "has linear layers, which are not modelled")
    window = config.count("sliding_window", default=0)
    return _windows(config, layers, window, lambda _: True)


def qwen(config: Config, layers: int) -> Attentions:
    """A window from layer `max_window_layers` on, where `use_sliding_window` is set."""
    window = config.count("sliding_window", default=0)
    if not config.flag("use_sliding_window", False):
        window = 0
    first = config.count("max_window_layers", default=layers)
    return _windows(config, layers, window, lambda layer: layer >= first)


def smollm(config: Config, layers: int) -> Attentions:
    """As Qwen's; which layers have rotary positions changes neither bytes nor FLOPs."""
    config.value("no_rope_layers", "no_rope_layer_interval")
    return qwen(config, layers)


def every(period: int) -> Callable[[Config, int], Attentions]:
    """Windows in all layers but one in `period` (or in `sliding_window_pattern`)."""

    def attention(config: Config, layers: int) -> Attentions:
        window = config.count("sliding_window", default=0)
        keys = ("sliding_window_pattern", "_sliding_window_pattern")
        repeat = config.period(*keys, default=period)
        return _windows(config, layers, window, lambda layer: (layer + 1) % repeat != 0)

    return attention


def exaone(config: Config, layers: int) -> Attentions:
    """Windows by `layer_types`, or by a pattern: a letter for each layer, or a period.

    EXAONE 4 writes L for a window and G for full attention; without a window, all are full.
    """
    window = config.count("sliding_window", default=0)
    pattern = config.value("sliding_window_pattern")
    if not window or config.value("layer_types"):
        return _windows(config, layers, window, lambda _: False)
    if not isinstance(pattern, str):
        return every(4)(config, layers)
    if not pattern or set(pattern) - {"L", "G"}:
        raise config.refuse("sliding_window_pattern", "has letters other than L and G")
    return _windows(
        config, layers, window, lambda layer: pattern[layer % len(pattern)] == "L"
    )


def llama4(config: Config, layers: int) -> Attentions:
    """Chunks in layers with rotary positions: all but one in four (`no_rope_layers`)."""
    chunk = config.count("attention_chunk_size", default=0)
    interval = config.period("no_rope_layer_interval", default=4)
    rotary = config.items("no_rope_layers", layers)
    rotary = rotary or [(layer + 1) % interval != 0 for layer in range(layers)]
    return _windows(config, layers, chunk, lambda layer: bool(rotary[layer]), "chunk")


def latent(config: Config, layers: int) -> Attentions:
    """Multi-head latent attention: one row of r + dr elements per token is half a KV head.

    With `index_topk`, an indexer chooses the tokens (DeepSeek-V3.2).
    """
    rank = config.count("kv_lora_rank")
    rope = config.count("qk_rope_head_dim")
    config.value("num_key_value_heads", "head_dim", "qk_head_dim")
    numbers = (
        ("query_rank", config.count("q_lora_rank", default=0)),
        ("kv_rank", rank),
        ("rope_size", rope),
        ("key_size", config.count("qk_nope_head_dim")),
        ("value_size", config.count("v_head_dim")),
    )
    dense = Attention("latent", config.heads, 0.5, rank + rope, numbers=numbers)
    chosen = config.count("index_topk", default=0)
    if not chosen:
        return [dense] * layers
    if "shared" in config.items("indexer_types", layers):
        raise config.refuse(
            "indexer_types", "shares indexers between layers, which is not modelled"
        )
    indexer = (
        ("index_heads", config.count("index_n_heads")),
        ("index_size", config.count("index_head_dim")),
        ("chosen", chosen),
    )
    return [replace(dense, type="sparse", numbers=numbers + indexer)] * layers


def falcon(config: Config, layers: int) -> Attentions:
    """One KV head, or `num_kv_heads` of them in the new architecture."""
    heads = config.heads
    grouped = config.count("num_kv_heads", "n_head_kv", default=heads)
    kv_heads = 1 if config.flag("multi_query", True) else heads
    if config.flag("new_decoder_architecture", False):
        kv_heads = grouped
    size = config.hidden // max(heads, 1)
    return [Attention("full", heads, kv_heads, size)] * layers


def mpt(config: Config, layers: int) -> Attentions:
    """Heads of `attn_config`."""
    heads = config.heads
    inner = config.table_of("attn_config")
    kv_heads = {
        "multihead_attention": heads,
        "grouped_query_attention": inner.count("kv_n_heads", default=heads),
        "multiquery_attention": 1,
    }
    name = inner.value("attn_type") or "multihead_attention"
    if name not in list(kv_heads):
        raise inner.refuse("attn_type", f"is unknown; known are {', '.join(kv_heads)}")
    size = config.hidden // max(heads, 1)
    return [Attention("full", heads, kv_heads[name], size)] * layers


def hunyuan(config: Config, layers: int) -> Attentions:
    """Full attention; `use_cla` would share K and V between layers."""
    if config.flag("use_cla", False):
        raise config.refuse(
            "use_cla", "shares K and V between layers, which is not modelled"
        )
    config.value("cla_share_factor", "attention_head_dim")
    return [full_attention(config)] * layers


# --- recurrent states: state spaces and linear attention ----------------------------------------


def _recurrent(parameters: int, state: int, operations: int) -> Attention:
    """A layer without a KV cache.

    Args:
        parameters: of the mixer [1].
        state: elements that it keeps of a sequence of any length [1].
        operations: on the state for each token [FLOP].
    """
    numbers = (
        ("mixer_parameters", parameters),
        ("state_size", state),
        ("state_flops", operations),
    )
    return Attention("state", 1, 1, 1, numbers=numbers)


def jamba(config: Config, layers: int) -> Attentions:
    """One attention layer in `attn_layer_period`, selective state spaces between them.

    A state space (Mamba, sec. 3) has in, convolution, x and dt projections, A, out.
    """
    if config.value("sliding_window"):
        raise config.refuse(
            "sliding_window", "limits attention, which is not modelled here"
        )
    hidden = config.hidden
    inner = config.count("mamba_expand", default=2) * hidden
    state = config.count("mamba_d_state", default=16)
    kernel = config.count("mamba_d_conv", default=4)
    rank = config.value("mamba_dt_rank")
    rank = rank if isinstance(rank, int) else ceil(hidden / 16)
    projections = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    mamba = _recurrent(
        parameters=projections + inner * (kernel + state + 1),
        state=inner * (state + kernel - 1),
        operations=5 * inner * state + 2 * inner * kernel,
    )
    period = config.period("attn_layer_period", default=8)
    offset = config.count("attn_layer_offset", default=4)
    full = full_attention(config)
    return [full if layer % period == offset else mamba for layer in range(layers)]


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
    projections = hidden * (inner + convolved + heads) + inner * hidden
    return _recurrent(
        parameters=projections + convolved * kernel + inner + 3 * heads,
        state=inner * state + convolved * (kernel - 1),
        operations=5 * inner * state + 2 * convolved * kernel,
    )


def mamba2(config: Config, layers: int) -> Attentions:
    """State-space duality in every layer (Mamba-2, sec. 7)."""
    heads, size = config.count("num_heads"), config.count("head_dim")
    state = config.count("state_size")
    groups = config.count("n_groups", default=8)
    kernel = config.count("conv_kernel", default=4)
    if config.count("expand", default=2) * config.hidden != heads * size:
        raise config.refuse(
            "expand", f"does not agree with heads x head_dim = {heads * size}"
        )
    return [_mamba2(config.hidden, heads, size, state, groups, kernel)] * layers


def granite_hybrid(config: Config, layers: int) -> Attentions:
    """Mamba-2 and attention by `layer_types`, which the config must have (Granite 4)."""
    heads = config.count("mamba_n_heads", default=128)
    expanded = config.count("mamba_expand", default=2) * config.hidden
    size = config.value("mamba_d_head")
    size = size if isinstance(size, int) else expanded // max(heads, 1)
    if heads * size != expanded:
        raise config.refuse("mamba_d_head", f"does not agree with a width of {expanded}")
    state = config.count("mamba_d_state", default=256)
    groups = config.count("mamba_n_groups", default=1)
    kernel = config.count("mamba_d_conv", default=4)
    mixer = _mamba2(config.hidden, heads, size, state, groups, kernel)
    types = {"attention": full_attention(config), "mamba": mixer}
    attentions = listed(config, layers, types)
    if not attentions:
        raise InputError(
            f"{config.where}: lacks 'layer_types', which names every layer; add it"
        )
    return attentions


def qwen3_next(config: Config, layers: int) -> Attentions:
    """Gated delta rule in three layers of four, gated full attention in the fourth."""
    hidden = config.hidden
    full = full_attention(config)
    gated = replace(full, beside=full.heads * full.head_size * hidden)
    key_size = config.count("linear_key_head_dim")
    value_heads = config.count("linear_num_value_heads")
    keys = config.count("linear_num_key_heads") * key_size
    values = value_heads * config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim")
    convolved = 2 * keys + values
    projections = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
    matrix = values * key_size
    linear = _recurrent(
        parameters=projections + convolved * kernel,
        state=matrix + convolved * (kernel - 1),
        operations=7 * matrix + 2 * convolved * kernel,
    )
    interval = config.period("full_attention_interval", default=4)
    types = {"full_attention": gated, "linear_attention": linear}
    typed = listed(config, layers, types)
    places = range(1, layers + 1)
    return typed or [gated if place % interval == 0 else linear for place in places]

"""How the layers of a family attend, from its config.json.

Rules are those of the models' own code, which a config leaves unsaid. Each function returns the
attention of every layer. Sources: the families' reports and the configurations of Transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError
from nearkv.hardware.layers import Attention, heads_of, hidden_of

Attentions = list[Attention]


def full_attention(config: Config) -> Attention:
    """Grouped heads: num_attention_heads, num_key_value_heads, head_dim."""
    heads = heads_of(config)
    kv_heads = config.count("num_key_value_heads", default=heads)
    if heads and not kv_heads:
        raise config.refuse("num_key_value_heads", "must be 1 or more")
    size = _head_size(config, heads)
    return Attention("full", heads, kv_heads, size)


def _head_size(config: Config, heads: int) -> int:
    """Elements of one head, stated or as the heads share the model's width [1].

    Raises:
        InputError: a stated size of zero, or a width that the heads do not divide.
    """
    if config.value("head_dim") is not None:
        size = config.count("head_dim")
        if not size:
            raise config.refuse(
                "head_dim", "is no size of a head; correct it or leave it out"
            )
        return size
    hidden = hidden_of(config)
    size, rest = divmod(hidden, max(heads, 1))
    if rest:
        problem = f"a width of {hidden:,} does not divide into {heads:,} heads"
        raise InputError(f"{config.where}: {problem}; correct one, or add head_dim")
    return size


def _limited(full: Attention, kind: str, window: int) -> Attention:
    numbers = (("window", window),)
    return Attention(kind, full.heads, full.kv_heads, full.head_size, full.beside, numbers)


def _typed(config: Config, layers: int, full: Attention, window: int) -> Attentions:
    """Layers by their entry in `layer_types`; empty where the config has none."""
    kinds = {"full_attention": full}
    if window:
        kinds["sliding_attention"] = _limited(full, "window", window)
        kinds["chunked_attention"] = _limited(full, "chunk", window)
    return listed(config, layers, kinds)


def listed(config: Config, layers: int, kinds: Mapping[str, Attention]) -> Attentions:
    """Layers by their entry in `layer_types`; empty where the config has none.

    Raises:
        InputError: an entry names a layer that is not modelled.
    """
    types = config.items("layer_types", layers)
    for kind in types:
        if kind not in list(kinds):  # what a file lists may be no key of a table
            problem = f"names {kind!r}, which is not modelled"
            raise InputError(f"{config.where}: layer_types {problem}")
    return [kinds[kind] for kind in types]


def plain(config: Config, layers: int) -> Attentions:
    """Full attention in every layer, or a window of `sliding_window` tokens in every one."""
    full = full_attention(config)
    window = config.count("sliding_window", default=0)
    if 0 in config.items("attn_type_list", layers):
        raise config.refuse("attn_type_list", "has linear layers, which are not modelled")
    typed = _typed(config, layers, full, window)
    if typed:
        return typed
    return [_limited(full, "window", window) if window else full] * layers


def qwen(config: Config, layers: int) -> Attentions:
    """A window from layer `max_window_layers` on, where `use_sliding_window` is set."""
    full = full_attention(config)
    used = config.flag("use_sliding_window", False)
    window = config.count("sliding_window", default=0) if used else 0
    config.value("sliding_window")
    first = config.count("max_window_layers", default=layers)
    typed = _typed(config, layers, full, window)
    if typed:
        return typed
    windowed = _limited(full, "window", window) if window else full
    return [windowed if layer >= first else full for layer in range(layers)]


def every(period: int) -> Callable[[Config, int], Attentions]:
    """Windows in all layers but one in `period` (or in `sliding_window_pattern`)."""

    def attention(config: Config, layers: int) -> Attentions:
        full = full_attention(config)
        window = config.count("sliding_window", default=0)
        repeat = config.period(
            "sliding_window_pattern", "_sliding_window_pattern", default=period
        )
        typed = _typed(config, layers, full, window)
        if typed:
            return typed
        windowed = _limited(full, "window", window) if window else full
        places = range(1, layers + 1)
        return [full if place % repeat == 0 else windowed for place in places]

    return attention


def llama4(config: Config, layers: int) -> Attentions:
    """Chunks in layers with rotary positions: all but one in four (`no_rope_layers`)."""
    full = full_attention(config)
    chunk = config.count("attention_chunk_size", default=0)
    interval = config.period("no_rope_layer_interval", default=4)
    rotary = config.items("no_rope_layers", layers)
    typed = _typed(config, layers, full, chunk)
    if typed:
        return typed
    rotary = rotary or [int((i + 1) % interval != 0) for i in range(layers)]
    chunked = _limited(full, "chunk", chunk) if chunk else full
    return [chunked if has_rope else full for has_rope in rotary]


def latent(config: Config, layers: int) -> Attentions:
    """Multi-head latent attention: one row of r + dr elements per token is half a KV head.

    With `index_topk`, an indexer chooses the tokens (DeepSeek-V3.2).
    """
    heads = heads_of(config)
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
    chosen = config.count("index_topk", default=0)
    if not chosen:
        return [Attention("latent", heads, 0.5, rank + rope, numbers=numbers)] * layers
    if "shared" in config.items("indexer_types", layers):
        raise config.refuse(
            "indexer_types", "shares indexers between layers, which is not modelled"
        )
    indexer = (
        ("index_heads", config.count("index_n_heads")),
        ("index_size", config.count("index_head_dim")),
        ("chosen", chosen),
    )
    return [Attention("sparse", heads, 0.5, rank + rope, 0, numbers + indexer)] * layers


def falcon(config: Config, layers: int) -> Attentions:
    """One KV head, or `num_kv_heads` of them in the new architecture."""
    heads = heads_of(config)
    new = config.flag("new_decoder_architecture", False)
    single = config.flag("multi_query", True)
    grouped = config.count("num_kv_heads", "n_head_kv", default=heads)
    old = 1 if single else heads
    kv_heads = grouped if new else old
    size = hidden_of(config) // max(heads, 1)
    return [Attention("full", heads, kv_heads, size)] * layers


def mpt(config: Config, layers: int) -> Attentions:
    """Heads of `attn_config`."""
    heads = heads_of(config)
    inner = config.table_of("attn_config")
    kinds = {
        "multihead_attention": heads,
        "grouped_query_attention": inner.count("kv_n_heads", default=heads),
        "multiquery_attention": 1,
    }
    kind = inner.value("attn_type") or "multihead_attention"
    if kind not in list(kinds):
        raise inner.refuse("attn_type", f"is unknown; known are {', '.join(kinds)}")
    size = hidden_of(config) // max(heads, 1)
    return [Attention("full", heads, kinds[kind], size)] * layers


def exaone(config: Config, layers: int) -> Attentions:
    """Windows by `layer_types`, or by a pattern: one letter a layer, or one full layer in so many.

    EXAONE 4 writes L for a window and G for full attention; without a window, all are full.
    """
    full = full_attention(config)
    window = config.count("sliding_window", default=0)
    pattern = config.value("sliding_window_pattern")
    typed = _typed(config, layers, full, window)
    if typed or not window:
        return typed or [full] * layers
    if not isinstance(pattern, str):
        return every(4)(config, layers)
    if not pattern or set(pattern) - {"L", "G"}:
        raise config.refuse("sliding_window_pattern", "has letters other than L and G")
    letters = pattern * (layers // len(pattern) + 1)
    windowed = _limited(full, "window", window)
    return [windowed if letter == "L" else full for letter in letters[:layers]]


def smollm(config: Config, layers: int) -> Attentions:
    """As Qwen's; which layers have rotary positions changes neither bytes nor FLOPs."""
    config.value("no_rope_layers", "no_rope_layer_interval")
    return qwen(config, layers)


def hunyuan(config: Config, layers: int) -> Attentions:
    """Full attention; `use_cla` would share K and V between layers."""
    if config.flag("use_cla", False):
        raise config.refuse(
            "use_cla", "shares K and V between layers, which is not modelled"
        )
    config.value("cla_share_factor", "attention_head_dim")
    return [full_attention(config)] * layers

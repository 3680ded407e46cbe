"""Numbers of a layer of each kind: mixers that attend or keep a state, and MLPs.

Sources: the families' reports and code; Mamba, Mamba-2, Gated DeltaNet, Kimi Linear and Lightning
Attention for states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil

from nearkv.hardware.errors import InputError
from nearkv.hardware.families import Config, LayerKind, kinds_of_layers
from nearkv.hardware.units import LARGEST

LayerSizes = Mapping[str, float]
"""Numbers of a layer by the keys of `llm-layer`. `shared_parameters` are those that every token
uses beside the projections of its heads, or beside its MLP or experts."""

# --- heads ----------------------------------------------------------------------------------------


def grouped(config: Config, kind: str = "full") -> LayerSizes:
    """Grouped heads, of the mean size of keys and values: bytes and FLOPs are those of both.

    Raises:
        InputError: a size of zero, or a width that the heads do not divide.
    """
    heads = config.count("heads", kind)
    size = _head_size(config, kind, heads)
    values = config.count("value_size", kind, default=size)
    if (size + values) % 2:
        raise config.refuse("v_head_dim", "and head_dim have an odd sum; not modelled")
    sizes = {
        "heads": heads,
        "kv_heads": config.count("kv_heads", kind, default=heads, low=min(heads, 1)),
        "head_size": (size + values) // 2,
        "shared_parameters": heads * size * config["hidden"] * config.flag("output_gate"),
    }
    return sizes | {"kv_projections": 1} if config.flag("same_kv", kind) else sizes


def _multihead(config: Config) -> LayerSizes:
    """Heads with K and V of their own, whatever the config says of groups."""
    return {**grouped(config), "kv_heads": config["heads"]}


def _multiquery(config: Config) -> LayerSizes:
    """Heads that share one head of K and V."""
    return {**grouped(config), "kv_heads": 1}


def _head_size(config: Config, kind: str, heads: int) -> int:
    if config.value("head_size", kind) is not None:
        return config.count("head_size", kind, low=1)
    hidden = config["hidden"]
    size, rest = divmod(hidden, max(heads, 1))
    if rest:
        problem = f"a width of {hidden:,} does not divide into {heads:,} heads"
        raise InputError(f"{config.where}: {problem}, and there is no head_dim")
    return size


def _limited(config: Config, limit: str) -> LayerSizes:
    """Heads limited to a `window` or a `chunk` of some tokens."""
    return {**grouped(config, limit), "window": config.count(limit, low=1)}


def _borrowing(config: Config, of: Mixer) -> LayerSizes:
    """Heads that read the K and V of an earlier layer, and have no projections of their own."""
    return {"window": LARGEST, **of(config), "kv_projections": 0}


def _selected(config: Config) -> LayerSizes:
    """Heads over the blocks of tokens that an indexer chooses (MiniMax-M3)."""
    tokens = config["chosen"] * config["index_block"]
    return {**grouped(config), **_indexer(config), "chosen": tokens}


def _indexer(config: Config) -> LayerSizes:
    return {name: config[name] for name in ("index_heads", "index_size", "chosen")}


# --- latents --------------------------------------------------------------------------------------


def _latent(config: Config) -> LayerSizes:
    """Multi-head latent attention: one row of r + dr elements per token is half a KV head."""
    heads, values = config["heads"], config["latent_value_size"]
    return {
        "heads": heads,
        "kv_heads": 0.5,
        "head_size": config["kv_rank"] + config["rope_size"],
        "shared_parameters": heads * values * config["hidden"] * config.flag("output_gate"),
        "query_rank": config.count("query_rank", default=0),
        "kv_rank": config["kv_rank"],
        "rope_size": config["rope_size"],
        "key_size": config["key_size"],
        "value_size": values,
    }


def _sparse(config: Config) -> LayerSizes:
    """Latent attention to the tokens that an indexer chooses (DeepSeek-V3.2)."""
    return {**_latent(config), **_indexer(config)}


def _sparse_shared(config: Config) -> LayerSizes:
    """Layer that reads the tokens that an earlier layer's indexer chose: it has none (GLM-5.2)."""
    return {
        **_latent(config),
        "index_heads": 0,
        "index_size": 0,
        "chosen": config["chosen"],
    }


def _compressed(config: Config, rate: int, indexed: bool = False) -> LayerSizes:
    """A window of rows, and one row for each `rate` tokens before it (DeepSeek-V4, sec. 2.3).

    Args:
        config: sizes of the model.
        rate: tokens of a compressed row; 0 where the layer has none [1].
        indexed: whether rows take in their neighbour's tokens, with projections of their own, and
            an indexer chooses among them.
    """
    hidden, heads, size = config["hidden"], config["heads"], config["head_size"]
    if config.count("kv_heads", default=1) != 1:
        raise config.refuse("num_key_value_heads", "is not one row for all heads")
    rank, output = config["query_rank"], config["output_rank"]
    queries = rank * (hidden + heads * size)
    outputs = heads * size * output + config["output_groups"] * output * hidden
    # a row and its weight are projected apart, and wait in 32 bits until it is full
    halves = 2 * (1 + indexed) * size if rate else 0
    indexer: LayerSizes = {"index_heads": 0, "index_size": 0, "chosen": LARGEST}
    if indexed:
        indexer = _indexer(config)
    index_heads, index_size = indexer["index_heads"], indexer["index_size"]
    indexing = (rank * index_size + hidden) * index_heads + hidden * 4 * index_size
    state = 2 * (1 + indexed) * rate * halves + 2 * 2 * rate * 4 * index_size
    return {
        "heads": heads,
        "kv_heads": 0.5,
        "head_size": size,
        "mixer_parameters": queries + hidden * (size + halves) + outputs + indexing,
        "window": config.count("window", low=1),
        "rate": rate,
        "state_size": state,
        **indexer,
    }


# --- recurrent states: state spaces and linear attention ------------------------------------------

_STATE_TYPES = {"": 1, "bfloat16": 1, "float16": 1, "float32": 2}
"""Elements of 16 bits in one of a state, by its type."""


def _recurrent(
    config: Config, projections: int, convolved: int, matrix: int, operations: int
) -> LayerSizes:
    """A layer without a KV cache: a state, and a convolution over the last tokens.

    Args:
        config: says which type the state has, and how many tokens the convolution sees.
        projections: parameters of the mixer beside its convolution [1].
        convolved: channels of the convolution, 0 without one; activations' type [1].
        matrix: elements of the state proper, of the state's type [1].
        operations: on each of them for a token [FLOP].
    """
    stored = config.value("state_type") or config.family.defaults["state_type"]
    if str(stored) not in _STATE_TYPES:
        known = ", ".join(filter(None, _STATE_TYPES))
        raise config.refuse(config.key("state_type"), f"is none of {known}")
    kernel = config["kernel"] if convolved else 1
    return {
        "heads": 1,
        "kv_heads": 1,
        "head_size": 1,
        "mixer_parameters": projections + convolved * kernel,
        "state_size": _STATE_TYPES[stored] * matrix + convolved * (kernel - 1),
        "state_flops": operations * matrix + 2 * convolved * kernel,
    }


def _none(config: Config) -> LayerSizes:
    """No mixer: the layer is an MLP."""
    return _recurrent(config, projections=0, convolved=0, matrix=0, operations=0)


def _mamba(config: Config) -> LayerSizes:
    """Selective state space (Mamba, sec. 3): in, convolution, x and dt projections, A, out."""
    hidden, state = config["hidden"], config["state_size"]
    inner = config.count("state_expand", low=1) * hidden
    rank = config.value("step_rank")
    rank = rank if isinstance(rank, int) else ceil(hidden / 16)
    projections = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    projections += inner * (state + 1)
    return _recurrent(config, projections, inner, matrix=inner * state, operations=5)


def _mamba2(config: Config) -> LayerSizes:
    """Heads of a state, a convolution over x, B and C (Mamba-2, sec. 7): in, convolution, out."""
    hidden, heads, state = config["hidden"], config["state_heads"], config["state_size"]
    inner = heads * _state_head_size(config, heads)
    convolved = inner + 2 * config["state_groups"] * state
    projections = hidden * (inner + convolved + heads) + inner * hidden
    projections += inner + 3 * heads
    return _recurrent(config, projections, convolved, matrix=inner * state, operations=5)


def _state_head_size(config: Config, heads: int) -> int:
    """Size of a head of a state: all heads fill the expanded width, where one is stated."""
    if "state_expand" not in config.family.keys:
        return config["state_head_size"]
    size = config.value("state_head_size")
    expanded = config["state_expand"] * config["hidden"]
    size = size if isinstance(size, int) else expanded // max(heads, 1)
    if heads * size != expanded:
        key = config.key("state_expand")
        problem = f"{heads} heads of {size} do not agree with a width of {expanded}"
        raise InputError(f"{config.where}: {key}: {problem}")
    return size


def _gated_delta(config: Config) -> LayerSizes:
    """Gated delta rule: q, k, v, gate, two numbers a head, a convolution, out (Gated DeltaNet)."""
    hidden, heads, key_size = (
        config["hidden"],
        config["value_heads"],
        config["key_head_size"],
    )
    keys, values = config["key_heads"] * key_size, heads * config["value_head_size"]
    projections = hidden * (2 * keys + 2 * values + 2 * heads) + values * hidden
    matrix = values * key_size
    return _recurrent(config, projections, 2 * keys + values, matrix, operations=7)


def _kda(config: Config) -> LayerSizes:
    """Kimi delta attention: as the gated delta rule, with a decay for each channel (sec. 3).

    The decay has a projection of the rank of a head; so has the output's gate, or a full one.
    """
    hidden, heads, size = config["hidden"], config["state_heads"], config["state_head_size"]
    inner = heads * size
    low_rank = (hidden + inner) * size
    gate = hidden * inner if config.flag("full_gate") else low_rank
    projections = 4 * hidden * inner + low_rank + gate + hidden * heads
    return _recurrent(config, projections, 3 * inner, matrix=inner * size, operations=7)


def _lightning(config: Config) -> LayerSizes:
    """Lightning attention: q, k, v, gate, out; a matrix that decays (MiniMax-01)."""
    heads = config["heads"]
    size = _head_size(config, "full", heads)
    projections = 5 * config["hidden"] * heads * size
    return _recurrent(config, projections, 0, matrix=heads * size * size, operations=5)


def _short_conv(config: Config) -> LayerSizes:
    """A gated convolution over the last tokens: in to three, out (LFM2)."""
    hidden = config["hidden"]
    return _recurrent(config, 4 * hidden**2, hidden, matrix=0, operations=0)


Mixer = Callable[[Config], LayerSizes]
_windowed = partial(_limited, limit="window")
_MIXERS: dict[str, Mixer] = {
    "full": grouped,
    "window": _windowed,
    "chunk": partial(_limited, limit="chunk"),
    "borrowed_full": partial(_borrowing, of=grouped),
    "borrowed_window": partial(_borrowing, of=_windowed),
    "multihead": _multihead,
    "multiquery": _multiquery,
    "selected": _selected,
    "latent": _latent,
    "sparse": _sparse,
    "sparse_shared": _sparse_shared,
    "compressed_window": partial(_compressed, rate=0),
    "compressed": partial(_compressed, rate=4, indexed=True),
    "compressed_heavily": partial(_compressed, rate=128),
    "mamba": _mamba,
    "mamba2": _mamba2,
    "gated_delta": _gated_delta,
    "kda": _kda,
    "lightning": _lightning,
    "short_conv": _short_conv,
    "none": _none,
}
"""Mixers by the name that rules give them."""
_STATES = ("mamba", "mamba2", "gated_delta", "kda", "lightning", "short_conv")
_LAYER_NAMES = {
    **dict.fromkeys(("multihead", "multiquery"), "full"),
    **dict.fromkeys(_STATES, "state"),
    "none": "state_none",
}
"""Names of layers, which begin with one of the cost model's, where a mixer's own is none."""

# --- MLPs ----------------------------------------------------------------------------------------


def mlp(kind: str, config: Config) -> LayerSizes:
    """The MLP of one kind: `dense`, `wide` (twice as wide), `moe`, `shared` (its alone), `none`.

    Raises:
        InputError: a size is missing.
    """
    gated = config.family.defaults["gated"]
    config.value("ffn")  # known, whether or not a layer is dense
    width = 0
    if kind == "moe":
        return {"gated": gated, **_experts(config, 2 + gated)}
    if kind == "shared":
        width = config.count("shared_ffn", low=1)
    elif kind != "none":
        unstated = None if gated else config["ffn_ratio"] * config["hidden"]
        width = config.count("ffn", default=unstated) * (2 if kind == "wide" else 1)
    return {"gated": gated, "ffn": width, "experts": 1, "active_experts": 1}


def _experts(config: Config, matrices: int) -> LayerSizes:
    """Experts, and beside them the router and the MLP or the experts that every token uses."""
    hidden, width, experts = config["hidden"], config["moe_ffn"], config["experts"]
    # shared experts are as wide as the others, but the one MLP of a family has a width of its own
    alike = None if "shared" in config.family.defaults else width
    shared = config.count("shared", default=0) * config.count("shared_ffn", default=alike)
    beside = matrices * shared + (experts if experts > 1 else 0)
    narrow = config.count("moe_hidden", default=hidden)
    ffn: float = width
    if narrow != hidden:
        # experts between narrower activations: the width that has as many parameters
        beside, ffn = beside + 2 * narrow, width * narrow / max(hidden, 1)
    return {
        "ffn": ffn,
        "experts": experts,
        "active_experts": config["active"],
        "shared_parameters": hidden * beside,
    }


# --- layers of a model ----------------------------------------------------------------------------


def layers_of(config: Config) -> dict[str, dict[str, float]]:
    """Numbers of each type of layer, by its name, with how many layers there are of it.

    A name is that of its mixer, with its MLP where that does not tell them apart.

    Raises:
        InputError: the config leaves a layer or a size of it unsaid.
    """
    counts = Counter(kinds_of_layers(config))
    repeated = Counter(_LAYER_NAMES.get(mixer, mixer) for mixer, _ in counts)
    types: dict[str, dict[str, float]] = {}
    for kind, count in counts.items():
        name, sizes = _LAYER_NAMES.get(kind[0], kind[0]), _sizes(kind, config)
        if repeated[name] > 1:
            name += (
                "_moe" if sizes["experts"] > 1 else "_dense" if sizes["ffn"] else "_alone"
            )
        alike = sum(other.startswith(name) for other in types)
        types[f"{name}_{alike + 1}" if name in types else name] = {**sizes, "layers": count}
    return types


def _sizes(kind: LayerKind, config: Config) -> dict[str, float]:
    """Numbers of one type of layer."""
    mixer, inner = _MIXERS[kind[0]](config), mlp(kind[1], config)
    hidden = config["hidden"]
    # an embedding of the layer's own passes a gate and comes back (Gemma 3n)
    per_layer = 3 * hidden * config.count("per_layer_input", default=0)
    # parallel streams of activations are mixed before and after both halves (DeepSeek-V4)
    streams = config.count("streams", default=0)
    beside: float = per_layer + 2 * (2 + streams) * streams**2 * hidden
    beside += sum(half.get("shared_parameters", 0) for half in (mixer, inner))
    sizes = {**mixer, **inner, "shared_parameters": beside}
    return {key: size for key, size in sizes.items() if key != "shared_parameters" or size}

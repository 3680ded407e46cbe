"""What one kind of layer holds: heads over a KV cache, latents or a recurrent state, and an MLP.

Every function gives the attention, or the MLP, of one kind from the sizes of a config. Sources:
the families' reports and code; Mamba, Mamba-2, Gated DeltaNet, Kimi Linear and Lightning Attention
for states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from nearkv.hardware.errors import InputError
from nearkv.hardware.families import ConfigShape
from nearkv.hardware.units import LARGEST

SHARED = "shared_"
"""Before a kind of layer that reads the cache of an earlier one."""
_STATE_TYPES = {"": 1, "bfloat16": 1, "float16": 1, "float32": 2}
"""Elements of 16 bits in one of a state, by its type."""


@dataclass(frozen=True)
class Attention:
    """How one layer attends.

    Attributes:
        type: a name of the cost model's kinds of layer.
        heads, kv_heads, head_size: as cost models count them [1].
        beside: parameters beside the projections of these heads [1].
        numbers: what only this type has, by name.
        of: added to the type in the layer's name.
    """

    type: str
    heads: int
    kv_heads: float
    head_size: int
    beside: int = 0
    numbers: tuple[tuple[str, float], ...] = ()
    of: str = ""


def mixer(kind: str, shape: ConfigShape) -> Attention:
    """The attention of one kind of layer, as rules name it.

    Raises:
        InputError: a size is missing or does not fit the others.
    """
    if kind.startswith(SHARED):
        return _of_earlier_layer(kind.removeprefix(SHARED), shape)
    return _KINDS[kind](shape)


# --- heads over a KV cache ------------------------------------------------------------------------


def grouped(shape: ConfigShape, kind: str = "full") -> Attention:
    """Grouped heads. Where values are narrower than keys, of their mean size, which has as much
    of everything.

    Raises:
        InputError: a size of zero, or a width that the heads do not divide.
    """
    heads = shape.count("heads", kind)
    kv_heads = shape.count("kv_heads", kind, default=heads)
    if heads and not kv_heads:
        raise shape.config.refuse("num_key_value_heads", "must be 1 or more")
    size = _head_size(shape, kind, heads)
    beside = heads * size * shape.hidden if shape.flag("output_gate") else 0
    values = shape.count("value_size", kind, default=size)
    if (size + values) % 2:
        raise shape.config.refuse(
            "v_head_dim", "and head_dim have an odd sum; not modelled"
        )
    numbers = (("kv_projections", 1.0),) if shape.flag("same_kv", kind) else ()
    return Attention("full", heads, kv_heads, (size + values) // 2, beside, numbers)


def _head_size(shape: ConfigShape, kind: str, heads: int) -> int:
    if shape.value("head_size", kind) is not None:
        size = shape.count("head_size", kind)
        if not size:
            raise shape.config.refuse("head_dim", "is not a size of a head")
        return size
    size, rest = divmod(shape.hidden, max(heads, 1))
    if rest:
        problem = f"a width of {shape.hidden:,} does not divide into {heads:,} heads"
        raise InputError(f"{shape.config.where}: {problem}, and there is no head_dim")
    return size


def _limited(limit: str) -> Callable[[ConfigShape], Attention]:
    """Heads limited to a `window` or a `chunk` of some tokens."""

    def attention(shape: ConfigShape) -> Attention:
        heads = grouped(shape, limit)
        tokens = (("window", float(shape.count(limit))),)
        return replace(heads, type=limit, numbers=heads.numbers + tokens)

    return attention


def _of_earlier_layer(kind: str, shape: ConfigShape) -> Attention:
    """Heads that read the K and V of an earlier layer, and have no projections of their own."""
    heads = grouped(shape, kind)
    tokens = shape.count("window") if kind == "window" else LARGEST
    numbers = (("kv_projections", 0.0), ("window", float(tokens)))
    return replace(heads, type="borrowed", numbers=numbers, of=kind)


def _selected(shape: ConfigShape) -> Attention:
    """Heads over the blocks of tokens that an indexer chooses (MiniMax-M3)."""
    chosen = shape.count("chosen") * shape.count("index_block")
    return replace(grouped(shape), type="selected", numbers=_indexer(shape, chosen))


def _indexer(shape: ConfigShape, chosen: int) -> tuple[tuple[str, float], ...]:
    return (
        ("index_heads", shape.count("index_heads")),
        ("index_size", shape.count("index_size")),
        ("chosen", chosen),
    )


def _falcon(shape: ConfigShape) -> Attention:
    """One KV head, or as many as the new architecture states."""
    heads = shape.count("heads")
    stated = shape.count("kv_heads", default=heads)
    kv_heads = 1 if shape.flag("one_kv_head") else heads
    if shape.flag("grouped"):
        kv_heads = stated
    return Attention("full", heads, kv_heads, shape.hidden // max(heads, 1))


def _mpt(shape: ConfigShape) -> Attention:
    """Heads of `attn_config`."""
    heads = shape.count("heads")
    kv_heads = {
        "multihead_attention": heads,
        "grouped_query_attention": shape.count("kv_heads", default=heads),
        "multiquery_attention": 1,
    }
    name = shape.value("attention") or "multihead_attention"
    if name not in list(kv_heads):
        inner = shape.config.table_of("attn_config")
        raise inner.refuse("attn_type", f"is unknown; known are {', '.join(kv_heads)}")
    return Attention("full", heads, kv_heads[name], shape.hidden // max(heads, 1))


# --- latents --------------------------------------------------------------------------------------


def _latent(shape: ConfigShape) -> Attention:
    """Multi-head latent attention: one row of r + dr elements per token is half a KV head."""
    heads, rank, rope = (shape.count(size) for size in ("heads", "kv_rank", "rope_size"))
    values = shape.count("latent_value_size")
    numbers = (
        ("query_rank", shape.count("query_rank", default=0)),
        ("kv_rank", rank),
        ("rope_size", rope),
        ("key_size", shape.count("key_size")),
        ("value_size", values),
    )
    gate = heads * values * shape.hidden if shape.flag("output_gate") else 0
    return Attention("latent", heads, 0.5, rank + rope, gate, numbers)


def _sparse(shape: ConfigShape) -> Attention:
    """Latent attention to the tokens that an indexer chooses (DeepSeek-V3.2)."""
    dense = _latent(shape)
    numbers = dense.numbers + _indexer(shape, shape.count("chosen"))
    return replace(dense, type="sparse", numbers=numbers)


def _sparse_shared(shape: ConfigShape) -> Attention:
    """As `_sparse`, of the tokens that an earlier layer's indexer chose: it has none (GLM-5.2)."""
    dense = _latent(shape)
    none = (("index_heads", 0.0), ("index_size", 0.0), ("chosen", shape.count("chosen")))
    return replace(dense, type="sparse", numbers=dense.numbers + none, of="shared")


def _compressed(
    rate: int, overlaps: bool = False, indexed: bool = False, of: str = ""
) -> Callable[[ConfigShape], Attention]:
    """A window of rows, and one row for each `rate` tokens before it (DeepSeek-V4, sec. 2.3).

    Args:
        rate: tokens of a compressed row; 0 where the layer has none [1].
        overlaps: whether rows take in their neighbour's tokens, with projections of their own.
        indexed: whether an indexer chooses among the rows.
        of: added to the type in the layer's name.
    """

    def attention(shape: ConfigShape) -> Attention:
        hidden, heads, size = shape.hidden, shape.count("heads"), shape.count("head_size")
        if shape.count("kv_heads", default=1) != 1:
            raise shape.config.refuse("num_key_value_heads", "is not one row for all heads")
        rank, groups = shape.count("query_rank"), shape.count("output_groups")
        output = shape.count("output_rank")
        queries = rank * (hidden + heads * size)
        outputs = heads * size * output + groups * output * hidden
        # a row and its weight are projected apart, and wait in 32 bits until it is full
        halves = 2 * (1 + overlaps) * size if rate else 0
        index_heads, index_size, chosen = (
            shape.count(name) for name in ("index_heads", "index_size", "chosen")
        )
        mixer = queries + hidden * size + outputs + hidden * halves
        state = 2 * (1 + overlaps) * rate * halves
        if indexed:
            mixer += (rank * index_size + hidden) * index_heads
            mixer += hidden * 4 * index_size
            state += 2 * 2 * rate * 4 * index_size
        numbers = (
            ("mixer_parameters", mixer),
            ("window", shape.count("window")),
            ("rate", rate),
            ("state_size", state),
            ("index_heads", index_heads if indexed else 0),
            ("index_size", index_size if indexed else 0),
            ("chosen", chosen if indexed else LARGEST),
        )
        return Attention("compressed", heads, 0.5, size, numbers=numbers, of=of)

    return attention


# --- recurrent states: state spaces and linear attention ------------------------------------------


def _recurrent(
    shape: ConfigShape, parameters: int, matrix: int, others: int, operations: int
) -> Attention:
    """A layer without a KV cache.

    Args:
        shape: says which type the state has.
        parameters: of the mixer [1].
        matrix: elements of the state proper, of the state's type [1].
        others: elements that a convolution keeps, of the activations' type [1].
        operations: on the state for each token [FLOP].
    """
    state_type = shape.value("state_type") or ""
    if str(state_type) not in _STATE_TYPES:
        key = shape.family.keys["state_type"][0]
        raise shape.config.refuse(
            key, f"is none of {', '.join(filter(None, _STATE_TYPES))}"
        )
    numbers = (
        ("mixer_parameters", parameters),
        ("state_size", _STATE_TYPES[state_type] * matrix + others),
        ("state_flops", operations),
    )
    return Attention("state", 1, 1, 1, numbers=numbers)


def _none(_: ConfigShape) -> Attention:
    """No mixer: the layer is an MLP."""
    nothing = (("mixer_parameters", 0.0), ("state_size", 0.0), ("state_flops", 0.0))
    return Attention("state", 1, 1, 1, numbers=nothing, of="none")


def _mamba(shape: ConfigShape) -> Attention:
    """Selective state space (Mamba, sec. 3): in, convolution, x and dt projections, A, out."""
    hidden = shape.hidden
    inner = shape.count("state_expand") * hidden
    state, kernel = shape.count("state_size"), shape.count("kernel")
    rank = shape.value("step_rank")
    rank = rank if isinstance(rank, int) else ceil(hidden / 16)
    projections = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    return _recurrent(
        shape,
        parameters=projections + inner * (kernel + state + 1),
        matrix=inner * state,
        others=inner * (kernel - 1),
        operations=5 * inner * state + 2 * inner * kernel,
    )


def _mamba2(shape: ConfigShape) -> Attention:
    """Heads of a state, a convolution over x, B and C (Mamba-2, sec. 7): in, convolution, out."""
    hidden, heads = shape.hidden, shape.count("state_heads")
    size = _state_head_size(shape, heads)
    state, groups = shape.count("state_size"), shape.count("state_groups")
    kernel = shape.count("kernel")
    inner = heads * size
    convolved = inner + 2 * groups * state
    projections = hidden * (inner + convolved + heads) + inner * hidden
    return _recurrent(
        shape,
        parameters=projections + convolved * kernel + inner + 3 * heads,
        matrix=inner * state,
        others=convolved * (kernel - 1),
        operations=5 * inner * state + 2 * convolved * kernel,
    )


def _state_head_size(shape: ConfigShape, heads: int) -> int:
    """Size of a head of a state: all heads fill the expanded width, where one is stated."""
    size = shape.value("state_head_size")
    if not shape.family.keys["state_expand"]:
        return shape.count("state_head_size")
    expanded = shape.count("state_expand") * shape.hidden
    size = size if isinstance(size, int) else expanded // max(heads, 1)
    if heads * size != expanded:
        key = shape.family.keys["state_expand"][0]
        problem = f"{heads} heads of {size} do not agree with a width of {expanded}"
        raise InputError(f"{shape.config.where}: {key}: {problem}")
    return size


def _gated_delta(shape: ConfigShape) -> Attention:
    """Gated delta rule: q, k, v, gate, two numbers a head, a convolution, out (Gated DeltaNet)."""
    hidden, kernel = shape.hidden, shape.count("kernel")
    key_size, value_heads = shape.count("key_head_size"), shape.count("value_heads")
    keys = shape.count("key_heads") * key_size
    values = value_heads * shape.count("value_head_size")
    convolved = 2 * keys + values
    projections = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
    matrix = values * key_size
    return _recurrent(
        shape,
        parameters=projections + convolved * kernel,
        matrix=matrix,
        others=convolved * (kernel - 1),
        operations=7 * matrix + 2 * convolved * kernel,
    )


def _kda(shape: ConfigShape) -> Attention:
    """Kimi delta attention: as the gated delta rule, with a decay for each channel (sec. 3).

    The decay has a projection of the rank of a head; so has the output's gate, or a full one.
    """
    hidden, heads = shape.hidden, shape.count("state_heads")
    size, kernel = shape.count("state_head_size"), shape.count("kernel")
    inner = heads * size
    low_rank = (hidden + inner) * size
    gate = hidden * inner if shape.flag("full_gate") else low_rank
    projections = 4 * hidden * inner + low_rank + gate + hidden * heads
    matrix = inner * size
    return _recurrent(
        shape,
        parameters=projections + 3 * inner * kernel,
        matrix=2 * matrix,  # in 32 bits
        others=3 * inner * (kernel - 1),
        operations=7 * matrix + 2 * 3 * inner * kernel,
    )


def _lightning(shape: ConfigShape) -> Attention:
    """Lightning attention: q, k, v, gate, out; a matrix in 32 bits that decays (MiniMax-01)."""
    heads = shape.count("heads")
    size = _head_size(shape, "full", heads)
    matrix = heads * size * size
    return _recurrent(
        shape,
        parameters=5 * shape.hidden * heads * size,
        matrix=2 * matrix,  # in 32 bits
        others=0,
        operations=5 * matrix,
    )


def _short_conv(shape: ConfigShape) -> Attention:
    """A gated convolution over the last tokens: in to three, out (LFM2)."""
    hidden, kernel = shape.hidden, shape.count("kernel")
    return _recurrent(
        shape,
        parameters=4 * hidden**2 + hidden * kernel,
        matrix=0,
        others=hidden * (kernel - 1),
        operations=2 * hidden * kernel,
    )


_KINDS: dict[str, Callable[[ConfigShape], Attention]] = {
    "full": grouped,
    "window": _limited("window"),
    "chunk": _limited("chunk"),
    "selected": _selected,
    "falcon": _falcon,
    "mpt": _mpt,
    "latent": _latent,
    "sparse": _sparse,
    "sparse_shared": _sparse_shared,
    "sliding": _compressed(0, of="window"),
    "compressed": _compressed(4, overlaps=True, indexed=True),
    "heavily": _compressed(128, of="heavily"),
    "mamba": _mamba,
    "mamba2": _mamba2,
    "gated_delta": _gated_delta,
    "kda": _kda,
    "lightning": _lightning,
    "short_conv": _short_conv,
    "none": _none,
}
"""Attention by the name that rules give it."""


# --- MLPs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mlp:
    """The MLP of one layer.

    Attributes:
        ffn: inner width, of one expert where there are several [1].
        gated: whether it has a gate matrix.
        experts, active: experts, and those that a token uses [1].
        beside: parameters that every token uses beside them: shared experts, router [1].
    """

    ffn: float
    gated: bool = True
    experts: int = 1
    active: int = 1
    beside: int = 0


def mlp(kind: str, shape: ConfigShape) -> Mlp:
    """The MLP of one kind: `dense`, `wide` (twice as wide), `moe`, `shared` (its alone), `none`.

    Raises:
        InputError: a size is missing.
    """
    gated = bool(shape.family.defaults["gated"])
    shape.value("ffn")  # known, whether or not a layer is dense
    if kind == "none":
        return Mlp(0)
    if kind == "moe":
        return _experts(shape, gated)
    if kind == "shared":
        return Mlp(shape.count("shared_ffn"), gated)
    ratio = 1 if gated else shape.count("ffn_ratio")
    width = shape.count("ffn", default=None if gated else ratio * shape.hidden)
    return Mlp(2 * width if kind == "wide" else width, gated)


def _experts(shape: ConfigShape, gated: bool) -> Mlp:
    """Experts, a router, and the experts or the MLP that every token uses beside them."""
    hidden, width = shape.hidden, shape.count("moe_ffn")
    experts = shape.count("experts")
    matrices = 2 + gated
    beside = hidden * experts if experts > 1 else 0
    beside += matrices * hidden * _shared_width(shape, width)
    narrow = shape.count("moe_hidden", default=hidden)
    if narrow != hidden:
        beside += 2 * hidden * narrow
    # experts between narrower activations: the width that has as many parameters
    return Mlp(
        width if narrow == hidden else width * narrow / hidden,
        gated,
        experts,
        shape.count("active"),
        beside,
    )


def _shared_width(shape: ConfigShape, width: int) -> int:
    """Inner width of what every token uses beside the experts [1]."""
    if shape.family.keys["beside_experts"]:
        return shape.count("beside_experts")
    if shape.family.defaults["shared_ffn_alone"]:
        return shape.count("shared_ffn", default=0)
    own = shape.count("shared_ffn", default=width)
    return shape.count("shared", default=0) * own

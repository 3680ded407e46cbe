"""The layers of a config.json: its keys, its family by `model_type`, what each kind of layer holds.

families.toml says which key means what, and by rules which layer is of which kind. Rules are
painted each over those before it. A rule begins with one of these keys, and paints `kind` on the
layers it names, `other` on the rest:
    all      every layer
    list     the key's list has an entry for each layer; `kinds` says which is which
    every    one layer in so many (`offset` from 0; the last of each period without it); where the
             key holds a list or a word instead, whose letters repeat, `kinds` says which is which
    first, last, from, beyond   so many at the start or end, or layers from a number on or beyond it
    layers   a list of numbers of layers, counted from `base`
    refuse   no layer: a config with this key is not modelled
`needs` names sizes without which a rule does not apply. `prefix` goes before the kind that a layer
has.

Sources: the families' reports and code; Mamba, Mamba-2, Gated DeltaNet, Kimi Linear and Lightning
Attention for states.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.units import LARGEST

Entry = TypeVar("Entry")

MOST_LAYERS = 10_000
LONGEST_VALUE = 80
"""Characters of a value that an error repeats."""
NEUTRAL: frozenset[str] = frozenset(
    key
    for keys in tomllib.loads((Path(__file__).parent / "neutral.toml").read_text()).values()
    for key in keys
)
"""Keys that change neither bytes nor FLOPs, listed by reason in `neutral.toml`."""


class Config:
    """The keys of a config.json and which of them were read.

    Args:
        table: the JSON object.
        where: the file, put in front of every error.

    Attributes:
        nested: the tables within it that were read, by key, in the same way.
    """

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self.table = table
        self.where = where
        self.nested: dict[str, Config] = {}
        self._read = {"model_type", "text_config"}

    @property
    def model_type(self) -> str:
        """The family, as the file names it."""
        return str(self.table.get("model_type"))

    @property
    def unread(self) -> list[str]:
        """Keys that were not read, have a value, and could change bytes or FLOPs."""
        empty: tuple[Any, ...] = (None, [], {}, False)
        keys = {key for key, value in self.table.items() if value not in empty}
        return sorted(keys - self._read - NEUTRAL)

    def value(self, *names: str) -> Any:
        """The value of the first of these keys that has one, None where none has.

        Args:
            names: keys; `a.b` is b of the table a.
        """
        values = [self._value(name) for name in names]
        return next((value for value in values if value is not None), None)

    def _value(self, name: str) -> Any:
        outer, _, inner = name.rpartition(".")
        if outer:
            return self.table_of(outer).value(inner)
        self._read.add(name)
        return self.table.get(name)

    def first_stated(self, names: Sequence[str]) -> str:
        """The first of these keys that has a value; empty where none has."""
        return next((name for name in names if self.value(name) is not None), "")

    @property
    def layers(self) -> int:
        """Number of layers [1]."""
        layers = self.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        if not 1 <= layers <= MOST_LAYERS:
            limits = f"a model has 1 to {MOST_LAYERS:,}"
            raise InputError(f"{self.where}: {layers} layers; {limits}")
        return layers

    def count(self, *names: str, default: int | None = None, low: int = 0) -> int:
        """A whole number under the first of these keys that has one.

        Args:
            names: keys.
            default: where none of them has a value.
            low: the least that makes a model.

        Raises:
            InputError: no such key and no default, or a value that is no such number.
        """
        value = self.value(*names)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]  # of every layer, and all are alike
        if value is None:
            value = default
        if value is None:
            needed = f"lacks {names[0]!r}, which a {self.model_type} config must have"
            raise InputError(f"{self.where}: {needed}")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 0 <= value <= LARGEST:
            limits = f"a whole number from 0 to {LARGEST:g}"
            raise InputError(f"{self.where}: {names[0]} must be {limits}")
        if value < low:
            raise self.refuse(names[0], f"must be {low} or more")
        return int(value)

    def number(self, *names: str, low: float, high: float, default: float) -> float:
        """A number within limits, under the first of these keys that has one.

        Raises:
            InputError: not a number, or outside the limits.
        """
        value = self.value(*names)
        if value is None:
            return default
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not low <= value <= high:
            limits = f"a number from {low:g} to {high:g}" if low < high else f"{low:g}"
            raise InputError(f"{self.where}: {names[0]} must be {limits}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A yes or no.

        Raises:
            InputError: a value that is neither.
        """
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool) and value not in (0, 1):
            raise InputError(f"{self.where}: {name} must be true or false")
        return bool(value)

    def items(self, name: str, length: int) -> list[Any]:
        """A list with one entry for each layer, empty where the key is absent.

        Raises:
            InputError: a list of another length.
        """
        value = self.value(name) or []
        if not isinstance(value, list) or len(value) not in (0, length):
            problem = f"must list one entry for each layer, {length}"
            raise InputError(f"{self.where}: {name} {problem}")
        return value

    def listed(self, name: str, of: type[Entry], what: str) -> list[Entry]:
        """A list of numbers or words, empty where the key is absent.

        Args:
            name: the key.
            of: type of the entries.
            what: what they are, used in errors.

        Raises:
            InputError: not such a list.
        """
        value = self.value(name) or []
        if not isinstance(value, list) or not all(isinstance(item, of) for item in value):
            raise InputError(f"{self.where}: {name} must list {what}")
        return value

    def table_of(self, name: str) -> Config:
        """A nested table, empty where the key is absent.

        Raises:
            InputError: not a table.
        """
        value = self.value(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise InputError(f"{self.where}: {name} must be a JSON object")
        if name not in self.nested:
            self.nested[name] = Config(value, f"{self.where}: {name}")
        return self.nested[name]

    def refuse(self, key: str, problem: str) -> InputError:
        """The error for a key whose value is not modelled."""
        value = repr(self.value(key))
        shown = value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + "..."
        return InputError(f"{self.where}: {key} = {shown} {problem}")


# --- families -------------------------------------------------------------------------------------

LayerRule = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """Rules by which a family of models is read.

    Attributes:
        keys: size -> keys that may hold it.
        defaults: size -> value where a config leaves it out.
        mixers, mlps: rules that say how layers attend, and what MLPs they have.
        blocks: mixers and MLPs by entry, where one list holds both; empty elsewhere.
    """

    keys: Mapping[str, list[str]]
    defaults: Mapping[str, Any]
    mixers: Sequence[LayerRule]
    mlps: Sequence[LayerRule]
    blocks: Mapping[str, Any]


_FAMILY_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "families.toml").read_text()
)
LAYER_KINDS: Mapping[str, str] = _FAMILY_TABLES.pop("kinds")
"""Kinds of layer by the words of `layer_types`."""


def _family(name: str) -> Family:
    """A family: what it states, over that of the family that it is like, and of `any`."""
    table = _FAMILY_TABLES[name]
    if name == "any":
        return Family(**table)
    base = _family(table.get("like", "any"))
    return Family(
        keys={**base.keys, **table.get("keys", {})},
        defaults={**base.defaults, **table.get("defaults", {})},
        mixers=table.get("mixers", base.mixers),
        mlps=table.get("mlps", base.mlps),
        blocks=table.get("blocks", base.blocks),
    )


FAMILIES = {
    model_type: _family(name)
    for name, table in _FAMILY_TABLES.items()
    for model_type in table.get("types", "").split()
}
"""Families by `model_type`."""


def _words(value: object) -> set[str]:
    """All words in a table, its lists and tables included."""
    if isinstance(value, dict):
        return set().union(*map(_words, value.values()))
    if isinstance(value, list):
        return set().union(*map(_words, value))
    return {str(value)}


CONFIG_KEYS = frozenset(_words(_FAMILY_TABLES))
"""Keys that some family knows."""


class ConfigShape:
    """The sizes of a config.json by the names that families.toml gives them.

    Args:
        config: the keys; those that are asked for count as read.
        family: which key means what.
    """

    def __init__(self, config: Config, family: Family) -> None:
        self.config = config
        self.family = family
        config.value(*family.keys.get("ignored", []))

    def key(self, size: str, kind: str = "") -> str:
        """The key of the config that holds a size; the first that may where none does.

        Args:
            size: its name in families.toml.
            kind: of the layers, where a family has own keys for some.

        Raises:
            InputError: two keys for it have different values.
        """
        keys = self.family.keys.get(f"{kind}.{size}", [])
        if self.config.value(*keys) is None:
            keys = self.family.keys[size]
        values = {key: self.config.value(key) for key in keys}
        stated = {key: value for key, value in values.items() if value is not None}
        first = next(iter(stated), "")
        if any(value != stated[first] for value in stated.values()):
            pairs = " and ".join(f"{key} = {value!r}" for key, value in stated.items())
            raise InputError(f"{self.config.where}: {pairs} contradict each other")
        return first or [*keys, size][0]

    def value(self, size: str, kind: str = "") -> Any:
        """The value of a size, None where the config has none.

        Args:
            size, kind: as `key` takes them.
        """
        return self.config.value(self.key(size, kind))

    def count(
        self, size: str, kind: str = "", default: int | None = None, low: int = 0
    ) -> int:
        """A size that is a whole number.

        Args:
            size, kind: as `key` takes them.
            default: where neither config nor family has one.
            low: the least that makes a model.

        Raises:
            InputError: it is missing or no such number.
        """
        default = self.family.defaults.get(size, default)
        return self.config.count(self.key(size, kind), default=default, low=low)

    def flag(self, size: str, kind: str = "") -> bool:
        """A choice, as the config or else the family makes it.

        Raises:
            InputError: a value that is neither true nor false.
        """
        default = bool(self.family.defaults.get(size, False))
        return self.config.flag(self.key(size, kind), default)

    def has(self, size: str) -> bool:
        """True if a size is there and is not zero, or a choice is made."""
        if isinstance(self.family.defaults.get(size), bool):
            return self.flag(size)
        return bool(self.value(size) or self.family.defaults.get(size))

    @property
    def hidden(self) -> int:
        """Width of the model [1]."""
        return self.count("hidden")


# --- which layer is of which kind -----------------------------------------------------------------

KindNames = list[str]
LayerKind = tuple[str, str]
"""A mixer and an MLP, as rules name them."""


def painted(rules: Iterable[LayerRule], shape: ConfigShape, layers: int) -> KindNames:
    """The kind of every layer.

    Args:
        rules: those that apply are painted one over the other.
        shape: sizes of the model.
        layers: how many [1].

    Raises:
        InputError: a key holds something that no rule models.
    """
    kinds = [""] * layers
    earlier, any_list = "", False
    for rule in rules:
        form = next(iter(rule))
        named = _named(form, rule, shape.config, layers)
        needs = [shape.has(size) for size in rule.get("needs", "").split()]
        if named is None or not all(needs):
            continue
        old = kinds
        kinds = [_over(rule, kind, new) for kind, new in zip(old, named, strict=True)]
        stated = rule[form]
        key = shape.config.first_stated([stated] if isinstance(stated, str) else stated)
        any_list |= form != "all" and isinstance(named[0], str)
        if key and earlier and any_list and kinds != old and "prefix" not in rule:
            conflict = (
                f"{key} and {earlier} say otherwise of some layers; {key} is followed"
            )
            warn(f"{shape.config.where}: {conflict}")
        earlier = key or earlier
    return kinds


def _over(rule: LayerRule, old: str, new: object) -> str:
    """The kind of a layer after a rule."""
    if isinstance(new, str):
        return new
    if new and "prefix" in rule:
        return str(rule["prefix"]) + old
    return str(rule.get("kind" if new else "other", old))


def _named(
    form: str, rule: LayerRule, config: Config, layers: int
) -> list[bool] | KindNames | None:
    """The layers that a rule names, or the kind of every layer; None where it does not apply."""
    key = rule[form]
    match form:
        case "all":
            return [key] * layers
        case "list":
            return _list(rule, config, layers)
        case "every":
            return _every(rule, config, layers)
        case "refuse":
            if config.value(key):
                raise config.refuse(key, rule["why"])
            return None
    numbers = _numbers(form, rule, config, layers)
    if not numbers and form == "layers" and "other" in rule:
        return None
    return [layer in numbers for layer in range(layers)]


def _numbers(form: str, rule: LayerRule, config: Config, layers: int) -> Collection[int]:
    """Numbers of the layers that a rule names, from 0."""
    key = rule[form]
    match form:
        case "first":
            return range(config.count(key, default=0))
        case "last":
            return range(layers - config.count(key, default=0), layers)
        case "from":
            return range(config.count(key, default=layers), layers)
        case "beyond":
            last = config.value(key)
            is_stated = isinstance(last, int) and last >= 0
            return range(last + 1 if is_stated else layers, layers)
    base = rule.get("base", 0)
    return [number - base for number in config.listed(key, int, "numbers of layers")]


def _list(rule: LayerRule, config: Config, layers: int) -> KindNames | None:
    name = rule["list"]
    value = config.value(name)
    if not value and rule.get("required"):
        raise InputError(f"{config.where} lacks {name!r}, which names every layer")
    if rule.get("longer") and isinstance(value, list) and len(value) > layers:
        # layers of multi-token prediction stand behind them
        return by_entry(value[:layers], rule["kinds"], config, name)
    kinds = rule.get("kinds", LAYER_KINDS)
    return by_entry(config.items(name, layers), kinds, config, name) or None


def by_entry(
    entries: Iterable[Any], kinds: Mapping[str, str], config: Config, name: str
) -> KindNames:
    """Kinds by the entries of a list.

    Raises:
        InputError: an entry names a layer that is not modelled.
    """
    named = []
    for entry in entries:
        word = str(int(entry)) if isinstance(entry, bool) else str(entry)
        if word not in kinds:
            problem = f"{name} names {entry!r}, which is not modelled"
            raise InputError(f"{config.where}: {problem}")
        named.append(kinds[word])
    return named


def _every(rule: LayerRule, config: Config, layers: int) -> list[bool] | KindNames | None:
    names = rule["every"]
    stated, kinds = config.value(*names), rule.get("kinds")
    if kinds and isinstance(stated, str):
        if not stated or set(stated) - set(kinds):
            raise config.refuse(names[0], f"has letters other than {' and '.join(kinds)}")
        return [kinds[stated[layer % len(stated)]] for layer in range(layers)]
    if kinds and isinstance(stated, list):
        return by_entry(config.items(names[0], layers), kinds, config, names[0]) or None
    period = config.count(*names, default=rule["default"], low=1)
    offset = rule.get("offset", period - 1)
    if "offset_key" in rule:
        offset = config.count(rule["offset_key"], default=offset)
    return [layer % period == offset for layer in range(layers)]


def layers_of_blocks(shape: ConfigShape) -> list[LayerKind] | None:
    """Mixer and MLP of every layer of a model whose config lists them as blocks.

    A mixer and the MLP behind it are a layer, as in other models; either may stand alone. None
    where the family has layers of both.

    Raises:
        InputError: the list is missing, has an unknown entry, or another length than the config
            says.
    """
    table = shape.family.blocks
    if not table:
        return None
    config = shape.config
    entries = config.value(*table["keys"])
    if not isinstance(entries, str | list) or not entries:
        keys = " or ".join(table["keys"])
        raise InputError(f"{config.where}: {keys} must name every block")
    name = config.first_stated(table["keys"])
    if config.count("num_hidden_layers", default=len(entries)) != len(entries):
        raise config.refuse("num_hidden_layers", f"is not the {len(entries)} of {name}")
    kinds = by_entry(entries, {**table["mixers"], **table["mlps"]}, config, name)
    mixers = set(table["mixers"].values())
    layers: list[LayerKind] = []
    for kind in kinds:
        if kind in mixers:
            layers.append((kind, "none"))
        elif layers and layers[-1][1] == "none":
            layers[-1] = (layers[-1][0], kind)
        else:
            layers.append(("none", kind))
    return layers


# --- what a layer holds ---------------------------------------------------------------------------

LayerSizes = Mapping[str, float]
"""Numbers of a layer by the keys of `llm-layer`. `shared_parameters` are those that every token
uses beside the projections of its heads, or beside its MLP or experts."""


def grouped(shape: ConfigShape, kind: str = "full") -> LayerSizes:
    """Grouped heads, of the mean size of keys and values: bytes and FLOPs are those of both.

    Raises:
        InputError: a size of zero, or a width that the heads do not divide.
    """
    heads = shape.count("heads", kind)
    size = _head_size(shape, kind, heads)
    values = shape.count("value_size", kind, default=size)
    if (size + values) % 2:
        raise shape.config.refuse(
            "v_head_dim", "and head_dim have an odd sum; not modelled"
        )
    sizes = {
        "heads": heads,
        "kv_heads": _kv_heads(shape, kind, heads),
        "head_size": (size + values) // 2,
        "shared_parameters": heads * size * shape.hidden * shape.flag("output_gate"),
    }
    return sizes | {"kv_projections": 1} if shape.flag("same_kv", kind) else sizes


def _kv_heads(shape: ConfigShape, kind: str, heads: int) -> int:
    stated = shape.count("kv_heads", kind, default=heads, low=min(heads, 1))
    ungrouped = 1 if shape.flag("one_kv_head") else heads
    return stated if shape.flag("grouped") else ungrouped


def _head_size(shape: ConfigShape, kind: str, heads: int) -> int:
    if shape.value("head_size", kind) is not None:
        return shape.count("head_size", kind, low=1)
    size, rest = divmod(shape.hidden, max(heads, 1))
    if rest:
        problem = f"a width of {shape.hidden:,} does not divide into {heads:,} heads"
        raise InputError(f"{shape.config.where}: {problem}, and there is no head_dim")
    return size


def _limited(shape: ConfigShape, limit: str) -> LayerSizes:
    """Heads limited to a `window` or a `chunk` of some tokens."""
    return {**grouped(shape, limit), "window": shape.count(limit, low=1)}


def _of_earlier_layer(shape: ConfigShape, kind: str) -> LayerSizes:
    """Heads that read the K and V of an earlier layer, and have no projections of their own."""
    tokens = shape.count("window", low=1) if kind == "window" else LARGEST
    return {**grouped(shape, kind), "kv_projections": 0, "window": tokens}


def _selected(shape: ConfigShape) -> LayerSizes:
    """Heads over the blocks of tokens that an indexer chooses (MiniMax-M3)."""
    tokens = shape.count("chosen") * shape.count("index_block")
    return {**grouped(shape), **_indexer(shape), "chosen": tokens}


def _indexer(shape: ConfigShape) -> LayerSizes:
    return {name: shape.count(name) for name in ("index_heads", "index_size", "chosen")}


def _mpt(shape: ConfigShape) -> LayerSizes:
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
    size = shape.hidden // max(heads, 1)
    return {"heads": heads, "kv_heads": kv_heads[name], "head_size": size}


# --- latents --------------------------------------------------------------------------------------


def _latent(shape: ConfigShape) -> LayerSizes:
    """Multi-head latent attention: one row of r + dr elements per token is half a KV head."""
    heads, rank, rope = (shape.count(size) for size in ("heads", "kv_rank", "rope_size"))
    values = shape.count("latent_value_size")
    return {
        "heads": heads,
        "kv_heads": 0.5,
        "head_size": rank + rope,
        "shared_parameters": heads * values * shape.hidden * shape.flag("output_gate"),
        "query_rank": shape.count("query_rank", default=0),
        "kv_rank": rank,
        "rope_size": rope,
        "key_size": shape.count("key_size"),
        "value_size": values,
    }


def _sparse(shape: ConfigShape) -> LayerSizes:
    """Latent attention to the tokens that an indexer chooses (DeepSeek-V3.2)."""
    return {**_latent(shape), **_indexer(shape)}


def _sparse_shared(shape: ConfigShape) -> LayerSizes:
    """Layer that reads the tokens that an earlier layer's indexer chose: it has none (GLM-5.2)."""
    chosen = shape.count("chosen")
    return {**_latent(shape), "index_heads": 0, "index_size": 0, "chosen": chosen}


def _compressed(shape: ConfigShape, rate: int, indexed: bool = False) -> LayerSizes:
    """A window of rows, and one row for each `rate` tokens before it (DeepSeek-V4, sec. 2.3).

    Args:
        shape: sizes of the model.
        rate: tokens of a compressed row; 0 where the layer has none [1].
        indexed: whether rows take in their neighbour's tokens, with projections of their own, and
            an indexer chooses among them.
    """
    hidden, heads, size = shape.hidden, shape.count("heads"), shape.count("head_size")
    if shape.count("kv_heads", default=1) != 1:
        raise shape.config.refuse("num_key_value_heads", "is not one row for all heads")
    rank, groups = shape.count("query_rank"), shape.count("output_groups")
    output = shape.count("output_rank")
    queries = rank * (hidden + heads * size)
    outputs = heads * size * output + groups * output * hidden
    # a row and its weight are projected apart, and wait in 32 bits until it is full
    halves = 2 * (1 + indexed) * size if rate else 0
    indexer: LayerSizes = {"index_heads": 0, "index_size": 0, "chosen": LARGEST}
    if indexed:
        indexer = _indexer(shape)
    index_heads, index_size = indexer["index_heads"], indexer["index_size"]
    indexing = (rank * index_size + hidden) * index_heads + hidden * 4 * index_size
    state = 2 * (1 + indexed) * rate * halves + 2 * 2 * rate * 4 * index_size
    return {
        "heads": heads,
        "kv_heads": 0.5,
        "head_size": size,
        "mixer_parameters": queries + hidden * (size + halves) + outputs + indexing,
        "window": shape.count("window", low=1),
        "rate": rate,
        "state_size": state,
        **indexer,
    }


# --- recurrent states: state spaces and linear attention ------------------------------------------

_STATE_TYPES = {"": 1, "bfloat16": 1, "float16": 1, "float32": 2}
"""Elements of 16 bits in one of a state, by its type."""


def _recurrent(
    shape: ConfigShape, projections: int, convolved: int, matrix: int, operations: int
) -> LayerSizes:
    """A layer without a KV cache: a state, and a convolution over the last tokens.

    Args:
        shape: says which type the state has, and how many tokens the convolution sees.
        projections: parameters of the mixer beside its convolution [1].
        convolved: channels of the convolution, 0 without one; activations' type [1].
        matrix: elements of the state proper, of the state's type [1].
        operations: on each of them for a token [FLOP].
    """
    key = shape.key("state_type")
    state_type = shape.config.value(key) or shape.family.defaults["state_type"]
    if str(state_type) not in _STATE_TYPES:
        known = ", ".join(filter(None, _STATE_TYPES))
        raise shape.config.refuse(key, f"is none of {known}")
    kernel = shape.count("kernel") if convolved else 1
    return {
        "heads": 1,
        "kv_heads": 1,
        "head_size": 1,
        "mixer_parameters": projections + convolved * kernel,
        "state_size": _STATE_TYPES[state_type] * matrix + convolved * (kernel - 1),
        "state_flops": operations * matrix + 2 * convolved * kernel,
    }


def _none(shape: ConfigShape) -> LayerSizes:
    """No mixer: the layer is an MLP."""
    return _recurrent(shape, projections=0, convolved=0, matrix=0, operations=0)


def _mamba(shape: ConfigShape) -> LayerSizes:
    """Selective state space (Mamba, sec. 3): in, convolution, x and dt projections, A, out."""
    hidden, state = shape.hidden, shape.count("state_size")
    inner = shape.count("state_expand", low=1) * hidden
    rank = shape.value("step_rank")
    rank = rank if isinstance(rank, int) else ceil(hidden / 16)
    projections = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    projections += inner * (state + 1)
    return _recurrent(shape, projections, inner, matrix=inner * state, operations=5)


def _mamba2(shape: ConfigShape) -> LayerSizes:
    """Heads of a state, a convolution over x, B and C (Mamba-2, sec. 7): in, convolution, out."""
    hidden, heads = shape.hidden, shape.count("state_heads")
    inner = heads * _state_head_size(shape, heads)
    state = shape.count("state_size")
    convolved = inner + 2 * shape.count("state_groups") * state
    projections = hidden * (inner + convolved + heads) + inner * hidden
    projections += inner + 3 * heads
    return _recurrent(shape, projections, convolved, matrix=inner * state, operations=5)


def _state_head_size(shape: ConfigShape, heads: int) -> int:
    """Size of a head of a state: all heads fill the expanded width, where one is stated."""
    if not shape.family.keys["state_expand"]:
        return shape.count("state_head_size")
    size = shape.value("state_head_size")
    expanded = shape.count("state_expand") * shape.hidden
    size = size if isinstance(size, int) else expanded // max(heads, 1)
    if heads * size != expanded:
        key = shape.family.keys["state_expand"][0]
        problem = f"{heads} heads of {size} do not agree with a width of {expanded}"
        raise InputError(f"{shape.config.where}: {key}: {problem}")
    return size


def _gated_delta(shape: ConfigShape) -> LayerSizes:
    """Gated delta rule: q, k, v, gate, two numbers a head, a convolution, out (Gated DeltaNet)."""
    hidden, heads = shape.hidden, shape.count("value_heads")
    key_size = shape.count("key_head_size")
    keys = shape.count("key_heads") * key_size
    values = heads * shape.count("value_head_size")
    projections = hidden * (2 * keys + 2 * values + 2 * heads) + values * hidden
    matrix = values * key_size
    return _recurrent(shape, projections, 2 * keys + values, matrix, operations=7)


def _kda(shape: ConfigShape) -> LayerSizes:
    """Kimi delta attention: as the gated delta rule, with a decay for each channel (sec. 3).

    The decay has a projection of the rank of a head; so has the output's gate, or a full one.
    """
    hidden, heads = shape.hidden, shape.count("state_heads")
    size = shape.count("state_head_size")
    inner = heads * size
    low_rank = (hidden + inner) * size
    gate = hidden * inner if shape.flag("full_gate") else low_rank
    projections = 4 * hidden * inner + low_rank + gate + hidden * heads
    return _recurrent(shape, projections, 3 * inner, matrix=inner * size, operations=7)


def _lightning(shape: ConfigShape) -> LayerSizes:
    """Lightning attention: q, k, v, gate, out; a matrix that decays (MiniMax-01)."""
    heads = shape.count("heads")
    size = _head_size(shape, "full", heads)
    projections = 5 * shape.hidden * heads * size
    return _recurrent(shape, projections, 0, matrix=heads * size * size, operations=5)


def _short_conv(shape: ConfigShape) -> LayerSizes:
    """A gated convolution over the last tokens: in to three, out (LFM2)."""
    hidden = shape.hidden
    return _recurrent(shape, 4 * hidden**2, hidden, matrix=0, operations=0)


_MIXERS: dict[str, tuple[str, Callable[[ConfigShape], LayerSizes]]] = {
    "full": ("full", grouped),
    "window": ("window", partial(_limited, limit="window")),
    "chunk": ("chunk", partial(_limited, limit="chunk")),
    "shared_full": ("borrowed_full", partial(_of_earlier_layer, kind="full")),
    "shared_window": ("borrowed_window", partial(_of_earlier_layer, kind="window")),
    "selected": ("selected", _selected),
    "mpt": ("full", _mpt),
    "latent": ("latent", _latent),
    "sparse": ("sparse", _sparse),
    "sparse_shared": ("sparse_shared", _sparse_shared),
    "sliding": ("compressed_window", partial(_compressed, rate=0)),
    "compressed": ("compressed", partial(_compressed, rate=4, indexed=True)),
    "heavily": ("compressed_heavily", partial(_compressed, rate=128)),
    "mamba": ("state", _mamba),
    "mamba2": ("state", _mamba2),
    "gated_delta": ("state", _gated_delta),
    "kda": ("state", _kda),
    "lightning": ("state", _lightning),
    "short_conv": ("state", _short_conv),
    "none": ("state_none", _none),
}
"""Mixers by the name that rules give them: name of the layer type, which begins with one of the
cost model's, and its sizes."""


# --- MLPs ----------------------------------------------------------------------------------------


def mlp(kind: str, shape: ConfigShape) -> LayerSizes:
    """The MLP of one kind: `dense`, `wide` (twice as wide), `moe`, `shared` (its alone), `none`.

    Raises:
        InputError: a size is missing.
    """
    gated = shape.family.defaults["gated"]
    shape.value("ffn")  # known, whether or not a layer is dense
    width: float = 0
    beside, experts, active = 0, 1, 1
    if kind == "moe":
        width, beside = _experts(shape, 2 + gated)
        experts, active = shape.count("experts"), shape.count("active")
    elif kind == "shared":
        width = shape.count("shared_ffn")
    elif kind != "none":
        unstated = None if gated else shape.count("ffn_ratio") * shape.hidden
        width = shape.count("ffn", default=unstated) * (2 if kind == "wide" else 1)
    return {
        "ffn": width,
        "gated": gated,
        "experts": experts,
        "active_experts": active,
        "shared_parameters": beside,
    }


def _experts(shape: ConfigShape, matrices: int) -> tuple[float, int]:
    """Inner width of an expert, and parameters that every token uses beside them [1].

    Those are the router's, and of the experts or the MLP that all tokens use.
    """
    hidden, width = shape.hidden, shape.count("moe_ffn")
    experts = shape.count("experts")
    beside = hidden * experts if experts > 1 else 0
    beside += matrices * hidden * _shared_width(shape, width)
    narrow = shape.count("moe_hidden", default=hidden)
    if narrow == hidden:
        return width, beside
    # experts between narrower activations: the width that has as many parameters
    return width * narrow / hidden, beside + 2 * hidden * narrow


def _shared_width(shape: ConfigShape, width: int) -> int:
    """Inner width of what every token uses beside the experts [1]."""
    if shape.family.keys["beside_experts"]:
        return shape.count("beside_experts")
    if shape.family.defaults["shared_ffn_alone"]:
        return shape.count("shared_ffn", default=0)
    one = shape.count("shared_ffn", default=width)
    return shape.count("shared", default=0) * one


# --- layers of a model ----------------------------------------------------------------------------


def layers_of(shape: ConfigShape) -> dict[str, dict[str, float]]:
    """Numbers of each type of layer, by its name, with how many layers there are of it.

    A name is that of its mixer, with its MLP where that does not tell them apart.

    Raises:
        InputError: the config leaves a layer or a size of it unsaid.
    """
    kinds = layers_of_blocks(shape)
    if kinds is None:
        layers = shape.config.layers
        mixers = painted(shape.family.mixers, shape, layers)
        mlps = painted(shape.family.mlps, shape, layers)
        kinds = list(zip(mixers, mlps, strict=True))
    if any("" in kind for kind in kinds):
        raise InputError(f"{shape.config.where} does not say what every layer is")
    counts = Counter(kinds)
    repeated = Counter(_MIXERS[mixer][0] for mixer, _ in counts)
    types: dict[str, dict[str, float]] = {}
    for kind, count in counts.items():
        name, _ = _MIXERS[kind[0]]
        sizes = _sizes(kind, shape)
        if repeated[name] > 1:
            name += (
                "_moe" if sizes["experts"] > 1 else "_dense" if sizes["ffn"] else "_alone"
            )
        alike = sum(other.startswith(name) for other in types)
        types[f"{name}_{alike + 1}" if name in types else name] = {**sizes, "layers": count}
    return types


def _sizes(kind: LayerKind, shape: ConfigShape) -> dict[str, float]:
    """Numbers of one type of layer."""
    _, mixer = _MIXERS[kind[0]]
    attention, inner = mixer(shape), mlp(kind[1], shape)
    hidden = shape.hidden
    # an embedding of the layer's own passes a gate and comes back (Gemma 3n)
    per_layer = 3 * hidden * shape.count("per_layer_input", default=0)
    # parallel streams of activations are mixed before and after both halves (DeepSeek-V4)
    streams = shape.count("streams", default=0)
    beside: float = per_layer + 2 * (2 + streams) * streams**2 * hidden
    beside += attention.get("shared_parameters", 0) + inner["shared_parameters"]
    sizes = {**attention, **inner, "shared_parameters": beside}
    return {key: size for key, size in sizes.items() if key != "shared_parameters" or size}

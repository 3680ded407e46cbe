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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number under the first of these keys that has one.

        Raises:
            InputError: no such key and no default, or a value that is not a whole number.
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
        return int(value)

    def period(self, *names: str, default: int) -> int:
        """A period, one layer in so many: as `count`, but 1 or more.

        Raises:
            InputError: no whole number, or 0.
        """
        value = self.count(*names, default=default)
        if not value:
            raise InputError(f"{self.where}: {names[0]} must be 1 or more")
        return value

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
        name: of its table.
        keys: size -> keys that may hold it.
        defaults: size -> value where a config leaves it out.
        mixers, mlps: rules that say how layers attend, and what MLPs they have.
        blocks: mixers and MLPs by entry, where one list holds both; empty elsewhere.
    """

    name: str
    keys: Mapping[str, list[str]]
    defaults: Mapping[str, Any]
    mixers: tuple[LayerRule, ...]
    mlps: tuple[LayerRule, ...]
    blocks: Mapping[str, Any]


_FAMILY_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "families.toml").read_text()
)
LAYER_KINDS: Mapping[str, str] = _FAMILY_TABLES.pop("kinds")
"""Kinds of layer by the words of `layer_types`."""


def _merged(name: str, field: str) -> dict[str, Any]:
    """A table of a family over those of the families that it is like, and of `any`."""
    table = _FAMILY_TABLES[name]
    base = table.get("like", "any" if name != "any" else "")
    return {**(_merged(base, field) if base else {}), **table.get(field, {})}


def _rules(
    name: str, field: str, default: tuple[LayerRule, ...] = ()
) -> tuple[LayerRule, ...]:
    """Rules of a family, or of the one that it is like."""
    table = _FAMILY_TABLES[name]
    if field in table:
        return tuple(table[field])
    return _rules(table["like"], field, default) if "like" in table else default


def _family(name: str) -> Family:
    return Family(
        name,
        keys=_merged(name, "keys"),
        defaults=_merged(name, "defaults"),
        mixers=_rules(name, "mixers", ({"all": "full"},)),
        mlps=_rules(name, "mlps", ({"all": "dense"},)),
        blocks=_FAMILY_TABLES[name].get("blocks", {}),
    )


FAMILIES = {
    model_type: _family(name)
    for name, table in _FAMILY_TABLES.items()
    if name != "any"
    for model_type in table["types"].split()
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

    def _keys(self, size: str, kind: str) -> list[str]:
        """Keys of a size, those of one kind of layer first, where one of them has a value."""
        own = self.family.keys.get(f"{kind}.{size}", [])
        return own if self.config.value(*own) is not None else self.family.keys[size]

    def value(self, size: str, kind: str = "") -> Any:
        """The value of a size, None where the config has none.

        Raises:
            InputError: two keys for it have different values.
        """
        stated = {key: self.config.value(key) for key in self._keys(size, kind)}
        stated = {key: value for key, value in stated.items() if value is not None}
        values = list(stated.values())
        if any(value != values[0] for value in values):
            pairs = " and ".join(f"{key} = {value!r}" for key, value in stated.items())
            raise InputError(f"{self.config.where}: {pairs} contradict each other")
        return values[0] if values else None

    def count(self, size: str, kind: str = "", default: int | None = None) -> int:
        """A size that is a whole number.

        Args:
            size: its name in families.toml.
            kind: of the layers, where a family has own keys for some.
            default: where neither config nor family has one.

        Raises:
            InputError: it is missing or not a whole number.
        """
        self.value(size, kind)
        keys = self._keys(size, kind) or [size]
        key = self.config.first_stated(keys) or keys[0]
        number = self.config.count(key, default=self.family.defaults.get(size, default))
        if size in ("window", "chunk") and not number:
            raise self.config.refuse(key, "must be 1 or more")
        return number

    def flag(self, size: str, kind: str = "") -> bool:
        """A choice, as the config or else the family makes it.

        Raises:
            InputError: a value that is neither true nor false.
        """
        value = self.value(size, kind)
        if value is None:
            return bool(self.family.defaults.get(size, False))
        if value not in (True, False):
            key = self._keys(size, kind)[0]
            raise InputError(f"{self.config.where}: {key} must be true or false")
        return bool(value)

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
    before, listed = "", False
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
        listed |= form != "all" and isinstance(named[0], str)
        if key and before and listed and kinds != old and "prefix" not in rule:
            said = f"{key} and {before} say otherwise of some layers; {key} is followed"
            warn(f"{shape.config.where}: {said}")
        before = key or before
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
    key, every = rule[form], range(layers)
    named: list[bool] | KindNames | None = None
    match form:
        case "all":
            named = [key] * layers
        case "list":
            named = _list(rule, config, layers)
        case "every":
            named = _every(rule, config, layers)
        case "first" | "last":
            count = config.count(key, default=0)
            start, end = (0, count) if form == "first" else (layers - count, layers)
            named = [start <= layer < end for layer in every]
        case "from":
            start = config.count(key, default=layers)
            named = [layer >= start for layer in every]
        case "beyond":
            last = config.value(key)
            is_stated = isinstance(last, int) and last >= 0
            named = [is_stated and layer > last for layer in every]
        case "layers":
            numbers = config.listed(key, int, "numbers of layers")
            if numbers or "other" not in rule:
                base = rule.get("base", 0)
                named = [layer + base in numbers for layer in every]
        case "refuse" if config.value(key):
            raise config.refuse(key, rule["why"])
    return named


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
    entries: Iterable[Any], kinds: Mapping[str, str], table: Config, name: str
) -> KindNames:
    """Kinds by the entries of a list.

    Raises:
        InputError: an entry names a layer that is not modelled.
    """
    found = []
    for entry in entries:
        word = str(int(entry)) if isinstance(entry, bool) else str(entry)
        if word not in kinds:
            problem = f"{name} names {entry!r}, which is not modelled"
            raise InputError(f"{table.where}: {problem}")
        found.append(kinds[word])
    return found


def _every(rule: LayerRule, config: Config, layers: int) -> list[bool] | KindNames | None:
    names = rule["every"]
    stated, kinds = config.value(*names), rule.get("kinds")
    if kinds and isinstance(stated, str):
        if not stated or set(stated) - set(kinds):
            raise config.refuse(names[0], f"has letters other than {' and '.join(kinds)}")
        return [kinds[stated[layer % len(stated)]] for layer in range(layers)]
    if kinds and isinstance(stated, list):
        return by_entry(config.items(names[0], layers), kinds, config, names[0]) or None
    period = config.period(*names, default=rule["default"])
    offset = rule.get("offset", period - 1)
    if "offset_key" in rule:
        offset = config.count(rule["offset_key"], default=offset)
    return [layer % period == offset for layer in range(layers)]


def blocks(shape: ConfigShape) -> list[tuple[str, str]] | None:
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
    layers: list[tuple[str, str]] = []
    for kind in kinds:
        if kind in mixers:
            layers.append((kind, "none"))
        elif layers and layers[-1][1] == "none":
            layers[-1] = (layers[-1][0], kind)
        else:
            layers.append(("none", kind))
    return layers


# --- what a layer holds ---------------------------------------------------------------------------

SHARED_PREFIX = "shared_"
"""Before a kind of layer that reads the cache of an earlier one."""
_STATE_TYPES = {"": 1, "bfloat16": 1, "float16": 1, "float32": 2}
"""Elements of 16 bits in one of a state, by its type."""


@dataclass(frozen=True)
class Attention:
    """Attention of one layer.

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
    if kind.startswith(SHARED_PREFIX):
        return _of_earlier_layer(kind.removeprefix(SHARED_PREFIX), shape)
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


def _limited(shape: ConfigShape, limit: str) -> Attention:
    """Heads limited to a `window` or a `chunk` of some tokens."""
    heads = grouped(shape, limit)
    tokens = (("window", float(shape.count(limit))),)
    return replace(heads, type=limit, numbers=heads.numbers + tokens)


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
    """Layer that reads the tokens that an earlier layer's indexer chose: it has none (GLM-5.2)."""
    dense = _latent(shape)
    none = (("index_heads", 0.0), ("index_size", 0.0), ("chosen", shape.count("chosen")))
    return replace(dense, type="sparse", numbers=dense.numbers + none, of="shared")


def _compressed(
    shape: ConfigShape, rate: int, of: str = "", indexed: bool = False
) -> Attention:
    """A window of rows, and one row for each `rate` tokens before it (DeepSeek-V4, sec. 2.3).

    Args:
        shape: sizes of the model.
        rate: tokens of a compressed row; 0 where the layer has none [1].
        of: added to the type in the layer's name.
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
    index = [shape.count(name) for name in ("index_heads", "index_size", "chosen")]
    index_heads, index_size, chosen = index if indexed else (0, 0, LARGEST)
    mixer = queries + hidden * size + outputs + hidden * halves
    mixer += (rank * index_size + hidden) * index_heads + hidden * 4 * index_size
    state = 2 * (1 + indexed) * rate * halves + 2 * 2 * rate * 4 * index_size
    numbers = (
        ("mixer_parameters", mixer),
        ("window", shape.count("window")),
        ("rate", rate),
        ("state_size", state),
        ("index_heads", index_heads),
        ("index_size", index_size),
        ("chosen", chosen),
    )
    return Attention("compressed", heads, 0.5, size, numbers=numbers, of=of)


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
    "window": partial(_limited, limit="window"),
    "chunk": partial(_limited, limit="chunk"),
    "selected": _selected,
    "falcon": _falcon,
    "mpt": _mpt,
    "latent": _latent,
    "sparse": _sparse,
    "sparse_shared": _sparse_shared,
    "sliding": partial(_compressed, rate=0, of="window"),
    "compressed": partial(_compressed, rate=4, indexed=True),
    "heavily": partial(_compressed, rate=128, of="heavily"),
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


LayerParts = tuple[Attention, Mlp]


def layers_of(shape: ConfigShape) -> list[LayerParts]:
    """Attention and MLP of every layer."""
    kinds = blocks(shape)
    if kinds is None:
        layers = shape.config.layers
        mixers = painted(shape.family.mixers, shape, layers)
        mlps = painted(shape.family.mlps, shape, layers)
        kinds = list(zip(mixers, mlps, strict=True))
    if any("" in kind for kind in kinds):
        raise InputError(f"{shape.config.where} does not say what every layer is")
    built = {kind: (mixer(kind[0], shape), mlp(kind[1], shape)) for kind in set(kinds)}
    return [built[kind] for kind in kinds]

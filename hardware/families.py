"""A config.json as families.toml says to read it: sizes by name, and which layer is of which kind.

A config is asked for a size by its name in families.toml, which knows the keys that may hold it in
each family of models; a name without such keys is a key itself.

Rules say which layer is of which kind, each over those before it. A rule begins with one of these
words, and gives `kind` to the layers that it names, `other` to the rest; where the config names
each layer by a word or a number, `kinds` says what it means. In all of them `{before}` stands for
the kind that a layer has, which it keeps where nothing is said.
    kind     every layer
    list     the key's list has an entry for each layer, or one word stands for all
    every    one layer in so many (from `offset` on, a number or its size; the last of each period
             without it), or letters that repeat, or a list
    first, last, from, beyond   so many at the start or end, or layers from a number on or beyond it
    layers   a list of numbers of layers, counted from `base`
`needs` names sizes without which a rule does not apply. A list may be `required`, and `longer` than
there are layers, by those that draft tokens.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from nearkv.hardware.errors import InputError, echo, warn
from nearkv.hardware.units import LARGEST

Entry = TypeVar("Entry")

MOST_LAYERS = 10_000

# --- what families.toml says ----------------------------------------------------------------------

LayerRule = Mapping[str, Any]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Family(NamedTuple):
    """Rules by which a family of models is read.

    Attributes:
        keys: size -> keys that may hold it; `window.heads` is of one kind of layer alone.
        defaults: size -> value where a config leaves it out.
        mixers, mlps: rules that say how layers attend, and what MLPs they have.
        blocks: mixers and MLPs by entry, where one list holds both; empty elsewhere.
        refuses: key -> why a config with it is not modelled.
        types: the `model_type`s of the family.
        like: the family whose statements hold where this one makes none.
    """

    keys: Mapping[str, Sequence[str]] = _NOTHING
    defaults: Mapping[str, Any] = _NOTHING
    mixers: Sequence[LayerRule] = ()
    mlps: Sequence[LayerRule] = ()
    blocks: Mapping[str, Any] = _NOTHING
    refuses: Mapping[str, str] = _NOTHING
    types: str = ""
    like: str = "any"


def _stated_in(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / file).read_text())


_FAMILY_TABLES = _stated_in("families.toml")
LAYER_KINDS: Mapping[str, str] = _FAMILY_TABLES.pop("kinds")
"""Kinds of layer by the words of `layer_types`."""
NEUTRAL = frozenset(key for keys in _stated_in("neutral.toml").values() for key in keys)
"""Keys that change neither bytes nor FLOPs, listed by reason in `neutral.toml`."""


def _family(name: str) -> dict[str, Any]:
    """A family: what it states, over that of the family that it is like, and of `any`."""
    own = _FAMILY_TABLES[name]
    if name == "any":
        return own
    base = _family(own.get("like", "any"))
    merged = {part: {**base[part], **own.get(part, {})} for part in ("keys", "defaults")}
    return {**base, **own, **merged}


FAMILIES = {
    model_type: Family(**_family(name))
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

NESTED = {key: Family(**table) for key, table in _stated_in("nested.toml").items()}
"""Names in tables within a config, by the key that holds the table; in others names are keys."""

# --- a config -------------------------------------------------------------------------------------


class Config:
    """The sizes of a config.json, and which of its keys were read.

    Args:
        table: the JSON object.
        where: the file, put in front of every error.
        family: which key means what; every name is a key where none is given.

    Attributes:
        nested: the tables within it that were read, by key, in the same way.
    """

    def __init__(
        self, table: Mapping[str, Any], where: str, family: Family | None = None
    ) -> None:
        self.table = table
        self.where = where
        self.family = family or Family()
        self.nested: dict[str, Config] = {}
        self._read = {"model_type", "text_config"}
        self.stated(self.family.keys.get("ignored", ()))

    @property
    def unread(self) -> list[str]:
        """Keys that were not read, have a value, and could change bytes or FLOPs."""
        empty: tuple[Any, ...] = (None, [], {}, False)
        keys = {key for key, value in self.table.items() if value not in empty}
        return sorted(keys - self._read - NEUTRAL)

    def stated(self, keys: Iterable[str]) -> dict[str, Any]:
        """Those of some keys that have a value, with it; all of them count as read.

        Args:
            keys: of the config; `a.b` is b of the table a.
        """
        values = {key: self._value(key) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def _value(self, key: str) -> Any:
        outer, _, inner = key.rpartition(".")
        config = self.table_of(outer) if outer else self
        config._read.add(inner)
        return config.table.get(inner)

    def key(self, size: str, kind: str = "") -> str:
        """The key that holds a size; the first that may where none does.

        Args:
            size: its name in families.toml.
            kind: of the layers, where a family has own keys for some.

        Raises:
            InputError: two keys for it have different values.
        """
        names = self.family.keys.get(size) or [size]
        of_kind = self.stated(self.family.keys.get(f"{kind}.{size}", ()))
        stated = of_kind or self.stated(names)
        values = list(stated.values())
        if values and values.count(values[0]) < len(values):
            pairs = " and ".join(f"{key} = {value!r}" for key, value in stated.items())
            raise InputError(f"{self.where}: {pairs} contradict each other")
        return next(iter(stated), names[0])

    def value(self, size: str, kind: str = "") -> Any:
        """The value of a size, None where the config has none.

        Args:
            size, kind: as `key` takes them.
        """
        return self._value(self.key(size, kind))

    def count(
        self, size: str, kind: str = "", default: int | None = None, low: int = 0
    ) -> int:
        """A size that is a whole number; a list of one for each layer where all are alike.

        Args:
            size, kind: as `key` takes them.
            default: where neither config nor family has one.
            low: the least that makes a model.

        Raises:
            InputError: it is missing or no such number.
        """
        key = self.key(size, kind)
        value = self._value(key)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]
        if value is None:
            value = self.family.defaults.get(size, default)
        if value is None:
            needed = (
                f"lacks {key!r}, which a {self.table.get('model_type')} config must have"
            )
            raise InputError(f"{self.where}: {needed}")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 0 <= value <= LARGEST:
            limits = f"a whole number from 0 to {LARGEST:g}"
            raise InputError(f"{self.where}: {key} must be {limits}")
        if value < low:
            raise self.refuse(key, f"must be {low} or more")
        return int(value)

    def number(self, size: str, low: float, high: float, default: float) -> float:
        """A number within limits.

        Raises:
            InputError: not a number, or outside the limits.
        """
        value = self.value(size)
        if value is None:
            return default
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not low <= value <= high:
            limits = f"a number from {low:g} to {high:g}" if low < high else f"{low:g}"
            raise InputError(f"{self.where}: {self.key(size)} must be {limits}")
        return float(value)

    def flag(self, size: str, kind: str = "", default: bool = False) -> bool:
        """A yes or no, as the config or else the family says it.

        Raises:
            InputError: a value that is neither.
        """
        value = self.value(size, kind)
        if value is None:
            value = self.family.defaults.get(size, default)
        if not isinstance(value, bool) and value not in (0, 1):
            raise InputError(f"{self.where}: {self.key(size, kind)} must be true or false")
        return bool(value)

    def has(self, size: str) -> bool:
        """True if a size is there and is not zero, or a choice is made."""
        default = self.family.defaults.get(size)
        if isinstance(default, bool):
            return self.flag(size)
        return bool(self.value(size) or default)

    def listed(self, size: str, of: type[Entry], what: str) -> list[Entry]:
        """A list of numbers or words, empty where the config has none.

        Args:
            size: as `key` takes it.
            of: type of the entries.
            what: what they are, used in errors.

        Raises:
            InputError: not such a list.
        """
        value = self.value(size) or []
        if not isinstance(value, list) or not all(isinstance(item, of) for item in value):
            raise InputError(f"{self.where}: {size} must list {what}")
        return value

    def table_of(self, key: str) -> Config:
        """A nested table, empty where the key is absent.

        Raises:
            InputError: not a table.
        """
        if key not in self.nested:
            value = self.value(key)
            if not isinstance(value, dict | None):
                raise InputError(f"{self.where}: {key} must be a JSON object")
            family = NESTED.get(key)
            self.nested[key] = Config(value or {}, f"{self.where}: {key}", family)
        return self.nested[key]

    def refuse(self, key: str, problem: str) -> InputError:
        """The error for a key whose value is not modelled."""
        return InputError(f"{self.where}: {key} = {echo(repr(self.value(key)))} {problem}")

    @property
    def layers(self) -> int:
        """Number of layers [1]."""
        layers = self.count("layers")
        if not 1 <= layers <= MOST_LAYERS:
            limits = f"a model has 1 to {MOST_LAYERS:,}"
            raise InputError(f"{self.where}: {layers} layers; {limits}")
        return layers

    def __getitem__(self, size: str) -> int:
        """A size that is a whole number, as `count` reads it."""
        return self.count(size)


# --- which layer is of which kind -----------------------------------------------------------------

LayerKind = tuple[str, str]
"""A mixer and an MLP, as rules name them."""


def kinds_of_layers(config: Config) -> list[LayerKind]:
    """The kind of every layer.

    Raises:
        InputError: the config leaves a layer unsaid, or names one that is not modelled.
    """
    family = config.family
    for key, why in family.refuses.items():
        if config.value(key):
            raise config.refuse(key, why)
    if family.blocks:
        return _layers_of_blocks(config)
    mixers, mlps = _painted(family.mixers, config), _painted(family.mlps, config)
    if "" in (*mixers, *mlps):
        raise InputError(f"{config.where} does not say what every layer is")
    return list(zip(mixers, mlps, strict=True))


def _painted(rules: Iterable[LayerRule], config: Config) -> list[str]:
    """The mixer or the MLP of every layer, as the last rule leaves it."""
    kinds = [""] * config.layers
    earlier, any_list = "", False
    for rule in rules:
        form, size = next(iter(rule.items()))
        given = _given(form, size, rule, config)
        needs = [config.has(needed) for needed in rule.get("needs", "").split()]
        if not given or not all(needs):
            continue
        before = kinds
        kinds = [name.format(before=kind) for name, kind in zip(given, before, strict=True)]
        if form == "kind" or config.value(size) is None:
            continue
        key = config.key(size)
        any_list |= form != "layers" and isinstance(config.value(size), str | list)
        # a kind that holds the one before, as `borrowed_full` does, does not contradict it
        contradicts = any(old not in new for old, new in zip(before, kinds, strict=True))
        if earlier and any_list and contradicts:
            conflict = (
                f"{key} and {earlier} say otherwise of some layers; {key} is followed"
            )
            warn(f"{config.where}: {conflict}")
        earlier = key
    return kinds


def _given(form: str, size: str, rule: LayerRule, config: Config) -> list[str]:
    """The kind that a rule gives to every layer; none where it does not apply."""
    if form == "kind":
        return [size] * config.layers
    key, stated, kinds = config.key(size), config.value(size), rule.get("kinds")
    if form == "every" and kinds and isinstance(stated, str):
        return _by_letter(key, kinds, config)
    if form == "list" or (form == "every" and kinds and isinstance(stated, list)):
        return _by_entry(_list(key, rule, config), kinds or LAYER_KINDS, config, key)
    named = _named(form, size, rule, config)
    kind, other = rule.get("kind", "{before}"), rule.get("other", "{before}")
    return [kind if layer in named else other for layer in range(config.layers)]


def _named(form: str, size: str, rule: LayerRule, config: Config) -> Collection[int]:
    """Numbers of the layers that a rule names, from 0."""
    layers = range(config.layers)
    named: Collection[int] = ()
    match form:
        case "first":
            named = layers[: config.count(size, default=0)]
        case "last":
            named = layers[::-1][: config.count(size, default=0)]
        case "from":
            named = layers[config.count(size, default=len(layers)) :]
        case "beyond":
            last = config.value(size)
            named = layers[last + 1 :] if isinstance(last, int) and last >= 0 else ()
        case "every":
            period = config.count(size, low=1)
            offset = rule.get("offset", period - 1)
            if isinstance(offset, str):
                offset = config[offset]
            named = [layer for layer in layers if layer % period == offset]
        case "layers":
            base = rule.get("base", 0)
            stated = config.listed(size, int, "numbers of layers")
            named = [number - base for number in stated]
    return named


def _list(key: str, rule: LayerRule, config: Config) -> list[Any]:
    """Entries of all layers, behind which layers that draft tokens may stand; one word is all's."""
    layers, entries = config.layers, config.value(key) or []
    if isinstance(entries, str):
        return [entries] * layers
    if not entries and rule.get("required"):
        raise InputError(f"{config.where} lacks {key!r}, which names every layer")
    if isinstance(entries, list) and rule.get("longer"):
        entries = entries[:layers]
    if not isinstance(entries, list) or len(entries) not in (0, layers):
        problem = f"must list one entry for each layer, {layers}"
        raise InputError(f"{config.where}: {key} {problem}")
    return entries


def _by_letter(key: str, kinds: Mapping[str, str], config: Config) -> list[str]:
    """Kinds by the letters of a word that repeats."""
    letters = config.value(key)
    if not letters or set(letters) - set(kinds):
        problem = f"has letters other than {' and '.join(kinds)}"
        raise config.refuse(key, problem)
    return [kinds[letters[layer % len(letters)]] for layer in range(config.layers)]


def _by_entry(
    entries: Iterable[Any], kinds: Mapping[str, str], config: Config, key: str
) -> list[str]:
    """Kinds by the entries of a list.

    Raises:
        InputError: an entry names a layer that is not modelled.
    """
    named = []
    for entry in entries:
        word = str(int(entry)) if isinstance(entry, bool) else str(entry)
        if word not in kinds:
            problem = f"{key} names {entry!r}, which is not modelled"
            raise InputError(f"{config.where}: {problem}")
        named.append(kinds[word])
    return named


def _layers_of_blocks(config: Config) -> list[LayerKind]:
    """Layers of a model whose config lists mixers and MLPs as blocks.

    A mixer and the MLP behind it are a layer, as in other models; either may stand alone.
    """
    mixers, mlps = config.family.blocks["mixers"], config.family.blocks["mlps"]
    key, blocks = config.key("blocks"), config.value("blocks")
    if not isinstance(blocks, str | list) or not blocks:
        keys = " or ".join(config.family.keys["blocks"])
        raise InputError(f"{config.where}: {keys} must name every block")
    if config.count("layers", default=len(blocks)) != len(blocks):
        raise config.refuse(config.key("layers"), f"is not the {len(blocks)} of {key}")
    layers: list[LayerKind] = []
    for kind in _by_entry(blocks, {**mixers, **mlps}, config, key):
        if kind in mixers.values():
            layers.append((kind, "none"))
        elif layers and layers[-1][1] == "none":
            layers[-1] = (layers[-1][0], kind)
        else:
            layers.append(("none", kind))
    return layers

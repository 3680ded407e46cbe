"""Families of models by `model_type`: which key means what, which layer is of which kind.

families.toml says both. Its rules are painted each over those before it. A rule has one of these
keys, and paints `kind` on the layers it names, `other` on the rest:
    all      every layer
    list     the key's list has an entry for each layer; `kinds` says which is which
    every    one layer in so many (`offset` from 0; the last of each period without it); where the
             key holds a list or a word instead, whose letters repeat, `kinds` says which is which
    first, last, from, beyond   so many at the start or end, or layers from a number on or beyond it
    layers   a list of numbers of layers, counted from `base`
    refuse   no layer: a config with this key is not modelled
`needs` names sizes without which a rule does not apply. `prefix` goes before the kind that a layer
has.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError, warn

LayerRule = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """How a family of models is read.

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
        key = self.config.stated(keys) or keys[0]
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
        """Whether a size is there and is not zero, or a choice is made."""
        if isinstance(self.family.defaults.get(size), bool):
            return self.flag(size)
        return bool(self.value(size) or self.family.defaults.get(size))

    @property
    def hidden(self) -> int:
        """Width of the model [1]."""
        return self.count("hidden")


# --- which layer is of which kind -----------------------------------------------------------------

KindNames = list[str]
Named = Callable[[LayerRule, ConfigShape, int], "list[bool] | KindNames | None"]
"""The layers that a rule names, or the kind of every layer; None where it does not apply."""


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
        form = next(key for key in rule if key in _RULES)
        named = _RULES[form](rule, shape, layers)
        needs = [shape.has(size) for size in rule.get("needs", "").split()]
        if named is None or not all(needs):
            continue
        old = kinds
        kinds = [_over(rule, kind, new) for kind, new in zip(old, named, strict=True)]
        stated = rule[form]
        key = shape.config.stated([stated] if isinstance(stated, str) else stated)
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


def _all(rule: LayerRule, _: ConfigShape, layers: int) -> KindNames:
    return [rule["all"]] * layers


def _refuse(rule: LayerRule, shape: ConfigShape, _: int) -> None:
    if shape.config.value(rule["refuse"]):
        raise shape.config.refuse(rule["refuse"], rule["why"])


def _list(rule: LayerRule, shape: ConfigShape, layers: int) -> KindNames | None:
    config, name = shape.config, rule["list"]
    value = config.value(name)
    if not value and rule.get("required"):
        raise InputError(f"{config.where}: lacks {name!r}, which names every layer")
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


def _every(
    rule: LayerRule, shape: ConfigShape, layers: int
) -> list[bool] | KindNames | None:
    config, names = shape.config, rule["every"]
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


def _first(rule: LayerRule, shape: ConfigShape, layers: int) -> list[bool]:
    count = shape.config.count(rule["first"], default=0)
    return [layer < count for layer in range(layers)]


def _last(rule: LayerRule, shape: ConfigShape, layers: int) -> list[bool]:
    count = shape.config.count(rule["last"], default=0)
    return [layer >= layers - count for layer in range(layers)]


def _from(rule: LayerRule, shape: ConfigShape, layers: int) -> list[bool]:
    start = shape.config.count(rule["from"], default=layers)
    return [layer >= start for layer in range(layers)]


def _beyond(rule: LayerRule, shape: ConfigShape, layers: int) -> list[bool]:
    value = shape.config.value(rule["beyond"])
    end = value if isinstance(value, int) and value >= 0 else layers
    return [layer > end for layer in range(layers)]


def _layers(rule: LayerRule, shape: ConfigShape, layers: int) -> list[bool] | None:
    numbers = shape.config.listed(rule["layers"], int, "numbers of layers")
    if not numbers and "other" in rule:
        return None
    base = rule.get("base", 0)
    return [layer + base in numbers for layer in range(layers)]


_RULES: dict[str, Named] = {
    "all": _all,
    "list": _list,
    "every": _every,
    "first": _first,
    "last": _last,
    "from": _from,
    "beyond": _beyond,
    "layers": _layers,
    "refuse": _refuse,
}


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
    name = config.stated(table["keys"])
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

"""Families of models by `model_type`: which key of a config.json means what, from families.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearkv.hardware.config import Config
from nearkv.hardware.errors import InputError

Rule = Mapping[str, Any]


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
    mixers: tuple[Rule, ...]
    mlps: tuple[Rule, ...]
    blocks: Mapping[str, Any]


_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "families.toml").read_text()
)
KINDS: Mapping[str, str] = _TABLES.pop("kinds")
"""Kinds of layer by the words of `layer_types`."""


def _merged(name: str, field: str) -> dict[str, Any]:
    """A table of a family over those of the families that it is like, and of `any`."""
    table = _TABLES[name]
    base = table.get("like", "any" if name != "any" else "")
    return {**(_merged(base, field) if base else {}), **table.get(field, {})}


def _rules(name: str, field: str, default: tuple[Rule, ...] = ()) -> tuple[Rule, ...]:
    """Rules of a family, or of the one that it is like."""
    table = _TABLES[name]
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
        blocks=_TABLES[name].get("blocks", {}),
    )


FAMILIES = {
    model_type: _family(name)
    for name, table in _TABLES.items()
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


KEYS = frozenset(_words(_TABLES))
"""Keys that some family knows."""


class Shape:
    """The sizes of a config.json by the names that families.toml gives them.

    Args:
        config: the keys; those that are asked for count as read.
        family: which key means what.
    """

    def __init__(self, config: Config, family: Family) -> None:
        self.config = config
        self.family = family
        for key in family.keys.get("ignored", []):
            self.place(key)[0].value(self.place(key)[1])

    def place(self, key: str) -> tuple[Config, str]:
        """The table that holds a key, and its name there: `a.b` is b of the table a."""
        outer, _, inner = key.rpartition(".")
        return (self.config.table_of(outer), inner) if outer else (self.config, key)

    def _keys(self, size: str, kind: str) -> list[str]:
        """Keys of a size, those of one kind of layer first, where one of them has a value."""
        own = self.family.keys.get(f"{kind}.{size}", [])
        if any(self._value(key) is not None for key in own):
            return own
        return self.family.keys[size]

    def _value(self, key: str) -> Any:
        table, name = self.place(key)
        return table.value(name)

    def value(self, size: str, kind: str = "") -> Any:
        """The value of a size, None where the config has none.

        Raises:
            InputError: two keys for it have different values.
        """
        stated = {key: self._value(key) for key in self._keys(size, kind)}
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
        keys = self._keys(size, kind)
        key = next(
            (key for key in keys if self._value(key) is not None), (keys or [size])[0]
        )
        table, name = self.place(key)
        number = table.count(name, default=self.family.defaults.get(size, default))
        if size in ("window", "chunk") and not number:
            raise table.refuse(name, "must be 1 or more")
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

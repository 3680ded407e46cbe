"""A model's config.json, read key by key, so that no key is ignored silently."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nearkv.hardware.errors import InputError
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

    def stated(self, names: Sequence[str]) -> str:
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

"""Numbers of each type of part, and in which unit.

The keys are listed in `schema.toml`, for all that reads, checks or overrides a number.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError
from nearkv.hardware.units import unit_of

COLUMN_UNITS = {
    "1": "1",
    "B": "GB",
    "B/s": "GB/s",
    "FLOP/s": "TFLOP/s",
    "s": "us",
    "W": "W",
    "USD": "USD",
    "USD/h": "USD/h",
    "USD/GB": "USD/GB",
    "USD/kWh": "USD/kWh",
    "bit": "bit",
    "T/s": "GT/s",
    "Hz": "GHz",
    "m2": "mm2",
}
"""Unit of a number -> unit that columns show it in."""

PARTLESS = ("precision", "policy", "router", "offload", "collective", "derate", "ownership")
"""Roles of a platform that no part fills: they hold all their own numbers."""

NARROW_OPERANDS = {"flops_8bit": 1.0, "flops_4bit": 0.5}
"""Rate of narrow products -> widest operand that takes it [B], the widest first."""


@dataclass(frozen=True)
class Key:
    """One number of a part: its unit, its meaning and the values it may take.

    Attributes:
        unit: what its values must convert to.
        what: its meaning.
        whole: True where only whole numbers count.
        optional: True where a part may lack it.
        zero: True where zero is a value.
        least, most: smallest and largest value, in `unit`; of `KEY_LIMITS` where none is stated.
        only: the values it may take, in `unit`; any where empty.
        usual: range of the machines there are, in `unit`; not known where empty.
        column: unit that columns show it in; that of its dimension where empty.
        sibling: True where kernels decide it, so that a part without it takes its sibling's.
        instead: what to do where it would be zero, behind a semicolon.
    """

    unit: str
    what: str
    whole: bool = False
    optional: bool = False
    zero: bool = False
    least: float = 0.0
    most: float = math.inf
    only: tuple[float, ...] = ()
    usual: tuple[float, ...] = ()
    column: str = ""
    sibling: bool = False
    instead: str = ""

    @property
    def shown_in(self) -> str:
        """The unit that columns show it in."""
        return self.column or COLUMN_UNITS[self.unit]

    @property
    def suffix(self) -> str:
        """Suffix of its columns that states the unit; empty for a pure number."""
        if self.shown_in == "1":
            return ""
        return f"_{self.shown_in.lower().replace('/', '_')}"

    def shown(self, si: float) -> float:
        """An SI value in the unit of its columns, free of the digits that conversion adds."""
        return float(f"{si / unit_of(self.shown_in)[1]:.15g}")

    def fault(self, value: float) -> str:
        """Name the fault in a value in SI units; empty where nothing is.

        Prices, powers and delays may be zero; a size, a rate or a count of zero makes no part.
        """
        if not math.isfinite(value) or value < 0:
            return "must be a finite number, zero or more"
        if self.whole and value != int(value):
            return "must be a whole number"
        if not value and not self.zero:
            return f"must be more than zero{self.instead}"
        if self.only and not self._is_listed(value):
            *others, last = (f"{allowed:g}" for allowed in self.only)
            return f"must be {', '.join(others)} or {last} {self.unit}"
        least, most = self.limits
        if value > most:
            return f"must be at most {self.text(most)}"
        return f"must be at least {self.text(least)}" if 0 < value < least else ""

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value there can be, zero apart, in SI."""
        size = unit_of(self.unit)[1]
        least, most = KEY_LIMITS[self.unit]
        return max(least, self.least) * size, min(most, self.most) * size

    def doubt(self, value: float) -> str:
        """Name an odd, though possible, value in SI units; empty where nothing is."""
        size = unit_of(self.unit)[1]
        if not value or not self.usual:
            return ""
        low, high = (bound * size for bound in self.usual)
        if low <= value <= high:
            return ""
        return f"is outside the usual range, {self.text(low)} to {self.text(high)}"

    def text(self, si: float) -> str:
        """A value in SI units as people read it."""
        unit = "" if self.shown_in == "1" else f" {self.shown_in}"
        return f"{self.shown(si):.6g}{unit}"

    def _is_listed(self, value: float) -> bool:
        size = unit_of(self.unit)[1]
        return any(math.isclose(value, allowed * size) for allowed in self.only)


@dataclass(frozen=True)
class Relation:
    """Relation of one number of a part with another.

    Attributes:
        left, right: keys.
        word: `<` or `<=`.
    """

    left: str
    word: str
    right: str

    def holds(self, left: float, right: float) -> bool:
        """True if two values in SI units may stand in one part."""
        return left < right if self.word == "<" else left <= right

    @property
    def text(self) -> str:
        """The relation in words, without its left side."""
        return "must be below" if self.word == "<" else "must be at most"


def _included(
    table: Mapping[str, Any], shared: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The tables that a table of the schema includes, directly or not, then itself."""
    tables = [_included(shared[name], shared) for name in table.get("include", ())]
    return [*chain.from_iterable(tables), table]


def _keys(tables: Iterable[Mapping[str, Any]]) -> dict[str, Key]:
    """Keys of one type of part."""
    entries = {name: entry for table in tables for name, entry in table.items()}
    fields = {name: entry for name, entry in entries.items() if isinstance(entry, dict)}
    listed = ("only", "usual")
    return {
        name: Key(**entry | {field: tuple(entry.get(field, ())) for field in listed})
        for name, entry in fields.items()
    }


_SCHEMA_TABLES = tomllib.loads(
    Path(__file__).with_name("schema.toml").read_text(encoding="utf-8")
)
_SHARED = {**_SCHEMA_TABLES.pop("shared"), **_SCHEMA_TABLES}

ROLES: dict[str, list[str]] = _SCHEMA_TABLES.pop("roles")
"""Role of a platform -> types of part that may fill it."""

KEY_LIMITS: dict[str, list[float]] = _SCHEMA_TABLES.pop("limits")
"""Unit -> smallest and largest number of it, in that unit; nothing outside is a machine."""

_INCLUDED = {name: _included(table, _SHARED) for name, table in _SCHEMA_TABLES.items()}

PART_TYPES = {name: _keys(tables) for name, tables in _INCLUDED.items()}
"""Type of part -> its keys."""

RELATIONS = {
    name: [Relation(*words) for table in tables for words in table.get("relations", ())]
    for name, tables in _INCLUDED.items()
}
"""Type of part -> relations between its numbers."""

OWN_FACTOR = Key("1", "share that a system of one's own reads", most=1)
"""Number of a platform's `derate` table that no catalogued system reads."""


def keys_of(part_type: str, names: Iterable[str]) -> Mapping[str, Key]:
    """Keys of a type of part; a derate may have factors of one's own beside them.

    Args:
        part_type: key of `PART_TYPES`.
        names: of the numbers that a part states.
    """
    keys = PART_TYPES[part_type]
    if part_type != "derate":
        return keys
    return dict.fromkeys(names, OWN_FACTOR) | keys


def check_factor(name: str, where: str) -> None:
    """Refuse a factor of a `derate` table that belongs to a chip or to an engine.

    Raises:
        InputError: it does.
    """
    for owner in ("gpu", "host", "engine"):
        if name in PART_TYPES.get(owner, {}):
            raise InputError(
                f"{where}: unknown number 'derate.{name}'; it is '{owner}.{name}' now"
            )

"""Which numbers each kind of part has, and in which unit.

The keys are listed in `schema.toml`; whatever reads, checks or overrides a number asks here.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearkv.hardware.quantity import unit_of

COLUMN_UNITS = {
    "1": "1",
    "B": "GB",
    "B/s": "GB/s",
    "FLOP/s": "TFLOP/s",
    "s": "us",
    "W": "W",
    "USD": "USD",
    "bit": "bit",
    "T/s": "GT/s",
    "Hz": "GHz",
    "m2": "mm2",
}
"""Unit of a number -> unit that columns show it in."""

PARTLESS = ("precision", "policy", "offload", "collective", "derate")
"""Roles of a platform that no part fills: they hold all their own numbers."""


@dataclass(frozen=True)
class Key:
    """One number of a part: its unit, its meaning and the values it may take.

    Attributes:
        unit: what its values must convert to.
        what: its meaning.
        whole: True where only whole numbers count.
        optional: True where a part may lack it.
        zero: True where zero is a value.
        most: largest value, in `unit`.
        only: the values it may take, in `unit`; any where empty.
        column: unit that columns show it in; that of its dimension where empty.
    """

    unit: str
    what: str
    whole: bool = False
    optional: bool = False
    zero: bool = False
    most: float = math.inf
    only: tuple[float, ...] = ()
    column: str = ""

    @property
    def shown_in(self) -> str:
        """The unit that columns show it in."""
        return self.column or COLUMN_UNITS[self.unit]

    @property
    def suffix(self) -> str:
        """What the names of its columns end in to state the unit; empty for a pure number."""
        if self.shown_in == "1":
            return ""
        return f"_{self.shown_in.lower().replace('/', '_')}"

    def shown(self, si: float) -> float:
        """An SI value in the unit of its columns, free of the digits that conversion adds."""
        return float(f"{si / unit_of(self.shown_in)[1]:.15g}")

    def fault(self, value: float) -> str:
        """What is wrong with a value in SI units; empty where nothing is.

        Prices, powers and delays may be zero; a size, a rate or a count of zero is no part at all.
        """
        if self.whole and value != int(value):
            return "must be a whole number"
        if not value and not self.zero:
            return "must be more than zero"
        if self.only and not self._is_listed(value):
            *others, last = (f"{allowed:g}" for allowed in self.only)
            return f"must be {', '.join(others)} or {last} {self.unit}"
        return f"must be at most {self.most:g}" if value > self.most else ""

    def _is_listed(self, value: float) -> bool:
        size = unit_of(self.unit)[1]
        return any(math.isclose(value, allowed * size) for allowed in self.only)


def _key(fields: Mapping[str, Any]) -> Key:
    return Key(**{**fields, "only": tuple(fields.get("only", ()))})


def _keys(table: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Key]:
    """Keys of one kind, those of the tables it includes first."""
    keys: dict[str, Key] = {}
    for name in table.get("include", ()):
        keys |= _keys(shared[name], shared)
    own = {name: _key(fields) for name, fields in table.items() if name != "include"}
    return keys | own


def _read() -> dict[str, dict[str, Key]]:
    text = Path(__file__).with_name("schema.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    shared = tables.pop("shared")
    return {kind: _keys(table, shared | tables) for kind, table in tables.items()}


KINDS = _read()
"""Kind of part -> its keys."""

DERATE = Key("1", "correction factor", most=1)
"""Every number of a platform's `derate` table: what is reached over what is printed."""

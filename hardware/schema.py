"""Numbers of each type of part: which there are, in which unit, and from which source.

The keys are listed in `schema.toml`, for all that reads, checks or overrides a number.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from nearkv.hardware.errors import InputError, check_known, unknown
from nearkv.hardware.files import FileTable, read_toml
from nearkv.hardware.units import LARGEST, SMALLEST, parse, unit_of

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
NO_DEVICES = ("link", "engine", *PARTLESS)
"""Types of part that are bought with the devices they join, or are no part."""

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
        chosen: True where the builder or the user of the machine decides it, so that it is exact.
        exact: True where a file that states it alone means it: a data sheet's peak, a setting.
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
    chosen: bool = False
    exact: bool = False
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

    @property
    def factors(self) -> tuple[float, float] | None:
        """Factors between which a number may lie that a file states alone; None where exact."""
        if self.chosen or self.exact or self.whole:
            return None
        is_share = self.unit == "1" and self.most == 1
        return STATED_FACTORS.get("share" if is_share else self.unit)

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
        if self.only and not any(math.isclose(value, n * self.size) for n in self.only):
            *others, last = (f"{allowed:g}" for allowed in self.only)
            return f"must be {', '.join(others)} or {last} {self.unit}"
        least, most = self.limits
        if value > most:
            return f"must be at most {self.text(most)}"
        return f"must be at least {self.text(least)}" if 0 < value < least else ""

    @property
    def size(self) -> float:
        """One `unit` in SI."""
        return unit_of(self.unit)[1]

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value there can be, zero apart, in SI."""
        least, most = KEY_LIMITS[self.unit]
        return max(least, self.least) * self.size, min(most, self.most) * self.size

    def doubt(self, value: float) -> str:
        """Name an odd, though possible, value in SI units; empty where nothing is."""
        if not value or not self.usual:
            return ""
        low, high = (bound * self.size for bound in self.usual)
        if low <= value <= high:
            return ""
        return f"is outside the usual range, {self.text(low)} to {self.text(high)}"

    def text(self, si: float) -> str:
        """A value in SI units as people read it."""
        unit = "" if self.shown_in == "1" else f" {self.shown_in}"
        return f"{self.shown(si):.6g}{unit}"


def _included(table: FileTable, shared: FileTable) -> list[FileTable]:
    """The tables that a table of the schema includes, directly or not, then itself."""
    tables = [_included(shared[name], shared) for name in table.get("include", ())]
    return [*chain.from_iterable(tables), table]


def _keys(tables: Iterable[FileTable]) -> dict[str, Key]:
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

STATED_FACTORS: dict[str, tuple[float, float]] = _SCHEMA_TABLES.pop("stated")
"""Unit, or `share` -> factors between which a number of it may lie that a file states alone."""

_INCLUDED = {name: _included(table, _SHARED) for name, table in _SCHEMA_TABLES.items()}

PART_TYPES = {name: _keys(tables) for name, tables in _INCLUDED.items()}
"""Type of part -> its keys."""

RELATIONS: dict[str, list[tuple[str, str, str]]] = {
    name: [relation for table in tables for relation in table.get("relations", ())]
    for name, tables in _INCLUDED.items()
}
"""Type of part -> relations between its numbers: a key, `<` or `<=`, a key."""

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


# --- a number with its source, read from a specification and checked against the schema ---------

SOURCES_FILE = Path(__file__).parent / "sources.toml"

Kind = Literal["datasheet", "paper", "measured", "fitted", "assumed"]
SOURCE_KINDS: tuple[str, ...] = get_args(Kind)
"""Kinds of source of a number."""

_REQUIRED = {"value", "unit", "kind", "source", "at"}
_ALLOWED = _REQUIRED | {"note", "range", "quantiles", "shares", "date", "alone"}
_UNCERTAIN = ("assumed", "fitted")
"""Kinds of number that need a note and a range."""


@dataclass(frozen=True)
class Quantity:
    """A number with its origin.

    Attributes:
        value: as printed in the source, in `unit`.
        unit: as printed in the source.
        kind: datasheet, paper, measured, fitted or assumed.
        source: key into sources.toml.
        at: page, table or section inside the source.
        note: why this value, where it is assumed or fitted.
        range: physical range of an assumed or fitted value, or of repeated measurements, in `unit`.
        quantiles: 10 %, 50 % and 90 % of repeated measurements, in `unit`.
        shares: names what several numbers have in common (one chassis, one code base): where one
            of them is high in its range, so are the others.
        date: of a price, as `2026-05`.
        sibling: chip on which it was measured, where that is another; empty where it is not.
        alone: whether it holds on its chip alone, as one that is derived from the speed of a whole
            run does; siblings take it only where no other chip has one.
    """

    value: float
    unit: str
    kind: Kind
    source: str
    at: str
    note: str = ""
    range: tuple[float, ...] | None = None
    quantiles: tuple[float, ...] | None = None
    shares: str = ""
    date: str = ""
    sibling: str = ""
    alone: bool = False

    @cached_property
    def si(self) -> float:
        """The value in SI base units (B, B/s, FLOP/s, s, W, J, USD, 1)."""
        return self.value * self._size

    @cached_property
    def _size(self) -> float:
        return unit_of(self.unit)[1]

    @property
    def range_si(self) -> tuple[float, ...] | None:
        """The physical range in SI base units, where one is stated."""
        return self._in_si(self.range)

    @property
    def quantiles_si(self) -> tuple[float, ...] | None:
        """10 %, 50 % and 90 % of repeated measurements in SI base units, where they are stated."""
        return self._in_si(self.quantiles)

    def _in_si(self, numbers: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if numbers is None else tuple(value * self._size for value in numbers)


@cache
def source_names() -> frozenset[str]:
    """Keys of all sources; reading the heads of their tables alone takes a tenth of the time."""
    lines = SOURCES_FILE.read_text(encoding="utf-8").splitlines()
    heads = (line for line in lines if line.startswith("["))
    return frozenset(head[1:-1].strip('"') for head in heads)


@cache
def sources() -> dict[str, dict[str, Any]]:
    """Every cited paper and datasheet, by key."""
    return read_toml(SOURCES_FILE, "sources")


def quantity(entry: object, key: Key, where: str) -> Quantity:
    """Check one number of a specification.

    A number alone (`count = 4`) or with its unit (`read = "12 GB/s"`) is the user's own; where it
    is neither chosen nor exact, it has the usual range of its unit.

    Args:
        entry: the inline table as TOML reads it, or the short form.
        key: what the schema says of it.
        where: file and key, put in front of every error.

    Raises:
        InputError: a field is missing or unknown, the number is not finite or negative, the unit
            does not fit, the source is not in sources.toml, an assumption lacks note or range.
    """
    if _is_number(entry) or isinstance(entry, str):
        return _short_form(str(entry), key, where)
    if not isinstance(entry, dict):
        raise InputError(
            f"{where} must be {{ value, unit, kind, source, at }}, not {entry!r}"
        )
    _check_fields(entry, where)
    value, unit = entry["value"], str(entry["unit"])
    _check_value(value, unit, key, where)
    has_range = entry["kind"] in _UNCERTAIN or "range" in entry
    shares, alone = entry.get("shares", ""), entry.get("alone", False)
    if not isinstance(shares, str):
        raise InputError(
            f"{where}: shares {shares!r} must be a name that several numbers have in common"
        )
    if not isinstance(alone, bool):
        raise InputError(f"{where}: alone = {alone!r} must be true or false")
    return Quantity(
        value=float(value),
        unit=unit,
        kind=entry["kind"],
        source=str(entry["source"]),
        at=entry["at"],
        note=str(entry.get("note", "")),
        range=_range(entry, where) if has_range else None,
        quantiles=_quantiles(entry["quantiles"], where) if "quantiles" in entry else None,
        shares=shares,
        date=str(entry.get("date", "")),
        alone=alone,
    )


def _short_form(text: str, key: Key, where: str) -> Quantity:
    """A number that a user states without a range, and without a source: that is their own file."""
    value = parse(text, key.unit, where)
    if fault := key.fault(value):
        raise InputError(f"{where}: {text!r} {fault}")
    number = stated_by_user(value, key, f"{where} = {text}")
    if key.factors is None:
        return number
    low, high = (factor * value for factor in key.factors)
    most = key.limits[1]
    note = "Stated without a range, so that it has the usual one of its unit."
    return replace(number, note=note, range=(key.shown(low), key.shown(min(high, most))))


def stated_by_user(si: float, key: Key, at: str) -> Quantity:
    """A number that a user states [SI], in the unit that people read it in."""
    return Quantity(key.shown(si), key.shown_in, "assumed", "user", at)


def _check_fields(fields: FileTable, where: str) -> None:
    """Refuse missing and unknown fields, and an origin that is not stated."""
    missing = sorted(_REQUIRED - fields.keys())
    if missing:
        required = ", ".join(sorted(_REQUIRED))
        raise InputError(
            f"{where} has no {', '.join(missing)}; every number needs {required}"
        )
    for extra in fields.keys() - _ALLOWED:
        raise unknown("field", extra, _ALLOWED, where)
    kind, source, at = str(fields["kind"]), str(fields["source"]), fields["at"]
    check_known("kind", [kind], SOURCE_KINDS, where)
    check_known("source", [source], source_names(), f"{where}: (sources.toml)")
    if not isinstance(at, str) or not at:
        raise InputError(f'{where}: at must say where in the source, such as "Table 1"')


def _check_value(value: Any, unit: str, key: Key, where: str) -> None:
    if not _is_number(value) or not (value == 0 or SMALLEST <= value <= LARGEST):
        raise InputError(
            f"{where}: value must be zero or a finite number from {SMALLEST:g} to {LARGEST:g}"
        )
    dimension, size = unit_of(unit, where)
    if dimension != unit_of(key.unit)[0]:
        raise InputError(
            f"{where}: unit {unit!r} does not measure this; it needs {key.unit!r}"
        )
    if fault := key.fault(value * size):
        raise InputError(f"{where}: value {value!r} {fault}")


def _is_number(value: object) -> bool:
    """True if TOML read a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _range(entry: FileTable, where: str) -> tuple[float, ...]:
    is_explained = entry.get("note") or entry["kind"] not in _UNCERTAIN
    if not is_explained or "range" not in entry:
        raise InputError(
            f"{where}: an {entry['kind']} number needs a note and a range = [low, high]"
        )
    bounds = _finite(entry["range"])
    if len(bounds) != 2 or not bounds[0] <= entry["value"] <= bounds[1]:
        form = f"must be [low, high] around the value {entry['value']}"
        raise InputError(f"{where}: range {entry['range']!r} {form}")
    return bounds


def _quantiles(stated: object, where: str) -> tuple[float, ...]:
    quantiles = _finite(stated)
    if len(quantiles) != 3 or not 0 < quantiles[0] < quantiles[1] < quantiles[2]:
        form = "must be [p10, p50, p90], which are positive and grow"
        raise InputError(f"{where}: quantiles {stated!r} {form}")
    return quantiles


def _finite(stated: object) -> tuple[float, ...]:
    """The numbers of a list of finite ones; none of anything else."""
    numbers = stated if isinstance(stated, list) and all(map(_is_number, stated)) else []
    return tuple(map(float, numbers)) if all(map(math.isfinite, numbers)) else ()


def numbers_of(
    entries: FileTable, keys: Mapping[str, Key], where: str
) -> dict[str, Quantity]:
    """Check all numbers of a table.

    Raises:
        InputError: a key the schema does not know, or a number that fails `quantity`.
    """
    check_known("key", entries, keys, where)
    numbers = {}
    for name, entry in entries.items():
        is_read = isinstance(entry, Quantity)
        numbers[name] = (
            entry if is_read else quantity(entry, keys[name], f"{where}: {name}")
        )
    return numbers


def check_complete(numbers: Iterable[str], part_type: str, where: str) -> None:
    """Refuse a part that lacks a number its type must have.

    Raises:
        InputError: naming every number that is missing.
    """
    required = [name for name, key in PART_TYPES[part_type].items() if not key.optional]
    missing = [name for name in required if name not in set(numbers)]
    if missing:
        raise InputError(f"{where}: a {part_type} needs {', '.join(missing)}")

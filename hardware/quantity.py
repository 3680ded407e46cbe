"""A number with its source, read from a specification and checked against the schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from nearkv.hardware.errors import InputError, check_known, unknown
from nearkv.hardware.files import read_toml
from nearkv.hardware.schema import PART_TYPES, Key
from nearkv.hardware.units import LARGEST, SMALLEST, parse, unit_of

SOURCES_FILE = Path(__file__).parent / "sources.toml"

Kind = Literal["datasheet", "paper", "measured", "fitted", "assumed"]
SOURCE_KINDS: tuple[str, ...] = get_args(Kind)
"""Kinds of source of a number."""

_REQUIRED = {"value", "unit", "kind", "source", "at"}
_ALLOWED = _REQUIRED | {"note", "range", "quantiles", "shares", "date"}
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
        low, high: physical range of an assumed or fitted value, or of repeated measurements, in
            `unit`.
        quantiles: 10 %, 50 % and 90 % of repeated measurements, in `unit`.
        shares: names what several numbers have in common (one chassis, one code base): where one
            of them is high in its range, so are the others.
        date: of a price, as `2026-05`.
        sibling: chip on which it was measured, where that is another; empty where it is not.
    """

    value: float
    unit: str
    kind: Kind
    source: str
    at: str
    note: str = ""
    low: float | None = None
    high: float | None = None
    quantiles: tuple[float, float, float] | None = None
    shares: str = ""
    date: str = ""
    sibling: str = ""

    @cached_property
    def si(self) -> float:
        """The value in SI base units (B, B/s, FLOP/s, s, W, J, USD, 1)."""
        return self.value * unit_of(self.unit)[1]

    @property
    def range_si(self) -> tuple[float, float] | None:
        """The physical range in SI base units, where one is stated."""
        if self.low is None or self.high is None:
            return None
        size = unit_of(self.unit)[1]
        return self.low * size, self.high * size

    @property
    def quantiles_si(self) -> tuple[float, float, float] | None:
        """10 %, 50 % and 90 % of repeated measurements in SI base units, where they are stated."""
        if self.quantiles is None:
            return None
        size = unit_of(self.unit)[1]
        low, middle, high = self.quantiles
        return low * size, middle * size, high * size


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

    A number alone (`count = 4`) or with its unit (`read = "12 GB/s"`) is the user's own choice.

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
    low, high = None, None
    if entry["kind"] in _UNCERTAIN or "range" in entry:
        low, high = _range(entry, where)
    shares = entry.get("shares", "")
    if not isinstance(shares, str):
        raise InputError(
            f"{where}: shares {shares!r} must be a name that several numbers have in common"
        )
    return Quantity(
        value=float(value),
        unit=unit,
        kind=entry["kind"],
        source=str(entry["source"]),
        at=entry["at"],
        note=str(entry.get("note", "")),
        low=low,
        high=high,
        quantiles=_quantiles(entry["quantiles"], where) if "quantiles" in entry else None,
        shares=shares,
        date=str(entry.get("date", "")),
    )


def _short_form(text: str, key: Key, where: str) -> Quantity:
    """A number that a user states without a source, which is their own file."""
    value = parse(text, key.unit, where)
    if fault := key.fault(value):
        raise InputError(f"{where}: {text!r} {fault}")
    return stated_by_user(value, key, f"{where} = {text}")


def stated_by_user(si: float, key: Key, at: str) -> Quantity:
    """A number that a user states [SI], in the unit that people read it in."""
    return Quantity(key.shown(si), key.shown_in, "assumed", "user", at)


def _check_fields(fields: Mapping[str, Any], where: str) -> None:
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


def _range(entry: Mapping[str, Any], where: str) -> tuple[float, float]:
    is_explained = entry.get("note") or entry["kind"] not in _UNCERTAIN
    if not is_explained or "range" not in entry:
        raise InputError(
            f"{where}: an {entry['kind']} number needs a note and a range = [low, high]"
        )
    bounds = entry["range"]
    is_pair = isinstance(bounds, list) and len(bounds) == 2
    is_finite = is_pair and all(map(_is_number, bounds)) and all(map(math.isfinite, bounds))
    if not is_finite or not bounds[0] <= entry["value"] <= bounds[1]:
        raise InputError(
            f"{where}: range {bounds!r} must be [low, high] around the value {entry['value']}"
        )
    return float(bounds[0]), float(bounds[1])


def _quantiles(stated: object, where: str) -> tuple[float, float, float]:
    if not isinstance(stated, list) or len(stated) != 3 or not all(map(_is_number, stated)):
        raise InputError(f"{where}: quantiles {stated!r} must be [p10, p50, p90]")
    low, middle, high = map(float, stated)
    if not 0 < low < middle < high < math.inf:
        raise InputError(
            f"{where}: quantiles {stated!r} must be positive and grow from p10 to p90"
        )
    return low, middle, high


def numbers_of(
    entries: Mapping[str, Any], keys: Mapping[str, Key], where: str
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

"""Read the numbers of a specification: from TOML, checked against the schema, every one with its source."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.quantity import KINDS as ORIGINS
from nearkv.hardware.quantity import LARGEST, SMALLEST, Quantity, unit_of
from nearkv.hardware.schema import KINDS, Key

_REQUIRED = {"value", "unit", "kind", "source", "at"}
_ALLOWED = _REQUIRED | {"note", "range"}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: unreadable, too large to be a specification, or not TOML.
    """
    try:
        if path.stat().st_size > 1 << 20:
            raise InputError(f"{path}: larger than 1 MiB, which no {what} file is; check the path")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as problem:  # also what is no TOML, no UTF-8, or a number of 5,000 digits
        raise InputError(f"{path}: not a valid TOML file ({problem}); correct it there") from None
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be read ({problem.strerror}); check the path and its permissions"
        ) from None


@cache
def sources() -> dict[str, dict[str, Any]]:
    """Every cited paper and datasheet, by key."""
    return read_toml(Path(__file__).parent / "sources.toml", "sources")


def quantity(entry: object, key: Key, where: str) -> Quantity:
    """Check one number of a specification.

    Args:
        entry: the inline table as TOML reads it.
        key: what the schema says of it.
        where: file and key, put in front of every error.

    Raises:
        InputError: a field is missing or unknown, the number is not finite or negative, the unit
            does not fit, the source is not in sources.toml, an assumption lacks note or range.
    """
    if not isinstance(entry, dict):
        raise InputError(f"{where}: must be {{ value, unit, kind, source, at }}, not {entry!r}")
    missing = sorted(_REQUIRED - entry.keys())
    if missing:
        raise InputError(
            f"{where}: has no {', '.join(missing)}; every number needs {', '.join(sorted(_REQUIRED))}"
        )
    for extra in entry.keys() - _ALLOWED:
        raise unknown("field", extra, _ALLOWED, where)
    value, unit, kind, source = entry["value"], entry["unit"], entry["kind"], entry["source"]
    if not _plain(value) or not (value == 0 or SMALLEST <= value <= LARGEST):
        raise InputError(
            f"{where}: value must be zero or a finite number from {SMALLEST:g} to {LARGEST:g}"
        )
    if kind not in ORIGINS:
        raise unknown("kind", str(kind), ORIGINS, where)
    if str(source) not in sources():
        raise unknown("source", str(source), sources(), f"{where}: (sources.toml)")
    if not isinstance(entry["at"], str) or not entry["at"]:
        raise InputError(f'{where}: at must say where in the source, such as "Table 1"')
    dimension, size = _unit(unit, where)
    if dimension != unit_of(key.unit)[0]:
        raise InputError(f"{where}: unit {unit!r} does not measure this; it needs {key.unit!r}")
    if fault := key.fault(value * size):
        raise InputError(f"{where}: value {value!r} {fault}")
    low, high = _range(entry, where) if kind in ("assumed", "fitted") else (None, None)
    note = str(entry.get("note", ""))
    return Quantity(float(value), str(unit), kind, str(source), str(entry["at"]), note, low, high)


def _plain(value: object) -> bool:
    """Whether TOML read a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unit(unit: object, where: str) -> tuple[str, float]:
    try:
        return unit_of(str(unit))
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None


def _range(entry: Mapping[str, Any], where: str) -> tuple[float, float]:
    if not entry.get("note") or "range" not in entry:
        raise InputError(
            f"{where}: an {entry['kind']} number needs a note and a range = [low, high]"
        )
    bounds = entry["range"]
    numeric = (
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(_plain(b) and math.isfinite(b) for b in bounds)
    )
    if not numeric or not bounds[0] <= entry["value"] <= bounds[1]:
        raise InputError(
            f"{where}: range {bounds!r} must be [low, high] around the value {entry['value']}"
        )
    return float(bounds[0]), float(bounds[1])


def numbers_of(
    entries: Mapping[str, Any], keys: Mapping[str, Key], where: str
) -> dict[str, Quantity]:
    """Check all numbers of a table.

    Raises:
        InputError: a key the schema does not know, or a number that fails `quantity`.
    """
    for name in entries:
        if name not in keys:
            raise unknown("key", name, keys, where)
    return {
        name: quantity(entry, keys[name], f"{where}: {name}") for name, entry in entries.items()
    }


def check_complete(numbers: Iterable[str], kind: str, where: str) -> None:
    """Refuse a part that lacks a number its kind must have.

    Raises:
        InputError: naming every number that is missing.
    """
    lacking = [
        name for name, key in KINDS[kind].items() if not key.optional and name not in set(numbers)
    ]
    if lacking:
        raise InputError(f"{where}: a {kind} needs {', '.join(lacking)}")

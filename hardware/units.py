"""Units: value + unit -> SI, read from the texts of sources and users."""

import math
import re
from functools import cache

from nearkv.hardware.errors import InputError, unknown

SMALLEST, LARGEST = 1e-30, 1e30
"""Bounds of every number of a part in its unit; products of a few of them stay finite."""

# Base symbol -> (dimension, size in the base unit of that dimension).
_UNIT_BASES = {
    "B": ("B", 1.0),
    "bit": ("B", 0.125),
    "b": ("B", 0.125),
    "FLOP": ("FLOP", 1.0),
    "OP": ("FLOP", 1.0),
    "MAC": ("FLOP", 2.0),
    "W": ("W", 1.0),
    "J": ("J", 1.0),
    "Wh": ("J", 3600.0),
    "s": ("s", 1.0),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "USD": ("USD", 1.0),
    "Hz": ("1/s", 1.0),
    "T": ("T", 1.0),
    "m2": ("m2", 1.0),
    "1": ("1", 1.0),
    "%": ("1", 0.01),
}
_PREFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
# mm2 is a square millimetre, not a milli-square-metre, so these are not split into prefix and base.
_UNSPLIT = {"mm2": ("m2", 1e-6), "um2": ("m2", 1e-12)}
_UNIT_EXAMPLES = (*_UNIT_BASES, "GB", "GiB", "GB/s", "Gb/s", "TFLOP/s", "ms", "us")
_PER_SECOND = re.compile(r"([bB])ps$")
"""Units in which networks write rates: Gbps is Gb/s, an eighth of GBps."""
_NUMBER = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?nan|[+-]?inf(?:inity)?)\s*(\S.*)?",
    re.IGNORECASE | re.ASCII,
)
_SAMPLES = {
    "bit": "16bit",
    "B": "512GiB",
    "B/s": "3.2GB/s",
    "FLOP/s": "312TFLOP/s",
    "s": "50us",
    "W": "300W",
    "USD": "2400USD",
    "1": "0.7",
}
"""Unit or dimension -> a well-formed number of it."""


def unit_of(text: str, where: str = "") -> tuple[str, float]:
    """Read a unit such as `GB/s`, `TFLOP/s`, `ms` or `USD/GB`.

    Args:
        text: the unit.
        where: what it is for, put in front of errors.

    Returns:
        Its dimension (`B/s`) and its size in SI base units (1e9).

    Raises:
        InputError: an unknown unit.
    """
    above, slash, below = _PER_SECOND.sub(r"\1/s", text.strip()).partition("/")
    upper, lower = _atom(above), _atom(below) if slash else ("", 1.0)
    if upper is None or lower is None:
        if text.lower().endswith(("b/s", "bps")):
            prefix = f"{where}: " if where else ""
            advice = "GB/s counts bytes, Gb/s and Gbps count bits; write which it is"
            raise InputError(f"{prefix}unknown unit {text!r}; {advice}")
        raise unknown("unit", text, _UNIT_EXAMPLES, where)
    (dimension, size), (divisor, divisor_size) = upper, lower
    return f"{dimension}{slash}{divisor}", size / divisor_size


@cache
def _atom(symbol: str) -> tuple[str, float] | None:
    """Dimension and size of a unit without a slash; None where it is unknown."""
    if symbol in _UNSPLIT:
        return _UNSPLIT[symbol]
    # the longest base first: "min" is minutes, not milli-"in"; pure numbers take no prefix
    for base in sorted(_UNIT_BASES, key=len, reverse=True):
        prefix = symbol.removesuffix(base)
        takes_prefix = base not in "1%" or not prefix
        if symbol.endswith(base) and prefix in _PREFIXES and takes_prefix:
            dimension, size = _UNIT_BASES[base]
            return dimension, size * _PREFIXES[prefix]
    return None


def parse(text: str, unit: str, where: str) -> float:
    """Read what a user wrote for a number whose unit is known: `512GiB`, `3.2 GB/s`, `0.7`.

    Args:
        text: the number and, unless it is a pure number or a count, its unit.
        unit: the unit it must be convertible to, such as `B/s`.
        where: what the number is for, used in errors.

    Returns:
        The value in SI base units.

    Raises:
        InputError: not a number, not finite, negative, or of another dimension.
    """
    value, dimension = measure(text, where, example(unit))
    check_dimension(text, dimension, unit, where)
    return value


def measure(text: str, where: str, sample: str = "0.7 or 3.2GB/s") -> tuple[float, str]:
    """Read a number with or without a unit.

    Args:
        text: the number and its unit.
        where: what the number is for, used in errors.
        sample: how such a number is written, used in errors.

    Returns:
        The value in SI base units, and its dimension: `B/s`, or `1` of a number without a unit.

    Raises:
        InputError: not a number, not finite, negative, or of an unknown unit.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: {text!r} is not a number; write it like {sample}")
    number = float(match[1])
    if not math.isfinite(number) or number < 0:
        raise InputError(f"{where}: {text!r} must be a finite number, zero or more")
    if number and not SMALLEST <= number <= LARGEST:
        raise InputError(
            f"{where}: {text!r} is beyond any machine; "
            f"use a number from {SMALLEST:g} to {LARGEST:g}"
        )
    written = (match[2] or "").strip()
    if not written:
        return number, "1"
    dimension, size = unit_of(written, where)
    return number * size, dimension


def check_dimension(text: str, dimension: str, unit: str, where: str) -> None:
    """Refuse a number that does not measure what a unit measures.

    Raises:
        InputError: it has another dimension, or no unit where it needs one.
    """
    required, _ = unit_of(unit)
    if dimension == required:
        return
    if dimension == "1":
        raise InputError(f"{where}: {text!r} has no unit; write it like {example(unit)}")
    raise InputError(
        f"{where}: {text!r} does not measure this; it needs {unit!r}, as in {example(unit)}"
    )


def example(unit: str) -> str:
    """A well-formed number of a unit, or else of its dimension, for error messages."""
    dimension, _ = unit_of(unit)
    return _SAMPLES.get(unit) or _SAMPLES.get(dimension, f"2{unit}")

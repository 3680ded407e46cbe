"""Read numbers as people write them: `64k`, `8k:128k:x2`, `3.0GB/s,3.5GB/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nearkv.hardware.errors import InputError
from nearkv.hardware.schema import Key
from nearkv.hardware.units import parse

_SIZE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([kKmM]?)\s*", re.A)
_SUFFIX = {"": 1, "k": 2**10, "m": 2**20}
MOST_VALUES = 1 << 21
"""More values than this on one axis are a mistake."""


@dataclass(frozen=True)
class Reader:
    """How one kind of number is read, and which values are admitted; ranges are held to both.

    Attributes:
        read: (text, where) -> value.
        fault: what is wrong with a value, empty where nothing is.
    """

    read: Callable[[str, str], float]
    fault: Callable[[float], str]

    def __call__(self, text: str, where: str) -> float:
        """Read one value.

        Raises:
            InputError: not a number, or one that is not admitted.
        """
        value = self.read(text, where)
        if fault := self.fault(value):
            raise InputError(f"{where}: {text!r} {fault}")
        return value


def _size(text: str, where: str) -> float:
    match = _SIZE.fullmatch(text)
    return float(match[1]) * _SUFFIX[match[2].lower()] if match else math.nan


def _size_fault(value: float) -> str:
    whole = 1 <= value <= 2**53 and value == int(value)
    return "" if whole else "must be a whole number, 1 or more, such as 16, 64k or 1M"


size = Reader(_size, _size_fault)
"""Reads a count of tokens or sequences: `4096`, `64k` (65,536), `1M` (1,048,576)."""


def number(key: Key) -> Reader:
    """A reader of one number of a part, in SI."""
    return Reader(lambda text, where: parse(text, key.unit, where), key.fault)


def comma_list(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    names = (name.strip() for name in text.split(","))
    return tuple(name for name in names if name)


def pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """Read `NAME=VALUE` options.

    Raises:
        InputError: one has no name or no value, or a name comes twice.
    """
    values_by_name: dict[str, str] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name or not value:
            raise InputError(f"{option} {item!r}: write it as NAME=VALUE")
        if name in values_by_name:
            together = f"{name}={values_by_name[name]},{value}"
            raise InputError(
                f"{option} {name}: given twice; give all values at once: {together}"
            )
        values_by_name[name] = value
    return values_by_name


def values(text: str, read: Reader, where: str) -> list[float]:
    """Read the different values of an axis, as `repeatable` reads them.

    Raises:
        InputError: as there, or a value that comes twice.
    """
    numbers = repeatable(text, read, where)
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{where}: {text!r} gives a value twice; give every value once")
    return numbers


def repeatable(text: str, read: Reader, where: str) -> list[float]:
    """Read a comma-separated list of values and ranges; a value may come more than once.

    A range is `low:high:xFACTOR` or `low:high:+STEP`.

    Raises:
        InputError: an empty item, a value that `read` refuses, or a range that never ends.
    """
    numbers: list[float] = []
    for item in text.split(","):
        if not item.strip():
            raise InputError(
                f"{where}: {text!r} has an empty item; write 4,8,16 or 8k:128k:x2"
            )
        numbers += _range(item, read, where) if ":" in item else [read(item, where)]
    return numbers


def _range(item: str, read: Reader, where: str) -> list[float]:
    """The values of one range."""
    bounds = item.split(":")
    if len(bounds) != 3 or bounds[2][:1] not in ("x", "+"):
        form = "low:high:xFACTOR or low:high:+STEP, as in 8k:128k:x2"
        raise InputError(f"{where}: range {item!r} must be {form}")
    low = read(bounds[0], where)
    high = read(bounds[1], where)
    rule = bounds[2]
    where = f"{where}: range {item!r}"
    if high < low:
        raise InputError(f"{where} ends below its start; write the lower end first")
    if rule.startswith("x"):
        factor = parse(rule[1:], "1", where)
        numbers = _geometric(low, high, factor, where)
    else:
        step = read.read(rule[1:], where)
        numbers = _arithmetic(low, high, step, where)
    for value in numbers:
        if fault := read.fault(value):
            raise InputError(f"{where} gives {value:g}, which {fault}")
    return numbers


def _geometric(low: float, high: float, factor: float, where: str) -> list[float]:
    if low <= 0:
        raise InputError(f"{where} never leaves 0; begin above it, or use a step")
    if not factor > 1:
        raise InputError(f"{where} never reaches its end; use a factor above 1")
    steps = math.log(high / low) / math.log(factor)
    return [low * factor**step for step in _steps(steps, where)]


def _arithmetic(low: float, high: float, step: float, where: str) -> list[float]:
    if not step > 0:
        raise InputError(f"{where} never reaches its end; use a step above 0")
    steps = (high - low) / step
    return [low + step * i for i in _steps(steps, where)]


def _steps(steps: float, where: str) -> range:
    """Every step of a range, the last one included where rounding alone misses it."""
    if steps > MOST_VALUES:
        limit = f"at most {MOST_VALUES:,} fit on an axis"
        raise InputError(f"{where} has about {steps:.3g} values; {limit}")
    last = math.floor(steps * (1 + 1e-12) + 1e-9)
    return range(last + 1)

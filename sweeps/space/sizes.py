"""Read numbers as people write them: `64k`, `8k:128k:x2`, `3.0GB/s,3.5GB/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from nearkv.hardware.errors import InputError
from nearkv.hardware.quantity import parse
from nearkv.hardware.schema import Key

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
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([kKmM]?)\s*", text, re.A)
    return float(match[1]) * _SUFFIX[match[2].lower()] if match else math.nan


def _size_fault(value: float) -> str:
    whole = 1 <= value <= 2**53 and value == int(value)
    return "" if whole else "must be a whole number, 1 or more, such as 16, 64k or 1M"


size = Reader(_size, _size_fault)
"""Reads a count of tokens or sequences: `4096`, `64k` (65,536), `1M` (1,048,576)."""


def number(key: Key) -> Reader:
    """A reader of one number of a part, in SI."""
    return Reader(lambda text, where: parse(text, key.unit, where), key.fault)


def values(text: str, read: Reader, where: str) -> list[float]:
    """Read a list: items apart by commas, each a value or a range `low:high:xFACTOR` or `low:high:+STEP`.

    Raises:
        InputError: an empty item, a value that `read` refuses, or a range that never ends.
    """
    found: list[float] = []
    for item in text.split(","):
        if not item.strip():
            raise InputError(f"{where}: {text!r} has an empty item; write 4,8,16 or 8k:128k:x2")
        found += _range(item, read, where) if ":" in item else [read(item, where)]
    if len(set(found)) < len(found):
        raise InputError(f"{where}: {text!r} gives a value twice; give every value once")
    return found


def _range(item: str, read: Reader, where: str) -> list[float]:
    bounds = item.split(":")
    if len(bounds) != 3 or bounds[2][:1] not in ("x", "+"):
        raise InputError(
            f"{where}: range {item!r} must be low:high:xFACTOR or low:high:+STEP, as in 8k:128k:x2"
        )
    low, high, rule = read(bounds[0], where), read(bounds[1], where), bounds[2]
    by = parse(rule[1:], "1", where) if rule[0] == "x" else read.read(rule[1:], where)
    if high < low or not by > (1 if rule[0] == "x" else 0) or (rule[0] == "x" and low <= 0):
        raise InputError(
            f"{where}: range {item!r} never reaches its end; use a factor above 1 or a step above 0"
        )
    steps = math.log(high / low) / math.log(by) if rule[0] == "x" else (high - low) / by
    if steps > MOST_VALUES:
        raise InputError(
            f"{where}: range {item!r} has about {steps:.3g} values; at most {MOST_VALUES:,} fit on an axis"
        )
    count = math.floor(steps * (1 + 1e-12) + 1e-9) + 1
    found = [low * by**i if rule[0] == "x" else low + by * i for i in range(count)]
    for value in found:
        if fault := read.fault(value):
            raise InputError(f"{where}: range {item!r} gives {value:g}, which {fault}")
    return found

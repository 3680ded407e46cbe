"""Read numbers as people write them: `64k`, `8k:128k:x2`, `3.0GB/s,3.5GB/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from hardware.errors import InputError
from hardware.quantity import parse
from hardware.schema import Key

_SUFFIX = {"": 1, "k": 2**10, "m": 2**20}
MOST_VALUES = 1 << 21
"""More values than this on one axis are a mistake."""


def size(text: str, where: str) -> float:
    """Read a count of tokens or sequences: `4096`, `64k` (65,536), `1M` (1,048,576).

    Raises:
        InputError: not a whole number of at least 1.
    """
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([kKmM]?)\s*", text)
    value = float(match[1]) * _SUFFIX[match[2].lower()] if match else math.nan
    if not 1 <= value <= 2**53 or value != int(value):
        raise InputError(f"{where}: {text!r} must be a whole number, 1 or more, such as 16, 64k or 1M")
    return value


def number(key: Key) -> Callable[[str, str], float]:
    """A reader of one number of a part, in SI."""

    def read(text: str, where: str) -> float:
        value = parse(text, key.unit, where)
        if key.whole and value != int(value):
            raise InputError(f"{where}: {text!r} must be a whole number")
        if not value and not key.may_be_zero:
            raise InputError(f"{where}: {text!r} must be more than zero")
        return value

    return read


def values(text: str, read: Callable[[str, str], float], where: str) -> list[float]:
    """Read a list: items apart by commas, each a value or a range `low:high:xFACTOR` or `low:high:+STEP`.

    Raises:
        InputError: an empty item, a value that `read` refuses, or a range that never ends.
    """
    found: list[float] = []
    for item in text.split(","):
        if not item.strip():
            raise InputError(f"{where}: {text!r} has an empty item; write 4,8,16 or 8k:128k:x2")
        found += _range(item, read, where) if ":" in item else [read(item, where)]
    return found


def _range(item: str, read: Callable[[str, str], float], where: str) -> list[float]:
    bounds = item.split(":")
    if len(bounds) != 3 or bounds[2][:1] not in ("x", "+"):
        raise InputError(f"{where}: range {item!r} must be low:high:xFACTOR or low:high:+STEP, as in 8k:128k:x2")
    low, high, rule = read(bounds[0], where), read(bounds[1], where), bounds[2]
    by = parse(rule[1:], "1", where) if rule[0] == "x" else read(rule[1:], where)
    if high < low or (by <= 1 if rule[0] == "x" else by <= 0) or (rule[0] == "x" and low <= 0):
        raise InputError(f"{where}: range {item!r} never reaches its end; use a factor above 1 or a step above 0")
    steps = math.log(high / low) / math.log(by) if rule[0] == "x" else (high - low) / by
    if steps > MOST_VALUES:
        raise InputError(
            f"{where}: range {item!r} has about {steps:.3g} values; at most {MOST_VALUES:,} fit on an axis"
        )
    count = math.floor(steps * (1 + 1e-12) + 1e-9) + 1
    return [low * by**i if rule[0] == "x" else low + by * i for i in range(count)]

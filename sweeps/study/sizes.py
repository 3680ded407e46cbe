"""Read numbers and names as people give them: `64k`, `8k:128k:x2`, `3.0GB/s,3.5GB/s`, `[4, 8]`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

from nearkv.hardware.errors import InputError
from nearkv.hardware.schema import Key
from nearkv.hardware.units import check_dimension, measure, parse

RawValues = Any
"""Text as on the command line, a number, a path, or an iterable of these."""
Floats = tuple[float, ...]
"""Counts of tokens or sequences."""

_SIZE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([kKmM]?)\s*", re.A)
_SUFFIX = {"": 1, "k": 2**10, "m": 2**20}
_STARTS_NUMBER = re.compile(r"[+-]?\.?\d")
MOST_VALUES = 1 << 21
"""More values than this on one axis are a mistake."""


@dataclass(frozen=True)
class Amount:
    """A number of hardware, or of a knob.

    Attributes:
        si: its value in SI base units.
        dimension: what it measures, as `B/s`; `1` without a unit.
        text: as a user wrote it, for errors.
    """

    si: float
    dimension: str
    text: str = field(compare=False)


KnobValue = Amount | str
"""A value of a knob: a number, or the name of a value, of a rule, or `auto`."""


@dataclass(frozen=True)
class Reader:
    """Reader of one type of number, and which values are admitted; ranges are held to both.

    Attributes:
        read: (text, where) -> value.
        fault: what is wrong with a value, empty where nothing is.
    """

    read: Callable[[str, str], float]
    fault: Callable[[float], str]

    def __call__(self, text: str | float, where: str) -> float:
        """Read one value.

        Raises:
            InputError: not a number, or one that is not admitted.
        """
        value = self.read(text, where) if isinstance(text, str) else float(text)
        if fault := self.fault(value):
            raise InputError(f"{where}: {text!r} {fault}")
        return value


def _size(text: str, where: str) -> float:
    match = _SIZE.fullmatch(text)
    return float(match[1]) * _SUFFIX[match[2].lower()] if match else math.nan


def _size_fault(value: float, least: int = 1) -> str:
    whole = least <= value <= 2**53 and value == int(value)
    advice = f"must be a whole number, {least} or more, such as 16, 64k or 1M"
    return "" if whole else advice


size = Reader(_size, _size_fault)
"""Reads a count of tokens or sequences: `4096`, `64k` (65,536), `1M` (1,048,576)."""
size_or_none = Reader(_size, partial(_size_fault, least=0))
"""Reads a count that may be 0, as of the tokens of a prompt where the cache is empty."""


def _without_unit(text: str, where: str) -> float:
    value, dimension = measure(text, where, "0.5")
    if dimension != "1":
        raise InputError(f"{where}: {text!r} has a unit; leave it out, as in 0.5")
    return value


per_second = Reader(
    _without_unit,
    lambda value: (
        "" if 0 < value < math.inf else "must be a number above zero, such as 0.5"
    ),
)
"""Reads a rate, in requests a second, or a limit, in the unit of its column."""
_ANY = Reader(lambda text, where: measure(text, where)[0], lambda value: "")


def number(key: Key) -> Reader:
    """A reader of one number of a part, in SI."""
    return Reader(lambda text, where: parse(text, key.unit, where), key.fault)


def comma_list(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    stripped = map(str.strip, text.split(","))
    return tuple(filter(None, stripped))


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


def items(values: RawValues, where: str) -> Iterator[Any]:
    """Each value of a list, whether its items are separated by commas or come one by one.

    Raises:
        InputError: an empty item, or something that is neither text, number, path nor list.
    """
    if isinstance(values, str):
        for item in values.split(","):
            if not item.strip():
                form = "write 4,8,16 or 8k:128k:x2"
                raise InputError(f"{where}: {values!r} has an empty item; {form}")
            yield item.strip()
    elif isinstance(values, os.PathLike):
        yield os.fspath(values)
    elif isinstance(values, bool | bytes | Mapping):
        raise InputError(f"{where}={values!r}: {_FORMS}")
    elif isinstance(values, Amount):
        yield values
    elif isinstance(values, Real):
        yield _plain(values, where)
    elif _is_list(values):
        for value in values:
            yield from items(value, where)
    else:
        raise InputError(f"{where}={values!r}: {_FORMS}")


_FORMS = "give text, a number, a path, or a list of these"


def _plain(value: Real, where: str) -> float:
    """A number of any type as one of Python's own."""
    try:
        number = float(value)
    except OverflowError:
        problem = "is too large; give a number below 1e308"
        raise InputError(f"{where}={value!r}: {problem}") from None
    return value if isinstance(value, int) else number


def _is_list(values: object) -> bool:
    """True if values come one by one; NumPy's arrays of no dimension only claim to."""
    return isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0


def names(values: RawValues, where: str, kind: type[Any] = str) -> tuple[Any, ...]:
    """Names, or objects of a type that were read before.

    Args:
        values: one or several; a text may hold several, comma-separated.
        where: what they are for, used in errors.
        kind: of objects that stand for themselves.

    Raises:
        InputError: something that is no name.
    """
    if isinstance(values, str):
        return comma_list(values)
    if isinstance(values, kind):
        return (values,)
    if isinstance(values, os.PathLike):
        return (os.fspath(values),)
    if _is_list(values) and not isinstance(values, bytes | Mapping):
        several: list[Any] = []
        for value in values:
            several += names(value, where, kind)
        return tuple(several)
    raise InputError(f"{where}={values!r}: give a name or a path, or a list of these")


def values(raw: RawValues, read: Reader, where: str, different: bool = True) -> list[float]:
    """Read a list of values and ranges.

    A range is `low:high:xFACTOR` or `low:high:+STEP`.

    Args:
        raw: one or several.
        read: reads one.
        where: what they are for, used in errors.
        different: whether no value may come twice.

    Raises:
        InputError: an empty item, a value that `read` refuses or that comes twice, or a range that
            never ends.
    """
    numbers: list[float] = []
    for item in items(raw, where):
        is_range = isinstance(item, str) and ":" in item
        numbers += _range(item, read, where) if is_range else [read(item, where)]
    _check_values(numbers, raw, where, different)
    return numbers


def choices(raw: RawValues, where: str, different: bool = True) -> tuple[KnobValue, ...]:
    """Read values of a hardware number or of a knob: numbers, ranges of them, and names.

    Args:
        raw: one or several.
        where: what they are for, used in errors.
        different: whether no value may come twice.

    Raises:
        InputError: no value, one that cannot be read or comes twice, or a range of two dimensions.
    """
    read: list[KnobValue] = []
    for item in items(raw, where):
        if isinstance(item, Amount):
            read.append(item)
        elif not isinstance(item, str):
            if not math.isfinite(item) or item < 0:
                problem = "must be a finite number, zero or more"
                raise InputError(f"{where}: {item!r} {problem}")
            read.append(Amount(float(item), "1", f"{item:.15g}"))
        elif ":" in item:
            bounds = item.split(":")[:2]
            dimension = measure(bounds[0], where)[1]
            if measure(bounds[1], where)[1] != dimension:
                form = "give both ends the same unit"
                raise InputError(f"{where}: range {item!r} has two units; {form}")
            steps = _range(item, _ANY, where)
            read += [Amount(value, dimension, f"{value:.15g}") for value in steps]
        elif _STARTS_NUMBER.match(item):
            read.append(_amount(item, where))
        else:
            read.append(item)
    _check_values(read, raw, where, different)
    return tuple(read)


def _amount(text: str, where: str) -> Amount:
    """A number with its unit, or a count written as a context is: 64k."""
    count = _SIZE.fullmatch(text)
    if count and count[2] and float(count[1]) >= 0:
        return Amount(float(count[1]) * _SUFFIX[count[2].lower()], "1", text)
    return Amount(*measure(text, where), text)


def in_si(amounts: Iterable[KnobValue], key: Key, where: str) -> list[float]:
    """Values of a hardware number in SI, checked against its schema.

    Raises:
        InputError: a name, another dimension, or a value that the number cannot have.
    """
    numbers = []
    for amount in amounts:
        if isinstance(amount, str):
            numbers.append(parse(amount, key.unit, where))
            continue
        check_dimension(amount.text, amount.dimension, key.unit, where)
        if fault := key.fault(amount.si):
            raise InputError(f"{where}: {amount.text!r} {fault}")
        numbers.append(amount.si)
    return numbers


def _check_values(
    read: Sequence[object], raw: RawValues, where: str, different: bool
) -> None:
    if not read:
        raise InputError(f"{where} has no value; give one, or leave it out")
    if different and len(set(read)) < len(read):
        raise InputError(f"{where}: {raw!r} gives a value twice; give every value once")


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

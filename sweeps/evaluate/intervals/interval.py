"""An array as what its numbers lie between; the rules are in the modules beside this one.

An `Interval` stands for an array in the formulas of a system. Each operation of NumPy has a rule
that gives the ends of its answer from those of its operands. IEEE 754 rounds `+ - * /` and
`sqrt` to the nearest number, which never swaps the order of two answers, so the rounded operation
on the ends encloses the rounded operation on everything between: the formulas are the same,
operation by operation, and no margin is needed. Functions that are not rounded to the nearest
number (`power`, `exp`, `log`) are widened by more than NumPy's largest error.

An operation without a rule raises `NoBoundError`, as does whatever would take a value past the
rules (`float(x)`, an index made of it). An ordinary array among intervals is a number that is
the same in the whole box.

Blank (NaN) values are no part of an interval; `blank` says where there may be any. An interval
without any number has its ends the wrong way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

Array = NDArray[Any]
Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}
"""By function of NumPy: from its arguments, intervals among them, to its answer."""


class NoBoundError(TypeError):
    """Nothing is known of a value over a box."""


@dataclass
class Outcomes:
    """How a condition comes out for Python where it holds in a part of the boxes only.

    Attributes:
        first: of the first conditions; True after that.
        all: of all that were looked at, in order.
    """

    first: tuple[bool, ...] = ()
    all: list[bool] = field(default_factory=list)

    def next(self) -> bool:
        """One more outcome."""
        place = len(self.all)
        outcome = self.first[place] if place < len(self.first) else True
        self.all.append(outcome)
        return outcome


def refused(*_: object, **__: object) -> Any:
    """Give up: what comes is not between known ends.

    Raises:
        NoBoundError: always.
    """
    raise NoBoundError("a value would leave its interval")


def _method(name: str) -> Callable[..., Any]:
    """A method of arrays, by the rule of the function of that name."""

    def method(self: Interval, *arguments: Any, **options: Any) -> Any:
        return RULES[getattr(np, name)](self, *arguments, **options)

    return method


class Interval(NDArrayOperatorsMixin):
    """What an array lies between.

    Attributes:
        low, high: its ends, of one shape; of conditions, whether they hold surely and perhaps.
        blank: where it may be NaN.
        outcomes: how a condition comes out where Python looks at it.
    """

    def __init__(self, low: Array, high: Array, blank: Any, outcomes: Outcomes) -> None:
        self.low, self.high = np.broadcast_arrays(low, high)
        self.blank = blank
        self.outcomes = outcomes

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            refused()
        if any(getattr(type(one), "__array_ufunc__", True) is None for one in inputs):
            return NotImplemented
        return _rule(ufunc)(*inputs)

    def __array_function__(
        self, function: Any, _: Any, arguments: Any, options: Any
    ) -> Any:
        if function in (np.shape, np.size, np.ndim):
            return function(self.low)
        return _rule(function)(*arguments, **options)

    def __bool__(self) -> bool:
        if self.low.size != 1:
            refused()
        if self.low == self.high:
            return bool(self.low)
        return self.outcomes.next()

    def __getitem__(self, key: Any) -> Any:
        if any(intervals_in(key)):
            refused()
        return by_part(lambda array: array[key])(self)

    def astype(self, kind: Any) -> Any:
        """The same as numbers of another type; what lies behind the point is dropped."""
        if np.dtype(kind) == bool:
            return np.not_equal(self, 0)
        are_finite = np.isfinite(self.low) & np.isfinite(self.high)
        if not np.all(are_finite):
            refused()
        return by_part(lambda array: array.astype(kind))(self)

    def reshape(self, *shape: Any) -> Any:
        """The same in another shape."""
        return by_part(lambda array: array.reshape(*shape))(self)

    __array__ = __float__ = __int__ = __index__ = __iter__ = __len__ = refused
    __setitem__ = refused
    __hash__ = object.__hash__
    all, any, copy, max, min, ravel, sum = map(
        _method, ("all", "any", "copy", "max", "min", "ravel", "sum")
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent along each axis."""
        return self.low.shape

    @property
    def size(self) -> int:
        """How many numbers."""
        return self.low.size

    @property
    def ndim(self) -> int:
        """How many axes."""
        return self.low.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its numbers."""
        kind: np.dtype[Any] = self.low.dtype
        return kind

    @property
    def ends(self) -> tuple[float, float]:
        """A glimpse of the first and the last number, which are not known."""
        return np.nan, np.nan

    @cached_property
    def is_positive(self) -> bool:
        """Whether no number is 0 or below."""
        least = np.minimum(self.low, self.high)
        return bool(np.all(least > 0))

    @cached_property
    def is_nonnegative(self) -> bool:
        """Whether no number is below 0."""
        least = np.minimum(self.low, self.high)
        return bool(np.all(least >= 0))


def intervals_in(arguments: Any) -> Iterator[Interval]:
    """All intervals in nested tuples, lists and dictionaries."""
    if isinstance(arguments, Interval):
        yield arguments
    elif isinstance(arguments, tuple | list):
        for item in arguments:
            yield from intervals_in(item)
    elif isinstance(arguments, dict):
        yield from intervals_in(tuple(arguments.values()))


def _rule(function: Any) -> Rule:
    if function not in RULES:
        raise NoBoundError(f"no rule for {function}")
    return RULES[function]


def interval_of(number: Any, outcomes: Outcomes) -> Interval:
    """A number as an interval: itself where it is one, else from the number to the number."""
    if isinstance(number, Interval):
        return number
    array = np.asarray(number)
    if array.dtype.kind != "f" or not np.isnan(array).any():
        return Interval(array, array, False, outcomes)
    blank = np.isnan(array)
    low = np.where(blank, np.inf, array)
    high = np.where(blank, -np.inf, array)
    return Interval(low, high, blank, outcomes)


def by_part(function: Any) -> Rule:
    """The rule of a function that moves numbers and computes none: ends and blanks each alone."""

    def rule(*arguments: Any, **options: Any) -> Any:
        outcomes = next(intervals_in(arguments)).outcomes

        def answer(part: Callable[[Interval], Array]) -> Any:
            return function(*_parts(arguments, part, outcomes), **options)

        low = answer(lambda interval: interval.low)
        high = answer(lambda interval: interval.high)
        blank = answer(lambda interval: np.broadcast_to(interval.blank, interval.shape))
        if isinstance(low, tuple | list):
            ends = zip(low, high, blank, strict=True)
            return [plain(*one, outcomes) for one in ends]
        return plain(low, high, blank, outcomes)

    return rule


def _parts(argument: Any, part: Callable[[Interval], Array], outcomes: Outcomes) -> Any:
    """The same structure with a part of each array; shapes and indices stay."""
    if isinstance(argument, Interval | np.ndarray):
        return part(interval_of(argument, outcomes))
    if isinstance(argument, tuple | list):
        return type(argument)(_parts(item, part, outcomes) for item in argument)
    return argument


def plain(low: Array, high: Array, blank: Array, outcomes: Outcomes) -> Any:
    """An interval; an ordinary array of conditions or whole numbers where its ends are one."""
    is_whole = np.asarray(low).dtype.kind in "bi"
    if is_whole and not np.any(blank) and np.array_equal(low, high):
        return low
    return Interval(low, high, blank, outcomes)

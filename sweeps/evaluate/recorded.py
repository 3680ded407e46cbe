"""Arrays that compute as ordinary ones do and tell a recording every operation.

Whatever could take a value past the recording (`float(x)`, `np.asarray(x)`, a loop over an array)
raises `NotRecordableError`, and the caller evaluates as if there were no recording.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

Function = Callable[..., Any]

Leaf = TypeVar("Leaf")


class NotRecordableError(TypeError):
    """A value would leave the record."""


@dataclass(eq=False)
class Value:
    """A number that a step computed, or an input.

    Attributes:
        place: where it is kept while steps are repeated.
        shape, kind: of its array; empty and None where they may differ another time.
        is_new: no other value lies in its memory, which may be written over after its use.
    """

    place: int
    shape: tuple[int, ...] = ()
    kind: np.dtype[Any] | None = None
    is_new: bool = False


class Log(Protocol):
    """What a recording does for its arrays."""

    def call(self, function: Function, *arguments: Any, **options: Any) -> Any:
        """Compute a step and record it."""

    def truth(self, recorded: Recorded) -> bool:
        """Whether a value is true."""

    def glimpse(self, recorded: Recorded) -> Any:
        """The first and the last number."""

    def taken(self, recorded: Recorded) -> Value:
        """What stands for a part of a small array in the record, once it is needed there."""


def with_items(array: NDArray[Any], key: Any, items: Any) -> NDArray[Any]:
    """A copy with some items replaced."""
    copy = np.array(array)
    copy[key] = items
    return copy


def _shape_of(array: NDArray[Any]) -> NDArray[np.intp]:
    """Extents as an array: one value, where a tuple would be several."""
    return np.array(np.shape(array))


def _method(name: str) -> Callable[..., Any]:
    """A method of arrays as one of recorded arrays."""

    def function(array: NDArray[Any], *arguments: Any, **options: Any) -> Any:
        return getattr(array, name)(*arguments, **options)

    def method(self: Recorded, *arguments: Any, **options: Any) -> Any:
        return self.recording.call(function, self, *arguments, **options)

    return method


def _refused(*_: object, **__: object) -> Any:
    raise NotRecordableError("a value would leave the record")


class Recorded(NDArrayOperatorsMixin):
    """An array, or a number, that records what is computed with it.

    Attributes:
        recording: where.
        array: the ordinary array.
        whole: the same over the whole grid, where that is small.
        key: the same object for the same numbers.
    """

    def __init__(
        self, recording: Log, array: Any, value: Value | None, whole: Any = None
    ) -> None:
        self.recording = recording
        self.array = array
        self.whole = whole
        self.key = object()
        self._value = value

    @property
    def value(self) -> Value:
        """What stands for it in the record."""
        if self._value is None:
            self._value = self.recording.taken(self)
        return self._value

    @property
    def varies(self) -> bool:
        """Whether its shape depends on values."""
        return self._value is not None and self._value.kind is None

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> Any:
        if "out" in options:
            _refused()
        if any(getattr(type(one), "__array_ufunc__", True) is None for one in inputs):
            return NotImplemented
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return self.recording.call(function, *inputs, **options)

    def __array_function__(
        self, function: Function, _: Any, arguments: Any, options: Any
    ) -> Any:
        if function in (np.shape, np.size, np.ndim):
            return getattr(self, function.__name__)
        return self.recording.call(function, *arguments, **options)

    def __bool__(self) -> bool:
        return self.recording.truth(self)

    def __getitem__(self, key: Any) -> Any:
        return self.recording.call(operator.getitem, self, key)

    def __setitem__(self, key: Any, items: Any) -> None:
        changed = self.recording.call(with_items, self, key, items)
        self.array, self._value, self.whole = changed.array, changed.value, None
        self.key = changed.key

    __array__ = __float__ = __int__ = __index__ = __iter__ = __len__ = _refused
    __hash__ = object.__hash__
    all, any, astype, copy, max, min, ravel, reshape, sum = map(
        _method, ("all", "any", "astype", "copy", "max", "min", "ravel", "reshape", "sum")
    )

    @property
    def shape(self) -> Any:
        """Its extent along each axis; recorded where that depends on values."""
        if self.varies:
            return self.recording.call(_shape_of, self)
        return np.shape(self.array)

    @property
    def size(self) -> Any:
        """How many numbers; recorded where that depends on values."""
        if self.varies:
            return self.recording.call(np.size, self)
        return np.size(self.array)

    @property
    def ndim(self) -> int:
        """How many axes."""
        return np.ndim(self.array)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its numbers."""
        kind: np.dtype[Any] = self.array.dtype
        return kind

    @property
    def ends(self) -> tuple[Any, Any]:
        """The first and the last number where it was recorded, which are no part of the record."""
        first, last = self.recording.glimpse(self)
        return first, last


def recorded_in(argument: Any) -> Iterator[Recorded]:
    """All recorded arrays in nested tuples, lists and dictionaries."""
    return nested(argument, Recorded)


def nested(argument: Any, kind: type[Leaf]) -> Iterator[Leaf]:
    """All leaves of one kind in nested tuples, lists and dictionaries."""
    if isinstance(argument, kind):
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from nested(item, kind)
    elif isinstance(argument, dict):
        yield from nested(tuple(argument.values()), kind)


def replaced(argument: Any, replacement: Callable[[Recorded], Any]) -> Any:
    """The same structure with something else for each recorded array."""
    kind = type(argument)
    if kind is Recorded:
        return replacement(argument)
    if kind is tuple:
        return tuple([replaced(item, replacement) for item in argument])
    if kind is list:
        return [replaced(item, replacement) for item in argument]
    if kind is dict:
        return {key: replaced(item, replacement) for key, item in argument.items()}
    return argument


def arrays_in(argument: Any) -> Any:
    """The same structure with the ordinary array for each recorded one."""
    return replaced(argument, lambda recorded: recorded.array)


def values_in(argument: Any) -> Any:
    """The same structure with the `Value` for each recorded array."""
    return replaced(argument, lambda recorded: recorded.value)

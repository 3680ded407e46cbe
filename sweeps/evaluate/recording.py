"""What a computation with `Recorded` arrays did, so that it can be repeated on other values.

A system is called once with such arrays. Every operation of NumPy becomes a `Step`; where Python
looks at a value (`if np.any(...)`), it becomes a `Decision`. Steps and decisions are all that the
answer depends on: `nearkv.sweeps.evaluate.replay` repeats them on the values of other design
points, without the Python between them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.recorded import (
    Function,
    NotRecordableError,
    Recorded,
    Value,
    arrays_in,
    nested,
    recorded_in,
    values_in,
    with_items,
)

_KEPT = 1 << 12
"""Numbers of an array up to which a recording keeps it, in case the same is computed again [1]."""
_SMALL = 1 << 12
"""Numbers up to which an array over the whole grid is computed once [1]."""


@dataclass(frozen=True)
class Step:
    """One operation: result = function(*arguments, **options), values among both.

    Attributes:
        result: one value, or several that come together.
    """

    function: Function
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    result: Any

    @cached_property
    def operands(self) -> Mapping[int, Value]:
        """The values among arguments and options, by place."""
        values = nested([self.arguments, self.options], Value)
        return {value.place: value for value in values}

    @property
    def reads(self) -> Set[int]:
        """Places of the values among arguments and options."""
        return self.operands.keys()


@dataclass(frozen=True)
class Decision:
    """Python looked whether a value is true, and it was or was not."""

    value: Value
    outcome: bool


class Part:
    """The part of a grid that is computed.

    Args:
        box: its side along each axis.
    """

    def __init__(self, box: Sequence[slice]) -> None:
        self._box = box
        self._index: dict[tuple[bool, ...], Any] = {}

    def of(self, whole: Any, extended: tuple[bool, ...]) -> Any:
        """This part of an array, which has an extent along some axes and 1 along others."""
        if extended not in self._index:
            sides = zip(self._box, extended, strict=True)
            index = [side if extends else slice(None) for side, extends in sides]
            self._index[extended] = (..., *index)
        return whole[self._index[extended]]


class Recording:
    """Steps and decisions in their order; of what is small, the same is recorded once.

    What depends on few axes is computed once for the whole grid; a step takes the part in use.

    Args:
        part: the design points that are computed.
        axes: how many the grid has.
        glimpses: what was glimpsed in earlier recordings, so that this one goes the same way.
    """

    def __init__(self, part: Part, axes: int, glimpses: dict[object, Any]) -> None:
        self._axes = axes
        self._glimpses = glimpses
        self._trail: object = ()  # all decisions so far and the glimpses since, in short
        self.events: list[Step | Decision] = []
        self.places = 0
        self._part = self._recorded(part, varies=False, is_new=False)
        self._results: dict[object, Recorded] = {}
        self._outcomes: dict[int, bool] = {}
        # kept, so that the identity of each stays its own
        self._constants: list[object] = []

    def input(self, whole: NDArray[Any]) -> Recorded:
        """Values over the whole grid, of which each box takes its part."""
        part = self._part.array.of(whole, self._extended(whole))
        return Recorded(self, part, None, whole)

    def taken(self, recorded: Recorded) -> Value:
        """The part of a small array as a step, which most need not be: others come of them."""
        whole = recorded.whole
        arguments = (self._part, whole, self._extended(whole))
        part = recorded.array
        return self._noted(Part.of, arguments, {}, part, varies=False, is_new=False).value

    def call(self, function: Function, *arguments: Any, **options: Any) -> Any:
        """Compute a step and record it, unless the same was recorded."""
        signature = (function, self._signature(arguments), self._signature(options))
        if signature in self._results:
            return self._results[signature]
        wholes = _small_wholes(function, arguments, options)
        if wholes is not None:
            small = self.input(function(*wholes))
            self._results[signature] = small
            return small
        result: Any = self._computed(function, arguments, options)
        if all(_is_light(recorded.value) for recorded in recorded_in(result)):
            self._results[signature] = result
        return result

    def truth(self, recorded: Recorded) -> bool:
        """Whether a value is true, which is a decision when it is asked for the first time."""
        place = recorded.value.place
        if place not in self._outcomes:
            outcome = bool(recorded.array)
            self._outcomes[place] = outcome
            self._trail = hash((self._trail, outcome))
            self.events.append(Decision(recorded.value, outcome))
        return self._outcomes[place]

    def glimpse(self, recorded: Recorded) -> Any:
        """The first and the last number, as where the same was first recorded."""
        self._trail = hash((self._trail, "glimpse"))
        array = recorded.array
        return self._glimpses.setdefault(self._trail, (array.flat[0], array.flat[-1]))

    def _extended(self, whole: NDArray[Any]) -> tuple[bool, ...]:
        return tuple([extent > 1 for extent in whole.shape[-self._axes :]])

    def _computed(
        self, function: Function, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        answer = function(*arrays_in(arguments), **arrays_in(options))
        operands = [*recorded_in(arguments), *recorded_in(options)]
        varies = _varies(function, operands)
        if not isinstance(answer, tuple | list):
            is_new = isinstance(function, np.ufunc)
            return self._noted(function, arguments, options, answer, varies, is_new)
        whole = self._noted(function, arguments, options, answer, varies=True, is_new=False)
        return tuple(
            self._noted(operator.getitem, (whole, i), {}, item, varies, is_new=False)
            for i, item in enumerate(answer)
        )

    def _noted(
        self,
        function: Function,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        answer: Any,
        varies: bool,
        is_new: bool,
    ) -> Recorded:
        result = self._recorded(answer, varies, is_new)
        if not is_new:
            _share_memory([*recorded_in(arguments), *recorded_in(options)], answer)
        step = Step(function, values_in(arguments), values_in(options), result.value)
        self.events.append(step)
        return result

    def _recorded(self, answer: Any, varies: bool, is_new: bool) -> Recorded:
        place = self.places
        self.places += 1
        if isinstance(answer, tuple | list | Part):
            return Recorded(self, answer, Value(place))
        array = answer if isinstance(answer, np.ndarray) else np.asarray(answer)[()]
        if varies and array.ndim:
            return Recorded(self, array, Value(place))
        return Recorded(self, array, Value(place, array.shape, array.dtype, is_new))

    def _signature(self, argument: Any) -> object:
        """What makes two arguments the same: equal structure of the same values and constants."""
        if isinstance(argument, Recorded):
            if argument.recording is not self:
                raise NotRecordableError("a value of another recording")
            return Recorded, argument.key
        if isinstance(argument, tuple | list):
            return tuple, tuple(self._signature(item) for item in argument)
        if isinstance(argument, dict):
            return dict, tuple(
                (key, self._signature(item)) for key, item in argument.items()
            )
        if isinstance(argument, int | float | str):
            return type(argument), repr(argument)
        self._constants.append(argument)
        return object, id(argument)


def _is_light(value: Value) -> bool:
    """Whether the array of a value, whatever the values, is small enough to be kept."""
    return value.kind is not None and math.prod(value.shape) <= _KEPT


def _small_wholes(
    function: Function, arguments: tuple[Any, ...], options: object
) -> list[Any] | None:
    """The operands over the whole grid, where the answer is a number for each of few points."""
    is_elementwise = function is np.where or _is_elementwise(function)
    if not is_elementwise or options:
        return None
    wholes = [one.whole if isinstance(one, Recorded) else one for one in arguments]
    if any(whole is None for whole in wholes):
        return None
    shapes = {np.shape(whole) for whole in wholes}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    return wholes if math.prod(shape) <= _SMALL else None


def _is_elementwise(function: Function) -> bool:
    if not isinstance(function, np.ufunc):
        return False
    return function.nout == 1 and function.signature is None


def _varies(function: Function, operands: Sequence[Recorded]) -> bool:
    """Whether the shape of an answer may be another for other values."""
    if function is with_items:
        return False
    picks = function is operator.getitem and any(_is_mask(one) for one in operands)
    return picks or any(operand.varies for operand in operands)


def _share_memory(operands: Sequence[Recorded], answer: Any) -> None:
    """Keep operands of which the answer may be a view from being written over."""
    answers = answer if isinstance(answer, tuple | list) else (answer,)
    for operand in operands:
        if any(
            operand.value.is_new and np.may_share_memory(operand.array, one)
            for one in answers
        ):
            operand.value.is_new = False


def _is_mask(operand: Recorded) -> bool:
    return bool(operand.ndim and operand.dtype == bool)

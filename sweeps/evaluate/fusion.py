"""Fuse elementwise steps of a recording: one loop over design points in place of one each.

NumPy passes every intermediate result through memory. Here steps of one shape become a loop in C,
in which these are local variables, see `nearkv.sweeps.evaluate.loops`. A step waits until one
that is not elementwise, a decision or the answer needs it, so that few values are stored.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.loops import (
    OF_FLAGS,
    OF_NUMBERS,
    Loop,
    Operation,
    Shape,
    compiled,
)
from nearkv.sweeps.evaluate.recorded import Value
from nearkv.sweeps.evaluate.recording import Step

LARGE = 1 << 13
"""Numbers from which a loop in C is worth its call [1]."""

_LONGEST = 64
"""Operations of a loop; compilers take ever longer for each of more [1]."""

_FLAG = np.dtype(bool)
_NUMBER = np.dtype(float)

Kind = np.dtype[Any] | None
Places = set[int] | frozenset[int]


@dataclass
class Kernel:
    """A compiled loop as a function of arrays.

    Attributes:
        shape: of the results.
        kinds: of each result.
        run: the loop, a function of addresses.
    """

    shape: Shape
    kinds: Sequence[Kind]
    run: Any = None

    def __call__(self, *operands: Any) -> list[NDArray[Any]]:
        """The results, newly allocated."""
        arrays = [np.ascontiguousarray(operand) for operand in operands]
        results = [np.empty(self.shape, kind) for kind in self.kinds]
        addresses = [one.__array_interface__["data"][0] for one in (*arrays, *results)]
        self.run((ctypes.c_void_p * len(addresses))(*addresses))
        return results


class Fusion:
    """The kernels of all stretches of a tree, one for all that compute the same.

    Args:
        shape: of the design points that are computed at once.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._kernels: dict[str, list[Kernel]] = {}

    def lowered(
        self,
        steps: Sequence[Step],
        ends: Places,
        beyond: Places,
        waiting: dict[int, Step],
    ) -> list[Step]:
        """A stretch's steps, those that are fused replaced by calls of kernels.

        Args:
            steps: in their order.
            ends: places of the values that are needed at the end of the stretch.
            beyond: places of the values that are needed behind it.
            waiting: elementwise steps not computed so far, by place; changed to what is left.
        """
        lowered: list[Step] = []
        for number, step in enumerate(steps):
            if self._is_fusable(step):
                waiting[step.result.place] = step
                continue
            if needed := step.reads & waiting.keys():
                rest = [later.reads for later in steps[number:]]
                lowered += self._calls(needed, beyond.union(ends, *rest), waiting)
            lowered.append(step)
        if last := ends & waiting.keys():
            lowered += self._calls(last, beyond, waiting)
        return lowered

    def compile(self) -> bool:
        """Whether all kernels could be compiled."""
        loops = compiled(self._kernels)
        if loops is None:
            return False
        for loop, kernels in zip(loops, self._kernels.values(), strict=True):
            for kernel in kernels:
                kernel.run = loop
        return True

    def _calls(self, needed: Places, rest: Places, waiting: dict[int, Step]) -> list[Step]:
        """The calls that compute some of the steps that wait, with all that they need."""
        fused: list[Step] = []
        missing = set(needed)
        for place in reversed(list(waiting)):
            if place in missing:
                step = waiting.pop(place)
                fused.append(step)
                missing |= step.reads
        fused.reverse()
        kept = needed.union(rest, *(step.reads for step in waiting.values()))
        calls: list[Step] = []
        for start in range(0, len(fused), _LONGEST):
            here, later = fused[start : start + _LONGEST], fused[start + _LONGEST :]
            read = kept.union(*(step.reads for step in later))
            results = [step.result for step in here if step.result.place in read]
            calls.append(self._kernel(here, results))
        return calls

    def _kernel(self, fused: Sequence[Step], results: Sequence[Value]) -> Step:
        names = {step.result.place: f"v{number}" for number, step in enumerate(fused)}
        operands: list[Any] = []
        operations: list[Operation] = []
        for step in fused:
            arguments: list[str | float] = []
            for argument in _arguments(step):
                if not isinstance(argument, Value | np.ndarray):
                    arguments.append(float(argument))
                    continue
                key = argument.place if isinstance(argument, Value) else -id(argument)
                if key not in names:
                    names[key] = f"a{len(operands)}"
                    operands.append(argument)
                arguments.append(names[key])
            operations.append(Operation(step.function, arguments))
        order = {step.result.place: number for number, step in enumerate(fused)}
        stored = [(order[value.place], value.kind == _FLAG) for value in results]
        read = [(operand.shape, _kind(operand) == _FLAG) for operand in operands]
        loop = Loop(self._shape, read, operations, stored)
        kernel = Kernel(self._shape, [value.kind for value in results])
        self._kernels.setdefault(loop.source(), []).append(kernel)
        return Step(kernel, tuple(operands), {}, tuple(results))

    def _is_fusable(self, step: Step) -> bool:
        result = step.result
        if result.shape != self._shape or step.options:
            return False
        kinds = {_kind(argument) for argument in _arguments(step)}
        if step.function in OF_FLAGS:
            return kinds == {_FLAG}
        if step.function not in OF_NUMBERS or not kinds <= {_FLAG, _NUMBER}:
            return False
        if step.function in (np.add, np.multiply) and _NUMBER not in kinds:
            return False  # of flags these are other operations
        return result.kind in (_FLAG, _NUMBER)


def common_shape(steps: Iterable[Step]) -> Shape | None:
    """The shape that most numbers are computed in; None where it is too small for loops in C."""
    numbers: Counter[Shape] = Counter()
    for step in steps:
        if step.result.kind is not None:
            numbers[step.result.shape] += math.prod(step.result.shape)
    shape = max(numbers, key=lambda one: numbers[one], default=())
    return shape if math.prod(shape) >= LARGE else None


def _arguments(step: Step) -> Sequence[Any]:
    return step.arguments[:1] if step.function is np.broadcast_to else step.arguments


def _kind(argument: Any) -> Kind:
    """Whether an argument is numbers or flags; None where it is neither."""
    if isinstance(argument, Value | np.ndarray):
        kind: Kind = argument.kind if isinstance(argument, Value) else argument.dtype
        return kind
    if isinstance(argument, bool | np.bool_):
        return _FLAG
    return _NUMBER if isinstance(argument, int | float) else None

"""Repeat a recording on other values: the straight-line plan of a block's time trees.

Between two decisions of Python the steps of a recording are one straight line, a `Stretch`. It is
compiled to a Python function of one line a step, over a list of values:

    values[7] = multiply(values[3], values[2])
    values[9] = add(values[7], c0, out=values[7])

A value is dropped after its last use, so that few arrays are in use at a time; one of the
same shape is written over instead. A decision that comes out as recorded leads to the stretch that
was recorded behind it. One that does not has no stretch yet: the box is recorded anew, and its
stretches join the others in a tree.

The functions are those of NumPy that the recording called, in its order, so that an answer is the
same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.fusion import Fusion, Places, common_shape
from nearkv.sweeps.evaluate.recorded import Value, nested
from nearkv.sweeps.evaluate.recording import Decision, Recording, Step
from nearkv.sweeps.jobs.memory import return_freed_memory

_LARGE = 512
"""Numbers from which an array is worth writing over [1]."""

_QUIET = 16
"""Repetitions without another recording, after which steps are fused [1]."""

Run = Any
"""values -> the value of the decision at the end."""


class Stretch:
    """Steps without a decision between them.

    Attributes:
        steps: in their order.
        decision: what Python looks at behind them; None at the end of a recording.
        following: the stretches behind each outcome.
        answer: at the end of a recording, its numbers, and what else belongs to them.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.decision: Value | None = None
        self.following: dict[bool, Stretch] = {}
        self.answer: tuple[tuple[Any, ...], Any] | None = None
        self.needs: frozenset[int] = frozenset()
        self._after: frozenset[int] | None = None
        self._run: Run = None
        self._reads: frozenset[int] = frozenset()
        self._waiting: dict[int, Step] = {}
        self._fused: list[Step] = []
        self._fused_needs: frozenset[int] = frozenset()
        self._fused_run: Run = None

    def compile(self) -> None:
        """Make a function of the steps, unless what is needed behind them is as it was."""
        after = self.ends.union(*(stretch.needs for stretch in self.following.values()))
        if self._after is not None and after == self._after:
            return
        self._after = frozenset(after)
        self._run, self.needs = _function(self.steps, after)

    @property
    def ends(self) -> frozenset[int]:
        """Places of the values that its decision or its answer is made of."""
        ends = [self.decision, self.answer and self.answer[0]]
        return frozenset(value.place for value in nested(ends, Value))

    def prepare(self) -> None:
        """Note what this stretch and those behind it read, so that steps of it can be fused."""
        behind = [stretch._reads for stretch in self.following.values()]
        self._reads = self.ends.union(*behind, *(step.reads for step in self.steps))
        self._waiting = {}

    def fuse(self, fusion: Fusion) -> None:
        """Fuse steps, those that are not needed here with steps of the stretches behind."""
        following = self.following.values()
        beyond = frozenset[int]().union(*(stretch._reads for stretch in following))
        self._fused = fusion.lowered(self.steps, self.ends, beyond, self._waiting)
        for stretch in following:
            stretch._waiting = dict(self._waiting)

    def compile_fused(self) -> None:
        """Make a function of what is left of the steps; those behind must have theirs."""
        behind = [stretch._fused_needs for stretch in self.following.values()]
        self._fused_run, self._fused_needs = _function(
            self._fused, self.ends.union(*behind)
        )

    def run(self, values: list[Any], is_fused: bool) -> Stretch | None:
        """Compute the steps; the next stretch, None where its outcome was not recorded."""
        if is_fused:
            self._fused_run(values)
        else:
            self._run(values)
        if self.decision is None:
            return self
        return self.following.get(bool(values[self.decision.place]))


class Replay:
    """All recordings of one function, as a tree of stretches.

    Args:
        fuses: whether it is repeated so often that compiling its steps pays.

    Attributes:
        recordings: how many.
        glimpses: what was glimpsed in them.
        is_fused: whether its steps are compiled loops.
    """

    def __init__(self, fuses: bool = False) -> None:
        self._fuses = fuses
        self._first = Stretch()
        self._places = 0
        self.recordings = 0
        self.glimpses: dict[object, Any] = {}
        self.is_fused = False
        self._repeated = 0
        self._quiet = _QUIET

    def add(self, recording: Recording, numbers: Sequence[Any], rest: object) -> None:
        """Add a recording.

        Args:
            recording: what was computed.
            numbers: of its answer: values of the recording, or constants.
            rest: what else belongs to the answer.
        """
        passed = [self._first]
        is_new = not self.recordings
        for event in recording.events:
            stretch = passed[-1]
            if isinstance(event, Decision):
                stretch.decision = event.value
                is_new = event.outcome not in stretch.following
                passed.append(stretch.following.setdefault(event.outcome, Stretch()))
            elif is_new:
                stretch.steps.append(event)
        passed[-1].answer = tuple(numbers), rest
        for stretch in reversed(passed):
            stretch.compile()
        self.is_fused = False
        self._repeated = 0
        self._places = max(self._places, recording.places)
        self.recordings += 1

    def run(self, inputs: Sequence[Any]) -> tuple[list[Any], Any] | None:
        """Compute the answer for other inputs; None where a decision comes out as never before."""
        if not self.recordings:
            return None
        self._repeated += 1
        if self._fuses and not self.is_fused and self._repeated == self._quiet:
            self._fuse()
        values = [*inputs, *[None] * (self._places - len(inputs))]
        stretch: Stretch | None = self._first
        with np.errstate(all="ignore"):
            while stretch and not stretch.answer:
                stretch = stretch.run(values, self.is_fused)
            if stretch is None or stretch.answer is None:
                return None
            stretch.run(values, self.is_fused)
        numbers, rest = stretch.answer
        return [
            values[one.place] if isinstance(one, Value) else one for one in numbers
        ], rest

    def _fuse(self) -> None:
        """Fuse the steps, if this machine can; each time later, as it takes long."""
        self._quiet *= 2
        tree = [self._first]
        for stretch in tree:
            tree += stretch.following.values()
        shape = common_shape(step for stretch in tree for step in stretch.steps)
        if shape is None:
            return
        for stretch in reversed(tree):
            stretch.prepare()
        fusion = Fusion(shape)
        for stretch in tree:
            stretch.fuse(fusion)
        return_freed_memory()  # recordings needed it, compilers do now
        if not fusion.compile():
            return
        for stretch in reversed(tree):
            stretch.compile_fused()
        self.is_fused = True


def _function(steps: Sequence[Step], after: Places) -> tuple[Run, frozenset[int]]:
    """A function that computes steps, compiled when first called, and the places it needs."""
    lines, constants, needs = _lines(steps, after)
    body = "\n ".join([*lines, "pass"])

    def run(values: list[Any]) -> None:
        if "run" not in constants:
            exec(f"def run(values):\n {body}", constants)
        constants["run"](values)

    return run, frozenset(needs)


def _lines(
    steps: Sequence[Step], after: Places
) -> tuple[list[str], dict[str, Any], set[int]]:
    """Lines of Python for some steps, the constants they name, and the values they need.

    From the last step to the first: a value dies where no step behind needs it.
    """
    lines: list[str] = []
    constants: dict[str, Any] = {}
    alive = set(after)
    for step in reversed(steps):
        results = {value.place for value in nested(step.result, Value)}
        if alive.isdisjoint(results):
            continue
        alive -= results
        dying = [value for place, value in step.operands.items() if place not in alive]
        drops = "".join(f"; values[{value.place}] = None" for value in dying)
        lines.append(f"{_assignment(step, dying, constants)}{drops}")
        alive |= step.reads
    lines.reverse()
    return lines, constants, alive


def _assignment(step: Step, dying: Sequence[Value], constants: dict[str, Any]) -> str:
    """The line of one step."""
    written = [_written(argument, constants) for argument in step.arguments]
    for name, option in step.options.items():
        written.append(f"{name}={_written(option, constants)}")
    if over := _overwritable(step, dying):
        written.append(f"out=values[{over.place}]")
    function = _constant(step.function, constants)
    targets = "".join(f"values[{value.place}], " for value in nested(step.result, Value))
    target = targets if isinstance(step.result, tuple) else targets.removesuffix(", ")
    return f"{target} = {function}({', '.join(written)})"


def _overwritable(step: Step, dying: Sequence[Value]) -> Value | None:
    """An operand whose array can take the result."""
    result = step.result
    if isinstance(result, tuple):
        return None
    if not result.is_new or math.prod(result.shape) < _LARGE:
        return None
    alike = [value for value in dying if value.is_new and value.kind == result.kind]
    return next((value for value in alike if value.shape == result.shape), None)


def _written(argument: Any, constants: dict[str, Any]) -> str:
    """An argument as Python."""
    if isinstance(argument, Value):
        return f"values[{argument.place}]"
    if isinstance(argument, tuple | list) and any(nested(argument, Value)):
        items = "".join(f"{_written(item, constants)}, " for item in argument)
        return f"[{items}]" if isinstance(argument, list) else f"({items})"
    return _constant(argument, constants)


def _constant(constant: object, constants: dict[str, Any]) -> str:
    name = f"c{len(constants)}"
    constants[name] = constant
    return name

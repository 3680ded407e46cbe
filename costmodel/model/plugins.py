"""Systems of one's own: files of Python that register systems when they are run."""

from __future__ import annotations

import linecache
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Span, shapes
from nearkv.costmodel.model.estimate import Estimate, Fits
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError, a_few, nearest
from nearkv.hardware.machine import Machine
from nearkv.hardware.schema import PARTLESS

_RAISED = (Exception, SystemExit)
"""Exceptions that code of a user may raise."""
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Plugin:
    """A file that registers systems, as it travels to other processes and machines.

    Attributes:
        file: its name, for readers; two plugins of the same text are the same.
        text: its Python.
    """

    file: str = field(compare=False)
    text: str

    @property
    def digest(self) -> str:
        """Digest of the text: a changed formula changes it."""
        import hashlib

        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def run(self) -> None:
        """Run the file as a module.

        Raises:
            InputError: it is no Python, or raises; with the line.
        """
        stem = self.file.replace("\\", "/").rpartition("/")[2].partition(".")[0]
        module = ModuleType(f"nearkv_plugin_{stem}")
        module.__file__ = self.file
        lines = self.text.splitlines(keepends=True)
        linecache.cache[self.file] = (len(self.text), None, lines, self.file)
        before = sys.modules.get(module.__name__)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            code = compile(self.text, self.file, "exec", dont_inherit=True)
            exec(code, module.__dict__)
        except _RAISED as problem:
            if before is not None:
                sys.modules[module.__name__] = before
            raise self._fault(problem, "does not run") from None

    def call(
        self, name: str, model: Callable[..., Any], *inputs: Any, **knobs: Any
    ) -> Estimate:
        """Evaluate a system of this file and check its answer.

        Args:
            name: of the system.
            model: its function.
            inputs, knobs: what the function takes.

        Raises:
            InputError: it raises, or what it returns is no estimate whose numbers are finite and
                not negative, one for each design point, on roles that the machine has.
        """
        try:
            with np.errstate(all="ignore"):  # what comes of it is told with its place
                estimate = model(*inputs, **knobs)
            fault = _fault_of(estimate, inputs[0], (*inputs, knobs))
        except InputError:
            raise
        except _RAISED as problem:
            raise self._fault(problem, f"system {name!r} fails") from None
        if fault:
            raise InputError(f"{self.file}: system {name!r} {fault}")
        answer: Estimate = estimate
        return answer

    def _fault(self, problem: BaseException, what: str) -> InputError:
        """Say in one sentence what went wrong and in which line."""
        line = getattr(problem, "lineno", None)
        for frame in traceback.extract_tb(problem.__traceback__):
            if frame.filename == self.file:
                line = frame.lineno
        place = f"{self.file}:{line}" if line else self.file
        detail = getattr(problem, "msg", None) or str(problem)
        first = str(detail).strip().partition("\n")[0]
        reason = f"{type(problem).__name__}: {first}" if first else type(problem).__name__
        if isinstance(problem, AttributeError) and problem.name:
            meant = nearest(problem.name, dir(problem.obj))
            reason += f"; did you mean {meant!r}?" if meant else ""
        return InputError(f"{place}: {what} ({reason}); correct it there")


def _fault_of(estimate: object, hw: Machine, inputs: Iterable[object]) -> str:
    """Name the fault in the answer of a system; empty where it can be used.

    Args:
        estimate: what the system returned.
        hw: the machine it was asked about.
        inputs: all that it was given, whose arrays say how many design points there are.
    """
    if not isinstance(estimate, Estimate):
        return f"must return an Estimate, not {type(estimate).__name__}"
    return _misbuilt(estimate) or _misnamed(estimate, hw) or _impossible(estimate, inputs)


def _misbuilt(estimate: Estimate) -> str:
    """Name a value of another type than it must be."""
    for phase in ("prefill", "step"):
        span = getattr(estimate, phase)
        if not isinstance(span, Span):
            kind = type(span).__name__
            return f"has a {phase} that is no span, but {kind}; a leaf is port(amount)"
    if not isinstance(estimate.fits, Fits):
        return (
            f"has fits that are {type(estimate.fits).__name__}; use fits(gpu=(need, have))"
        )
    if not estimate.fits.tiers:
        return "checks no memory; name one in fits, as in fits(gpu=(need, have))"
    return ""


def _misnamed(estimate: Estimate, hw: Machine) -> str:
    """A column that is taken, or a resource of a role that the machine does not have."""
    for name in estimate.columns:
        if name in COLUMNS or not _COLUMN.fullmatch(name):
            return (
                f"answers {name!r} in columns, which is a column of every system or no name of "
                "one; use small letters, digits and _, as in spilled_gb"
            )
    for _, leaf, _ in chain(estimate.prefill.leaves(), estimate.step.leaves()):
        if leaf.resource.partition(".")[0] not in hw.roles:
            roles = a_few(sorted(hw.roles.keys() - set(PARTLESS)))
            return (
                f"names a resource {leaf.resource!r}; what stands before the dot is the role that "
                f"is charged, one of {roles}"
            )
    return ""


def _impossible(estimate: Estimate, inputs: Iterable[object]) -> str:
    """A result that is not finite, or that has the wrong shape."""
    points = np.broadcast_shapes(*shapes(*inputs))
    for what, value in _numbers_of(estimate):
        if fault := _fault_of_number(value):
            empty = " for a batch of 0" if np.all(estimate.work.batch == 0) else ""
            return f"has {what} of {fault}{empty}; numbers are finite, and not negative"
        shape = np.asarray(value).shape
        if not _goes_with(shape, points):
            asked = f"design points of shape {points}" if points else "one design point"
            fault = f"of shape {shape}, which does not go with {asked}"
            advice = "compute it with the arrays that the function is given"
            return f"has {what} {fault}; {advice}"
    some = estimate.work.batch > 0
    for what, span in (("a step", estimate.step), ("all", estimate.total)):
        if np.any(some & (span.seconds == 0)):
            return f"takes 0 s for {what}; where there are sequences, that takes time"
    return ""


def _numbers_of(estimate: Estimate) -> Iterator[tuple[str, object]]:
    """All numbers of an answer, with what each is."""
    for phase in ("prefill", "step"):
        for path, leaf, times in getattr(estimate, phase).leaves():
            place = f"in {phase}, {path} ({leaf.resource}),"
            yield f"{place} an amount", leaf.amount
            yield f"{place} repetitions", times
            yield f"{place} seconds", leaf.seconds
        yield f"a {phase}", getattr(estimate, phase).seconds
    for memory, sizes in estimate.fits.tiers.items():
        for what, size in zip(("a need", "a size"), sizes, strict=True):
            yield f"{what} of {memory}", size
    for memory, contents in estimate.fits.contents.items():
        for what, size in contents.items():
            yield f"a need of {memory} for {what}", size
    yield "a batch_run", estimate.batch_run


def _fault_of_number(value: object) -> str:
    """The number where it is none that a table can show; empty where it is one."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        return f"{array.tolist()!r}"[:60]
    if wrong := array[~(np.isfinite(array) & (array >= 0))].tolist():
        return f"{wrong[0]:g}"
    return ""


def _goes_with(shape: tuple[int, ...], points: tuple[int, ...]) -> bool:
    """True if an array has one value, or one for each design point."""
    try:
        fitting = np.broadcast_shapes(shape, points)
    except ValueError:
        return False
    return math.prod(fitting) == math.prod(points)

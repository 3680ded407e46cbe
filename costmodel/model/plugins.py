"""Systems of one's own: files of Python that register systems when they are run."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Span
from nearkv.costmodel.model.capacity import Fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.hardware.errors import InputError

_RAISED = (Exception, SystemExit)
"""What code of a user may raise."""


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
            InputError: it raises, or what it returns is no estimate of finite times.
        """
        try:
            estimate = model(*inputs, **knobs)
            fault = _fault_of(estimate)
        except InputError:
            raise
        except _RAISED as problem:
            raise self._fault(problem, f"system {name!r} fails") from None
        if fault:
            raise InputError(f"{self.file}: system {name!r} {fault}")
        answer: Estimate = estimate
        return answer

    def _fault(self, problem: BaseException, what: str) -> InputError:
        """What went wrong and in which line, in one sentence."""
        line = getattr(problem, "lineno", None)
        for frame in traceback.extract_tb(problem.__traceback__):
            if frame.filename == self.file:
                line = frame.lineno
        place = f"{self.file}:{line}" if line else self.file
        detail = getattr(problem, "msg", None) or str(problem)
        first = str(detail).strip().partition("\n")[0]
        reason = f"{type(problem).__name__}: {first}" if first else type(problem).__name__
        return InputError(f"{place}: {what} ({reason}); correct it there")


def _fault_of(estimate: object) -> str:
    """What is wrong with the answer of a system; empty where it can be used."""
    if not isinstance(estimate, Estimate):
        return f"must return an Estimate, not {type(estimate).__name__}"
    for phase in ("prefill", "step"):
        span = getattr(estimate, phase)
        if not isinstance(span, Span):
            return f"has a {phase} that is no span, but {type(span).__name__}"
        seconds = np.asarray(span.seconds, float)
        if not np.all(np.isfinite(seconds) & (seconds >= 0)):
            return (
                f"has a {phase} of {seconds.min():g} s; times are finite and not negative"
            )
    if not isinstance(estimate.fits, Fits):
        return (
            f"has fits that are {type(estimate.fits).__name__}; use fits(gpu=(need, have))"
        )
    if not estimate.fits.tiers:
        return "checks no memory; name one in fits, as in fits(gpu=(need, have))"
    return ""

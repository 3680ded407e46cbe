"""Elementwise operations as a loop in C, compiled by the compiler of the machine.

Only operations that IEEE 754 defines exactly are written in C, and without fused multiply-add:
results are those of NumPy to the last bit. Where there is no compiler, or it fails, there is no
loop either, and NumPy computes.
"""

from __future__ import annotations

import ctypes
import math
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_OPTIONS = "-O1 -march=native -fopenmp-simd --param vect-epilogues-nomask=0"
_EXACT = "-ffp-contract=off -fno-math-errno -fno-trapping-math"
_PATIENCE = 60
"""Seconds after which a compiler is given up."""

OF_NUMBERS: Mapping[Any, str] = {
    np.add: "x + y",
    np.subtract: "x - y",
    np.multiply: "x * y",
    np.divide: "x / y",
    np.negative: "- x",
    np.absolute: "fabs( x )",
    np.sqrt: "sqrt( x )",
    np.maximum: "x == x ? ( x > y ? x : y ) : x",
    np.minimum: "x == x ? ( x < y ? x : y ) : x",
    np.greater: "x > y ? 1.0 : 0.0",
    np.greater_equal: "x >= y ? 1.0 : 0.0",
    np.less: "x < y ? 1.0 : 0.0",
    np.less_equal: "x <= y ? 1.0 : 0.0",
    np.equal: "x == y ? 1.0 : 0.0",
    np.not_equal: "x != y ? 1.0 : 0.0",
    np.where: "x != 0 ? y : z",
    np.broadcast_to: "x",
}
"""Operations as C, where a flag is 0.0 or 1.0."""
OF_FLAGS: Mapping[Any, str] = {
    np.logical_and: "x * y",
    np.bitwise_and: "x * y",
    np.logical_or: "x > y ? x : y",
    np.bitwise_or: "x > y ? x : y",
    np.logical_not: "1.0 - x",
    np.invert: "1.0 - x",
}
"""The same, of flags alone."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """One statement of a loop.

    Attributes:
        function: of `OF_NUMBERS` or `OF_FLAGS`.
        arguments: names of variables, or numbers.
    """

    function: Any
    arguments: Sequence[str | float]


@dataclass(frozen=True)
class Loop:
    """A loop over design points: variables a0, a1, ... are read, v0, v1, ... computed.

    Attributes:
        shape: of the design points.
        operands: shapes of the arrays that are read, which broadcast to that, and whether each is
            of flags.
        operations: in their order, each computes the next variable.
        results: which of them are stored, and whether each is a flag.
    """

    shape: Shape
    operands: Sequence[tuple[Shape, bool]]
    operations: Sequence[Operation]
    results: Sequence[tuple[int, bool]]

    def source(self) -> str:
        """The body of a C function of the addresses of operands and results."""
        axes = self._axes()
        loads: list[list[str]] = [[] for _ in range(len(axes) + 1)]
        for number, (operand, _) in enumerate(self.operands):
            index, depth = _index(axes, operand, self.shape)
            loads[depth].append(f"const double a{number} = p{number}[{index}];")
        lines = [*self._pointers(), *loads[0]]
        for depth, axis in enumerate(axes):
            if depth == len(axes) - 1:
                lines.append("#pragma omp simd")
            i, extent = f"i{depth}", math.prod(self.shape[place] for place in axis)
            lines.append(f"for (long {i} = 0; {i} < {extent}; {i}++) {{")
            lines += loads[depth + 1]
        for number, operation in enumerate(self.operations):
            lines.append(f"const double v{number} = {_call(operation)};")
        index, _ = _index(axes, self.shape, self.shape)
        for place, (number, is_flag) in enumerate(self.results, len(self.operands)):
            cast = "(unsigned char)(int)" if is_flag else ""
            lines.append(f"p{place}[{index}] = {cast}v{number};")
        return "\n".join([*lines, "}" * len(axes)])

    def _pointers(self) -> list[str]:
        kinds = [f"const {_kind(is_flag)}" for _, is_flag in self.operands]
        kinds += [_kind(is_flag) for _, is_flag in self.results]
        return [
            f"{kind} *restrict p{place} = p[{place}];" for place, kind in enumerate(kinds)
        ]

    def _axes(self) -> list[list[int]]:
        """Axes that are one loop: neighbours along which each operand varies, or is the same."""
        axes: list[list[int]] = []
        before: list[bool] = []
        for place, extent in enumerate(self.shape):
            if extent == 1:
                continue
            extents = [_extent(operand, place, self.shape) for operand, _ in self.operands]
            varies = [own > 1 for own in extents]
            if varies == before and axes:
                axes[-1].append(place)
            else:
                axes.append([place])
            before = varies
        return axes


def _kind(is_flag: bool) -> str:
    return "unsigned char" if is_flag else "double"


def _extent(operand: Shape, place: int, shape: Shape) -> int:
    own = place - (len(shape) - len(operand))
    return operand[own] if own >= 0 else 1


def _index(axes: Sequence[Sequence[int]], operand: Shape, shape: Shape) -> tuple[str, int]:
    """Where an operand's number lies, and in how many loops that is known."""
    stride, depth = 1, 0
    terms: list[str] = []
    for number, axis in reversed(list(enumerate(axes))):
        extent = math.prod(_extent(operand, place, shape) for place in axis)
        if extent > 1:
            terms.append(f"{stride} * i{number}")
            depth = max(depth, number + 1)
        stride *= extent
    return " + ".join(terms) or "0", depth


def _call(operation: Operation) -> str:
    written = ", ".join(_written(argument) for argument in operation.arguments)
    return f"{_name(operation.function)}({written})"


def _name(function: Any) -> str:
    return f"np_{function.__name__}"


def _written(argument: str | float) -> str:
    """A variable, or a number to the last bit, as C."""
    if isinstance(argument, str):
        return argument
    if math.isfinite(argument):
        return argument.hex()
    return {math.inf: "INFINITY", -math.inf: "-INFINITY"}.get(argument, "NAN")


def _functions() -> list[str]:
    lines: list[str] = []
    for function, expression in {**OF_NUMBERS, **OF_FLAGS}.items():
        words = expression.split()
        parameters = ", ".join(f"double {one}" for one in "xyz" if one in words)
        head = f"static inline double {_name(function)}({parameters})"
        lines.append(f"{head} {{ return {expression}; }}")
    return lines


_LOOPS: dict[tuple[str, str], Callable[..., object]] = {}
"""What was compiled in this process, by command and body."""


def compiled(bodies: Iterable[str]) -> list[Callable[..., object]] | None:
    """Functions of C with some bodies; None where they cannot be had."""
    command = os.environ.get("CC", "cc")
    wanted = [(command, body) for body in bodies]
    missing = [one for one in wanted if one not in _LOOPS]
    if missing:
        library = _library(command, [body for _, body in missing])
        if library is None:
            return None
        for number, one in enumerate(missing):
            _LOOPS[one] = library[f"loop{number}"]
    return [_LOOPS[one] for one in wanted]


def _library(command: str, bodies: Sequence[str]) -> ctypes.CDLL | None:
    """A library of functions with some bodies: loop0, loop1, ..."""
    words = shlex.split(command)
    if not words or not shutil.which(words[0]):
        return None
    lines = ["#include <math.h>", *_functions()]
    for number, body in enumerate(bodies):
        lines.append(f"void loop{number}(void **p) {{\n{body}\n}}")
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder, "loops.c"), Path(folder, "loops.so")
        code.write_text("\n".join(lines))
        options = [
            *_OPTIONS.split(),
            *_EXACT.split(),
            "-shared",
            "-fPIC",
            "-o",
            str(library),
        ]
        try:
            subprocess.run(
                [*words, *options, str(code), "-lm"],
                check=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            return ctypes.CDLL(str(library))
        except (OSError, subprocess.SubprocessError):
            return None

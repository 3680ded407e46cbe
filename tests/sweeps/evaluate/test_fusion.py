"""Steps fused into compiled loops: equal to NumPy, to the last bit."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.sweeps.evaluate import evaluator, loops
from nearkv.sweeps.evaluate.cells import cells
from nearkv.sweeps.evaluate.evaluator import Evaluator
from nearkv.sweeps.evaluate.recorded import values_in
from nearkv.sweeps.evaluate.recording import Part, Recording
from nearkv.sweeps.evaluate.replay import Replay
from nearkv.sweeps.study.study import Study, blocks

Numbers = NDArray[np.float64]

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")

BOX = (slice(0, 100), slice(0, 200), slice(0, 1))
"""More numbers than are kept over the whole grid, so that steps are repeated on parts."""
PART = (slice(0, 50), *BOX[1:])
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.5, 1e300, 5e-324])
RANDOM = np.random.default_rng(7).choice(SPECIAL, (2, 100, 200, 1))


class Fused:
    """A function of two grids of numbers: its replay, after so many calls that it is fused."""

    def __init__(self, function: Callable[[Any, Any], Any], one: Numbers, other: Numbers) -> None:
        self.function, self.grids = function, (one, other)
        self.replay = Replay(fuses=True)
        self.record(PART)
        for _ in range(20):
            assert self.repeat(PART) is not None

    def record(self, box: tuple[slice, ...]) -> None:
        recording = Recording(Part(box), 3, self.replay.glimpses)
        with np.errstate(all="ignore"):
            answer = self.function(*(recording.input(grid) for grid in self.grids))
        self.replay.add(recording, values_in(answer), None)

    def repeat(self, box: tuple[slice, ...]) -> list[Any] | None:
        answer = self.replay.run([Part(box)])
        return None if answer is None else answer[0]

    def direct(self, box: tuple[slice, ...]) -> list[Any]:
        with np.errstate(all="ignore"):
            answer: list[Any] = self.function(
                *(Part(box).of(grid, (True,) * 3) for grid in self.grids)
            )
        return answer

    def check(self, box: tuple[slice, ...]) -> None:
        answer = self.repeat(box)
        assert answer is not None
        for expected, computed in zip(self.direct(box), answer, strict=True):
            assert expected.dtype == computed.dtype
            assert np.array_equal(expected, computed, equal_nan=expected.dtype == float)


def all_operations(x: Any, y: Any) -> list[Any]:
    flags = [x > y, x >= y, x < y, x <= y, x == y, x != y]
    numbers = [x + y, x - y, x * y, x / y, -x, abs(x), np.sqrt(x), 2.5 * x + np.inf]
    most = [np.maximum(x, y), np.minimum(x, y), np.maximum(1.0, y)]
    logic = [flags[0] & flags[1], flags[0] | flags[4], ~flags[3], np.logical_not(flags[5])]
    chosen = [np.where(flags[0], x, -1.0), flags[2] * x, np.broadcast_to(x * 3, (50, 200, 1))]
    return [*flags, *numbers, *most, *logic, *chosen]


@needs_compiler
@pytest.mark.processes
def test_every_operation_is_that_of_numpy() -> None:
    fused = Fused(all_operations, *RANDOM)
    assert fused.replay.is_fused
    fused.check((slice(50, 100), *BOX[1:]))


@needs_compiler
@pytest.mark.processes
def test_arrays_of_few_axes_and_decisions_between_loops() -> None:
    def function(x: Any, y: Any) -> list[Any]:
        rows, columns = x[:, :1] * 2, y[:1] + 1
        product = rows * columns + x
        if np.any(product > 1e3):
            return [product - rows, np.sum(product * columns, axis=1)]
        return [product + rows]

    x, y = np.random.default_rng(3).random((2, 100, 200, 1))
    x[80:] *= 1e4
    fused = Fused(function, x, y)
    assert fused.replay.is_fused
    fused.check((slice(20, 70), *BOX[1:]))
    large = (slice(50, 100), *BOX[1:])
    assert fused.repeat(large) is None  # a decision that comes out otherwise
    fused.record(large)
    assert not fused.replay.is_fused
    fused.check(large)


def test_without_a_compiler_numpy_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    fused = Fused(all_operations, *RANDOM)
    assert not fused.replay.is_fused
    fused.check((slice(50, 100), *BOX[1:]))


@pytest.mark.processes
@pytest.mark.parametrize("compiler", ["", "false"])
def test_a_compiler_that_fails_is_none(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    assert not Fused(all_operations, *RANDOM).replay.is_fused


@needs_compiler
@pytest.mark.processes
def test_a_loop_is_compiled_once_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc")
    one, other = "((double *)p[0])[0] = 1.0;", "((double *)p[0])[0] = 2.0;"
    first = loops.compiled([one])
    assert first is not None
    second = loops.compiled([other, one])
    assert second is not None
    assert second[1] is first[0]
    number = ctypes.c_double()
    addresses = (ctypes.c_void_p * 1)(ctypes.addressof(number))
    for loop, stored in zip(second, (2.0, 1.0), strict=True):
        loop(addresses)
        assert number.value == stored
    monkeypatch.setenv("CC", "false")
    assert loops.compiled([one]) is None


@needs_compiler
@pytest.mark.processes
def test_a_large_block_is_as_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least block of which steps are fused is made small; each box is large enough for them."""
    monkeypatch.setattr(evaluator, "MANY", 0)
    monkeypatch.setattr(evaluator, "FUSED", 0)
    study = Study(("flexgen-ssd",), ("opt-66b",), batch="1:200:+1", context="4k:3600k:+4k")
    (block,) = blocks(study)
    wanted = ("step_ms",)
    repeating = Evaluator(block, wanted)
    for box in block.grid.boxes(10_000):
        answer = repeating.cells(box)
    assert any(replay.is_fused for replay in repeating.replays.values())
    expected = np.asarray(cells(block, box, wanted)["step_ms"])
    assert np.array_equal(expected, np.asarray(answer["step_ms"]), equal_nan=True)

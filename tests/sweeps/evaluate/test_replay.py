"""Evaluation by repeating what was recorded: equal to evaluating, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.costmodel.model.registry import System
from nearkv.sweeps.evaluate import evaluator
from nearkv.sweeps.evaluate.cells import cells, spread
from nearkv.sweeps.evaluate.evaluator import Evaluator
from nearkv.sweeps.evaluate.recorded import NotRecordableError, arrays_in, values_in
from nearkv.sweeps.evaluate.recording import Part, Recording
from nearkv.sweeps.evaluate.replay import Replay
from nearkv.sweeps.jobs.arrow import table
from nearkv.sweeps.jobs.plan import evaluator as block_evaluator
from nearkv.sweeps.jobs.plan import plan
from nearkv.sweeps.jobs.reduce import Top, reduced
from nearkv.sweeps.study.grid import Box
from nearkv.sweeps.study.study import Study, blocks

Numbers = NDArray[np.float64]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of any size are recorded."""
    monkeypatch.setattr(evaluator, "MANY", 0)


class Repeated:
    """A function of a row of numbers, recorded on one part of them and repeated on others."""

    def __init__(self, function: Callable[[Any], Any], row: Numbers) -> None:
        self.function, self.row, self.replay = function, row, Replay()

    def record(self, start: int, stop: int) -> Any:
        part = Part((slice(start, stop),))
        recording = Recording(part, 1, self.replay.glimpses)
        answer = self.function(recording.input(self.row))
        self.replay.add(recording, values_in([answer]), None)
        return arrays_in(answer)

    def repeat(self, start: int, stop: int) -> Any:
        answer = self.replay.run([Part((slice(start, stop),))])
        return None if answer is None else answer[0][0]


LONG = np.arange(1.0, 100_001.0)
"""More numbers than are kept over the whole grid, so that steps are repeated on parts."""


def test_steps_are_repeated_on_other_numbers() -> None:
    repeated = Repeated(lambda x: np.sqrt(3 * x + 1) / np.maximum(x, 7.0), LONG)
    repeated.record(0, 1000)
    x = LONG[1000:2000]
    assert np.array_equal(repeated.repeat(1000, 2000), np.sqrt(3 * x + 1) / np.maximum(x, 7.0))


def test_a_decision_that_comes_out_otherwise_is_recorded_anew() -> None:
    def function(x: Any) -> Any:
        return x * 2 if np.any(x * x > 4e6) else x * 3

    repeated = Repeated(function, LONG)
    assert repeated.record(0, 1000)[0] == 3  # squares up to 10^6 are not above 4 x 10^6
    assert repeated.repeat(500, 1500)[0] == 501 * 3
    assert repeated.repeat(3000, 4000) is None
    assert repeated.record(3000, 4000)[0] == 3001 * 2
    assert repeated.repeat(5000, 6000)[0] == 5001 * 2
    assert repeated.repeat(0, 1000)[0] == 3


def test_what_a_view_shows_is_not_written_over() -> None:
    def function(x: Any) -> Any:
        product = x * 2
        view = product.reshape(-1, 10)
        return (product + 1).reshape(-1, 10) * view

    repeated = Repeated(function, LONG)
    repeated.record(0, 1000)
    product = 2 * LONG[1000:2000]
    assert np.array_equal(repeated.repeat(1000, 2000), ((product + 1) * product).reshape(-1, 10))


def test_items_are_replaced_in_a_copy() -> None:
    def function(x: Any) -> Any:
        square = x * x
        changed = square.copy()
        changed[square > 9] = -1.0
        return changed + square

    repeated = Repeated(function, LONG)
    repeated.record(0, 1000)
    square = LONG[2:1002] ** 2
    assert np.array_equal(repeated.repeat(2, 1002), np.where(square > 9, square - 1, 2 * square))


def test_as_many_as_a_mask_picks_are_repeated() -> None:
    def function(x: Any) -> Any:
        chosen = x[x % 7 == 0]
        return np.sum(chosen * chosen) / chosen.size

    repeated = Repeated(function, LONG)
    repeated.record(0, 1000)
    chosen = LONG[13:1013][LONG[13:1013] % 7 == 0]
    assert repeated.repeat(13, 1013) == np.sum(chosen * chosen) / len(chosen)


@pytest.mark.parametrize("leave", [float, int, list, len, np.asarray, lambda x: x.tolist()])
def test_a_value_cannot_leave_the_record(leave: Callable[[Any], object]) -> None:
    recording = Recording(Part((slice(0, 5),)), 1, {})
    with pytest.raises((NotRecordableError, AttributeError)):
        leave(recording.input(LONG) * 2)


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(side.stop - side.start for side in box)


@pytest.mark.usefixtures("always")
@pytest.mark.slow
def test_every_system_answers_the_same_when_repeated(system: System) -> None:
    # where L3's own search chooses, each of these boxes is recorded anew and none repeated
    knobs = {"interleave": "1"} if system.name == "l3" else {}
    (block,) = blocks(
        Study((system.name,), ("opt-66b",), "1,8,64", "4k,512k", output="64", knobs=knobs)
    )
    repeating = Evaluator(block)
    for box in block.grid.boxes(2):
        expected, answer = cells(block, box), repeating.cells(box)
        assert expected.keys() == answer.keys()
        for name, cell in expected.items():
            assert same(spread(cell, shape_of(box)), spread(answer[name], shape_of(box))), name


@pytest.fixture(scope="module")
def many_boxes() -> Study:
    """Boxes that fit and others that do not, most of them alike in what Python decides."""
    return Study(("hilos",), ("opt-66b",), batch="1:12:+1", context="4k:2M:x2")


@pytest.mark.usefixtures("always")
@pytest.mark.slow
def test_most_boxes_are_repeated(many_boxes: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks(many_boxes)
    recorded: list[Recording] = []
    add = Replay.add

    def counted(self: Replay, recording: Recording, *rest: Any) -> None:
        recorded.append(recording)
        add(self, recording, *rest)

    monkeypatch.setattr(Replay, "add", counted)
    repeating = Evaluator(block, ("step_ms",))
    boxes = list(block.grid.boxes(10))
    for box in boxes:
        expected = cells(block, box, ("step_ms",))["step_ms"]
        assert same(np.asarray(expected), np.asarray(repeating.cells(box)["step_ms"]))
    assert 0 < len(recorded) < len(boxes) / 2


@pytest.mark.slow
def test_files_and_best_rows_are_the_same(
    many_boxes: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, top = plan(many_boxes), Top("throughput_tok_s", most=5)
    packed, pieces = rows.packed(), list(rows.pieces(32))
    expected = [table(packed, piece) for piece in pieces]
    best = [reduced(packed, top, piece) for piece in pieces]
    monkeypatch.setattr(evaluator, "MANY", 0)
    block_evaluator.cache_clear()
    assert expected == [table(packed, piece) for piece in pieces]
    for one, piece in zip(best, pieces, strict=True):
        again = reduced(packed, top, piece)
        assert list(again.rows) == list(one.rows)
        assert list(again.costs) == list(one.costs)

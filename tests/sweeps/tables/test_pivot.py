"""Pivots: a cell holds one number, what varies names the rows."""

from __future__ import annotations

import re

import pytest
from support.command_line import printed

from nearkv.hardware.errors import InputError
from nearkv.sweeps.tables.pivot import pivoted

TWO = ("flexgen-ssd", "hilos", "--model", "opt-66b", "--context", "8k")


def test_a_pivot_has_a_column_for_each_value() -> None:
    rows = [
        {"system": system, "batch": batch, "model": "m", "step_ms": 2.0 * batch}
        for system in ("a", "b")
        for batch in (16, 1)
    ]
    wide = pivoted(rows, "batch", ["step_ms"], ["system", "batch"])
    assert list(wide.rows[0]) == ["system", "16", "1"]
    assert [row["16"] for row in wide.rows] == [32.0, 32.0]
    assert wide.title == "step_ms by batch, model m"


def test_each_answer_of_a_pivot_has_rows_of_its_own() -> None:
    rows = [
        {"system": system, "batch": batch, "step_ms": 2.0 * batch, "total_s": 3.0 * batch}
        for system in ("a", "b")
        for batch in (16, 1)
    ]
    wide = pivoted(rows, "batch", ["total_s", "step_ms"], ["system", "batch"])
    cells = [[*row.values()] for row in wide.rows]
    steps = [["step_ms", "a", 32.0, 2.0], ["step_ms", "b", 32.0, 2.0]]
    assert cells == [["total_s", "a", 48.0, 3.0], ["total_s", "b", 48.0, 3.0], *steps]
    assert wide.title == "total_s and step_ms by batch"


def test_a_pivot_needs_one_number_a_cell() -> None:
    rows = [{"system": "s", "model": "a", "ms": ms} for ms in (1.0, 2.0)]
    with pytest.raises(InputError, match="several rows have model a"):
        pivoted(rows, "model", ["ms"], ["model"])
    with pytest.raises(InputError, match="unknown column 'modle'; did you mean 'model'"):
        pivoted(rows, "modle", ["ms"], ["model"])
    with pytest.raises(InputError, match="name the column of its cells"):
        pivoted(rows, "model", [], ["model"])


def test_answers_of_a_solver_are_cells_of_a_pivot() -> None:
    words = "solve alpha --model opt-66b,opt-30b --context 8k,16k --columns value"
    text = printed(*words.split(), "--pivot", "context_tok")
    assert re.search(r"^model +8192 +16384\n.*\nopt-66b +0\.\d+ +0\.\d+\nopt-30b ", text, re.M)


def test_rows_of_no_system_are_pivoted_too() -> None:
    """Answers of one program name no system; with one value each they are one line."""
    rows = [{"model": "opt-30b", "ms": 1.0}, {"model": "opt-66b", "ms": 2.0}]
    assert pivoted(rows, "model", ["ms"], []).rows == [{"opt-30b": 1.0, "opt-66b": 2.0}]


def test_a_text_that_is_asked_for_names_its_row() -> None:
    rows = [{"batch": batch, "bottleneck": "links", "ms": 1.0 * batch} for batch in (1, 2)]
    wide = pivoted(rows, "batch", ["bottleneck", "ms"], ["batch"])
    assert wide.rows == [{"bottleneck": "links", "1": 1.0, "2": 2.0}]
    assert pivoted(rows[:1], "batch", ["ms"], ["batch"]).rows == [{"1": 1.0}]


@pytest.mark.slow
def test_a_pivot_refuses_answers() -> None:
    words = ("compare", *TWO, "--set", "csd.count=4,8", "--pivot")
    assert "is an answer; what varies is" in printed(*words, "step_ms", code=2)
    assert "csd.count, model opt-66b" in printed(*words, "csd.count")

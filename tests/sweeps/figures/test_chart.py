"""Charts in a terminal: bars in proportion, lines that fit, marks where nothing fits."""

from __future__ import annotations

import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.chart import chart

ROWS: list[dict[str, object]] = [
    {"system": "slow", "model": "m", "status": "ok", "step_ms": 2.0},
    {"system": "fast", "model": "m", "status": "ok", "step_ms": 1.0},
    {"system": "none", "model": "m", "status": "infeasible", "step_ms": None},
]


def test_bars_are_in_proportion_and_lines_fit() -> None:
    slow, fast, none = chart(ROWS, ["step_ms"], ("system", "model"), 41)
    assert slow.count("█") == 2 * fast.count("█")
    assert none.endswith("OOM")
    assert "█" not in none
    assert {len(line) for line in (slow, fast, none)} == {41}


def test_only_columns_that_differ_name_a_row() -> None:
    assert all("m " not in line for line in chart(ROWS, ["step_ms"], ("system", "model"), 40))


def test_an_eighth_of_a_character_is_drawn() -> None:
    rows: list[dict[str, object]] = [
        {"system": "whole", "step_ms": 80.0},
        {"system": "part", "step_ms": 1.0},
    ]
    (_, part) = chart(rows, ["step_ms"], ("system",), 20)
    assert "▏" in part


def test_an_unknown_column_is_one_sentence() -> None:
    with pytest.raises(InputError, match="step_ms"):
        chart(ROWS, ["step"], ("system",), 40)


def test_several_values_share_one_scale_and_a_line_names_them() -> None:
    rows: list[dict[str, object]] = [
        {"system": "slow", "16k": 8.0, "64k": 2.0},
        {"system": "fast", "16k": 16.0, "64k": "OOM"},
    ]
    head, slow, fast = chart(rows, ["16k", "64k"], ("system",), 60)
    assert head.split() == ["16k", "64k"]
    assert fast.count("█") == 2 * slow.partition(" 8 ")[0].count("█")
    assert slow.partition(" 8 ")[2].strip().endswith(" 2")
    assert fast.endswith("OOM")

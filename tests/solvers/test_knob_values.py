"""Values that a search tries of a knob, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.tiny import TINY

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, find_system
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knob_values import (
    ZOOMS,
    closer_values,
    first_values,
    tried_in_words,
    tried_together,
)


def test_each_value_of_a_short_count_and_of_a_choice_is_tried() -> None:
    assert first_values(Knob("n", 3, 7, 3, kind="count")).tolist() == [3, 4, 5, 6, 7]
    assert first_values(Knob("c", 0, 1, 0, kind="choice", choices=("a", "b"))).tolist() == [0, 1]


def test_a_wide_count_is_tried_at_equal_ratios_of_whole_numbers_and_from_none() -> None:
    values = first_values(Knob("tokens", 0, 2.0**17, 0, kind="count"))
    assert values[[0, 1, -1]].tolist() == [0, 1, 2**17]
    assert np.array_equal(values, np.round(values))
    far = values[values > 1000]
    assert far[1:] / far[:-1] == pytest.approx(2.0 ** (17 / 399), rel=1e-3)


@pytest.mark.parametrize("high", [1.0, 10_000.0])
def test_zooming_in_ends_beside_any_value(high: float) -> None:
    """The nearest of all tried values is taken each time: 1e-10 of the range is left."""
    knob = Knob("x", 0, high, 0.0, kind="number")
    goal = 0.123456789 * high
    values = first_values(knob)
    for zoom in range(ZOOMS + 1):
        best = values[np.argmin(np.abs(values - goal))]
        values = closer_values(knob, best, zoom)
        assert values.min() >= 0
        assert values.max() <= high
    assert best == pytest.approx(goal, abs=1e-9 * high)


def test_the_note_counts_what_is_tried() -> None:
    knob = Knob("x", 0, 1, 0.0, kind="number")
    assert tried_in_words(knob).startswith(f"{33 + 33 * ZOOMS} values from 0 to 1, at equal dist")


@pytest.mark.parametrize(
    ("stated", "left"),
    [(2.0, [4, 5]), (np.array([1.0, 2.0]), [3, 4, 5]), ("auto", [3, 4, 5])],
)
def test_one_stated_number_leaves_out_what_contradicts_it(
    stated: float | str | Numbers, left: list[int]
) -> None:
    """Several numbers are of several design points: each may need another combination."""

    def pairs(hw: Machine, llm: LLM) -> dict[str, Numbers]:
        return {"a": np.array([1.0, 2.0, 2.0]), "b": np.array([3.0, 4.0, 5.0])}

    system = replace(find_system("flexgen-ssd"), combinations=pairs)
    hw = load_platform(system.platform).machine()
    tried = tried_together(system, hw, TINY, {"a": stated, "b": "auto"})
    assert tried["b"].tolist() == left

"""Resources that bind at a solved share: the two that balance there, or a memory."""

from __future__ import annotations

import numpy as np
import pytest
from support.spans import leaf

from nearkv.costmodel.algebra.span import Leaf, overlap, serial
from nearkv.costmodel.model.estimate import fits
from nearkv.solvers.shares.minimum import Minimum, minimise
from nearkv.solvers.shares.solve import binding, feasible_share


def test_memory_cuts_the_interval() -> None:
    low, high, _ = feasible_share(
        fits(host=(0.0, 5.0), csd=(9.0, 8.0)), fits(host=(10.0, 5.0), csd=(5.0, 8.0))
    )
    assert (float(low), float(high)) == (0.25, 0.5)
    start = overlap(a=Leaf("a", "run", 10.0, 1.0, "op"), b=Leaf("b", "run", 0.0, 1.0, "op"))
    end = overlap(a=Leaf("a", "run", 0.0, 1.0, "op"), b=Leaf("b", "run", 10.0, 1.0, "op"))
    choice = minimise(start, end, low, np.float64(0.4))
    assert choice.value == 0.4
    assert str(binding(start, end, choice)) == "memory, a"


def test_binding_names_both_sides_of_a_balance() -> None:
    start = serial(
        w=Leaf("w", "run", 99.0, 1.0, "op"),
        o=overlap(a=Leaf("a", "run", 10.0, 1.0, "op"), b=Leaf("b", "run", 0.0, 1.0, "op")),
    )
    end = serial(
        w=start.parts["w"],
        o=overlap(a=Leaf("a", "run", 0.0, 1.0, "op"), b=Leaf("b", "run", 30.0, 1.0, "op")),
    )
    choice = minimise(start, end)
    assert choice.value == pytest.approx(0.25)
    assert str(binding(start, end, choice)) == "a = b"


@pytest.mark.parametrize(
    ("value", "low", "high", "cut"),
    [
        (1.0, 0.0, 1.0, False),
        (0.0, 0.0, 1.0, False),
        (0.5, 0.25, 0.75, False),
        (0.75, 0.0, 0.75, True),
        (0.25, 0.25, 1.0, True),
    ],
)
def test_memory_ends_a_share_where_it_cuts_the_interval(
    value: float, low: float, high: float, cut: bool
) -> None:
    start, end = serial(a=leaf("a", 1.0)), serial(a=leaf("a", 2.0))
    names = str(binding(start, end, Minimum(value, 1.0, 1.0, low, high)))
    assert names.startswith("memory") == cut


def test_the_end_of_a_knobs_range_is_no_memory() -> None:
    start, end = serial(a=leaf("a", 1.0)), serial(a=leaf("a", 2.0))
    choice = Minimum(0.0, 1.0, 1.0, 0.0, 0.9, start=0.0, end=0.9)
    assert str(binding(start, end, choice, 0.0, 0.9)) == "a"

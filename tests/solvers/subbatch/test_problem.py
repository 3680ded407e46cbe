"""Planes of spans whose constants and slopes are written down, and problems held to them."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Leaf, Real, Span, overlap, serial
from nearkv.solvers.subbatch.problem import Costs, SubbatchProblem, planes


def leaf(seconds: Real, resource: str = "gpu") -> Span:
    return Leaf(resource, "run", seconds, 1.0, "s")


def test_a_plane_is_its_constant_and_its_slopes() -> None:
    """A sum adds planes, a maximum keeps both: 3 times (2 + 5 x) + max(y, 7 x)."""

    def span(x: Real, y: Real) -> Span:
        fixed = 3 * leaf(2 + 5 * x)
        return serial(fixed=fixed, either=overlap(gpu=leaf(y), link=leaf(7 * x, "link")))

    rows = planes(span, 2)
    assert rows == pytest.approx(np.array([[6.0, 15.0, 1.0], [6.0, 22.0, 0.0]]))


def test_a_plane_below_another_is_left_out() -> None:
    def span(x: Real) -> Span:
        return overlap(gpu=leaf(1 + 2 * x), link=leaf(0.5 + 2 * x, "link"))

    assert planes(span, 1) == pytest.approx(np.array([[1.0, 2.0]]))


def test_a_small_slope_counts_over_thousands_of_tokens_and_rounding_does_not() -> None:
    """Of 1 s, 1e-15 s a token are 6e-12 s at 6,144: rounding. A hundred times that is none, though
    it is at two tokens."""
    rounding, counts = [planes(lambda x, a=a: leaf(1 + a * x), 1)[0, 1] for a in (1e-15, 1e-13)]
    assert rounding == 0
    assert counts == pytest.approx(1e-13, rel=1e-5)


def problem(rankset_of: list[int], costs: Costs) -> SubbatchProblem:
    contexts = np.linspace(100.0, 100.0 * len(rankset_of), len(rankset_of))
    return SubbatchProblem(contexts, np.array(rankset_of), 2, np.zeros(0), costs)


def costs(gpu: list[float], pim: list[float]) -> Costs:
    return Costs(np.array([gpu]), np.array([pim]))


def test_a_request_loads_its_rankset_as_if_all_held_as_much() -> None:
    instance = problem([0, 1, 0], costs([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]))
    assert instance.loads.tolist() == [[200, 0], [0, 400], [600, 0]]

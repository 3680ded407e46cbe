"""A line that never counts is dropped, and the highest of the rest is the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Port
from nearkv.solvers.shares.lines import Line, _undominated, envelope


def highest(lines: list[Line], share: float) -> NDArray[np.float64]:
    """The maximum of lines at a share."""
    values = [(1 - share) * np.asarray(line.start) + share * np.asarray(line.end) for line in lines]
    maximum: NDArray[np.float64] = np.max(np.broadcast_arrays(*values), axis=0)
    return maximum


def test_dropping_lines_changes_no_maximum() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        lines = [Line(*random.integers(0, 4, (2, 3)).astype(float)) for _ in range(6)]
        kept = _undominated(lines)
        for share in (0.0, 0.3, 1.0):
            np.testing.assert_array_equal(highest(kept, share), highest(lines, share))


def test_a_line_below_another_at_every_point_is_dropped() -> None:
    low, high = Line(np.array([1.0, 2.0]), 1.0), Line(np.array([1.0, 3.0]), 1.0)
    crossing = Line(np.array([2.0, 0.0]), 0.0)
    assert _undominated([low, high, crossing]) == [high, crossing]
    assert _undominated([high, crossing, low]) == [high, crossing]


def test_layers_repeat_as_often_at_both_ends() -> None:
    """Equal counts of their own are as good as one count; others have no line between them."""
    read = Port("ssd.flash", "read", 2.0)
    start, end = np.array([3.0, 4.0]) * read(2.0), np.array([3.0, 4.0]) * read(6.0)
    lines = envelope(start, end)
    ((first, last),) = [(line.start, line.end) for line in lines.lines]
    assert (np.asarray(lines.times) * first).tolist() == [3, 4]
    assert (np.asarray(lines.times) * last).tolist() == [9, 12]
    with pytest.raises(ValueError, match="number of repetitions"):
        envelope(start, np.array([3.0, 5.0]) * read(6.0))

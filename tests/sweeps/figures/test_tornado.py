"""A tornado has the widest number on top, and its bars begin at the prediction."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from nearkv.sweeps.figures import plot


def test_a_tornado_has_the_widest_number_on_top() -> None:
    table = pd.DataFrame(
        {
            "number": ["narrow", "wide", "idle", "fixed"],
            "value": [0.8, 30.0, 2.0, 1.0],
            "unit": ["1", "us", "1", "1"],
            "low": [0.7, 10.0, 1.0, None],
            "high": [0.9, 100.0, 3.0, None],
            "step_ms": [10.0] * 4,
            "step_ms_at_low": [9.0, 8.0, 10.0, None],
            "step_ms_at_high": [11.0, 17.0, 10.0, None],
        }
    )
    axes = plot.tornado(table)
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == ["wide\n30 (10 to 100) us", "narrow\n0.8 (0.7 to 0.9)"]
    assert axes.yaxis_inverted()
    assert spans(axes) == [[(10.0, -2.0), (10.0, -1.0)], [(10.0, 7.0), (10.0, 1.0)]]
    assert axes.get_xlabel() == "Step (ms)"


def test_shares_of_the_variance_begin_at_zero() -> None:
    table = pd.DataFrame({"number": ["a", "b"], "first": [0.5, 0.1], "total": [0.7, 0.2]})
    axes = plot.tornado(table)
    assert spans(axes) == [[(0.0, 0.7), (0.0, 0.2)], [(0.0, 0.5), (0.0, 0.1)]]
    assert axes.get_xlabel() == "Share of the variance"


def spans(axes: Axes) -> list[list[tuple[float, float]]]:
    """Where each bar begins and how far it goes, a list a series."""
    return [
        [(bar.get_x(), bar.get_width()) for bar in group if isinstance(bar, Rectangle)]
        for group in axes.containers
    ]

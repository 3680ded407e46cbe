"""A tornado has the widest number on top."""

from __future__ import annotations

import pandas as pd
from matplotlib.patches import Rectangle

from nearkv.sweeps.figures import plot


def test_a_tornado_has_the_widest_number_on_top() -> None:
    table = pd.DataFrame(
        {
            "number": ["narrow", "wide", "fixed"],
            "step_ms_at_low": [9.0, 5.0, None],
            "step_ms_at_high": [11.0, 15.0, None],
        }
    )
    axes = plot.tornado(table)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["narrow", "wide"]
    widths = [[bar.get_width() for bar in group if isinstance(bar, Rectangle)]
              for group in axes.containers]  # fmt: skip
    assert widths == [[-1.0, -5.0], [1.0, 5.0]]
    assert axes.get_xlabel() == "Step (ms)"

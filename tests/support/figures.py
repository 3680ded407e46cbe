"""Helpers of tests of figures: a table, and the marks that are drawn of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

TABLE = pd.DataFrame(
    {
        "system": ["slow", "fast", "slow", "fast"],
        "context_tok": [1024, 1024, 65536, 65536],
        "status": ["ok", "ok", "ok", "infeasible"],
        "decode_tok_s": [2.0, 6.0, 1.0, float("nan")],
    }
)


def heights(axes: Axes) -> list[list[float]]:
    """Heights of the bars of every series."""
    series = [group for group in axes.containers if isinstance(group, BarContainer)]
    return [[bar.get_height() for bar in group if isinstance(bar, Rectangle)] for group in series]


def tops(axes: Axes) -> list[float]:
    """Upper ends of all bars."""
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [bar.get_y() + bar.get_height() for bar in bars]


def vertical_segments(axes: Axes) -> list[NDArray[np.float64]]:
    """Ends of every vertical line that is drawn, a row an end."""
    paths = [path for group in axes.collections for path in group.get_paths()]
    ends = [np.asarray(path.vertices, dtype=float) for path in paths]
    return [end for end in ends if len(end) == 2]

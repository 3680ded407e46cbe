"""Lines of one column over another, with bands where the table has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.labels import label_of, short_number
from nearkv.sweeps.figures.series import axis_of, cells, levels
from nearkv.sweeps.figures.style import colour, line_style, new_axes, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LOGARITHMIC_SPAN = 8.0
"""Axes whose largest number is at least this many times the smallest are logarithmic."""

MOST_TICKS = 20
"""Of more points than this, not every one has a tick."""


@styled
def lines(
    table: pd.DataFrame,
    value: str = "throughput_tok_s",
    *,
    over: str = "",
    by: str = "system",
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Draw one line a value of `by` along the numbers of `over`.

    A line breaks where its system does not fit; the place is marked with a cross on the axis.

    Args:
        table: a row for every point.
        value: the column that is drawn.
        over: the column of numbers along the axis; default: the one that varies.
        by: the column whose values are lines.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist or holds no numbers, or several rows share one point.

    Example:
        >>> import nearkv
        >>> table = nearkv.sweep("hilos", model="opt-66b", context="8k:128k:x2")
        >>> axes = nearkv.plot.lines(table, "step_ms")
    """
    over = axis_of(table, over, by)
    marks = cells(table, value, over, by)
    try:
        places = np.array(sorted(float(level) for level in levels(table, over)))
    except (TypeError, ValueError):
        raise InputError(f"{over} holds names, not numbers; draw it as bars") from None
    target = new_axes(axes, width)
    for index, name in enumerate(levels(table, by)):
        row = [marks.get((place, name)) for place in places]
        heights = np.array([cell.value if cell else np.nan for cell in row])
        target.plot(places, heights, label=str(name), **line_style(index))
        low = np.array([cell.low if cell else np.nan for cell in row])
        high = np.array([cell.high if cell else np.nan for cell in row])
        if np.any(np.isfinite(low)):
            target.fill_between(
                places, low, high, color=colour(index), alpha=0.2, linewidth=0
            )
        missing = [p for p, cell in zip(places, row, strict=True) if cell and cell.mark]
        target.plot(
            missing,
            np.zeros(len(missing)),
            "x",
            color=colour(index),
            transform=target.get_xaxis_transform(),
            clip_on=False,
        )
    _scale(target, places)
    target.set_xlabel(label_of(over))
    target.set_ylabel(label_of(value))
    target.legend(frameon=False)
    return target


def _scale(axes: Axes, places: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """Make axes over wide spans logarithmic, along x only where gaps differ; ticks are points."""
    gaps = np.diff(places)
    even = len(gaps) > 1 and np.allclose(gaps, gaps[0])
    if not even and places[0] > 0 and places[-1] / places[0] >= LOGARITHMIC_SPAN:
        axes.set_xscale("log", base=2)
    ticks = places[:: 1 + len(places) // MOST_TICKS]
    axes.set_xticks(ticks, [short_number(place) for place in ticks], minor=False)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if low > 0 and high / low >= LOGARITHMIC_SPAN:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)

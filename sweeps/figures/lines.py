"""Lines of one column over another, with bands where the table has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.figures.series import (
    NOTHING,
    Cell,
    axis_of,
    cells,
    check_no_names,
    everywhere,
    levels,
)
from nearkv.sweeps.figures.style import (
    colour,
    line_style,
    log_scale,
    most_ticks,
    new_axes,
    styled,
)
from nearkv.sweeps.tables.labels import label_of, short_number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LOGARITHMIC_SPAN = 8.0
"""Axes whose largest number is at least this many times the smallest are logarithmic."""


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
    """Draw one line per value of `by` along the numbers of `over`.

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
        >>> table = nearkv.sweep(systems="hilos", model="opt-66b", context="8k:128k:x2")
        >>> axes = nearkv.plot.lines(table, "step_ms")
    """
    over = axis_of(table, over, by)
    table = everywhere(table, over, by)
    marks = cells(table, value, over, by)
    check_no_names(table, over, advice="draw it as bars")
    places = np.array(sorted(float(level) for level in levels(table, over)))
    target = new_axes(axes, width)
    for index, name in enumerate(levels(table, by)):
        row = [marks.get((place, name), NOTHING) for place in places]
        _draw_line(target, index, str(name), places, row)
    _scale(target, places)
    target.set_xlabel(label_of(over))
    target.set_ylabel(label_of(value))
    target.legend(frameon=False)
    return target


def _draw_line(
    axes: Axes,
    index: int,
    name: str,
    places: NDArray[np.float64],
    row: Sequence[Cell],
) -> None:
    """Draw the line of one value of `by`, its band, and crosses where it does not fit."""
    shade = colour(index)
    heights = [cell.value for cell in row]
    axes.plot(places, heights, label=name, **line_style(index))
    if any(cell.banded for cell in row):
        low = [cell.low for cell in row]
        high = [cell.high for cell in row]
        axes.fill_between(places, low, high, color=shade, alpha=0.2, linewidth=0)
    missing = [place for place, cell in zip(places, row, strict=True) if cell.mark]
    across = axes.get_xaxis_transform()  # crosses on the axis, wherever that is
    if missing:
        heights = [0.0] * len(missing)
        axes.plot(missing, heights, "x", color=shade, transform=across, clip_on=False)


def _scale(axes: Axes, places: NDArray[np.float64]) -> None:
    """Make axes over wide spans logarithmic, along x only where gaps differ; ticks are points."""
    gaps = np.diff(places)
    even = len(gaps) > 1 and np.allclose(gaps, gaps[0])
    if not even and places[0] > 0 and places[-1] / places[0] >= LOGARITHMIC_SPAN:
        log_scale(axes, "x", base=2)
    ticks = places[:: 1 + len(places) // most_ticks(axes)]
    axes.set_xticks(ticks, [short_number(place) for place in ticks], minor=False)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    finite = np.isfinite(low) and np.isfinite(high)
    if finite and low > 0 and high / low >= LOGARITHMIC_SPAN:
        log_scale(axes, "y")
    else:
        axes.set_ylim(bottom=0)

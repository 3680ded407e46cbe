"""Lines of one column over another, with bands where the table has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.sweeps.figures.series import (
    axis_of,
    check_no_names,
    distinct_values,
    marks_along,
    marks_of,
    repeated_where_blank,
)
from nearkv.sweeps.figures.style import (
    SERIES_MARKERS,
    Look,
    figure_of,
    legend_above,
    log_scale,
    looks,
    most_ticks,
    new_axes,
    say_empty,
    say_unequal,
    styled,
    without_legend,
)
from nearkv.sweeps.tables.labels import label_of, short_number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

HEADROOM = 0.06
"""Share of a linear axis above the highest point, which a marker needs."""

CROSS_HEIGHT = 0.05
"""Height of a row of crosses [share of the axes]."""

LETTER_HEIGHT = 0.1
"""Height of a line of small text [inch]."""

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

    A line breaks where its system does not fit; the place is marked with a cross above.

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
    table = repeated_where_blank(table, over, by)
    marks = marks_of(table, value, over, by)
    check_no_names(table, over, advice="draw it as bars")
    places = np.array(sorted(float(level) for level in distinct_values(table, over)))
    target = new_axes(axes, width)
    names = distinct_values(table, by)
    lacking = []
    for name, look in zip(names, looks(names), strict=True):
        row = marks_along(marks, name, places.tolist())
        _draw_line(target, look, str(name), row)
        missing = row.index[row["mark"].fillna("") != ""]
        lacking += [(missing.tolist(), look)] if len(missing) else []
    for text in filter(None, marks["mark"].unique()):
        target.plot([], [], "x", color="0.4", label=text)
    _scale(target, places)
    _cross_above(target, lacking)
    target.set(xlabel=label_of(over), ylabel=label_of(value))
    say_empty(target, table, value)
    legend_above(target, by)
    if len(names) > len(SERIES_MARKERS):
        _name_at_ends(target)
    if axes is None:
        say_unequal(target, table)
    return target


def _draw_line(axes: Axes, look: Look, name: str, row: pd.DataFrame) -> None:
    """Draw the line of one value of `by`, and its band."""
    axes.plot(row.index, row["value"], label=name, **look.line)
    if row[["low", "high"]].notna().all(axis=1).any():
        band: dict[str, Any] = {"color": look.colour, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(row.index, row["low"], row["high"], **band)


def _cross_above(axes: Axes, lacking: Sequence[tuple[Sequence[float], Look]]) -> None:
    """Cross out the places where lines have no value, a row a line, above all that is drawn."""
    scale = axes.yaxis.get_transform()
    low, high = scale.transform(axes.get_ylim())
    highest = low + (high - low) / (1 - CROSS_HEIGHT * len(lacking))
    axes.set_ylim(top=float(scale.inverted().transform(highest)))
    for index, (places, look) in enumerate(lacking):
        heights = [1 - CROSS_HEIGHT * (index + 0.5)] * len(places)
        across = axes.get_xaxis_transform()
        axes.plot(places, heights, "x", color=look.colour, transform=across)


def _name_at_ends(axes: Axes) -> None:
    """Write the name of every line at its right end in place of the legend, none on another."""
    to_axes = axes.transData - axes.transAxes
    ends: list[tuple[float, Any]] = []
    named: list[Any] = axes.get_legend_handles_labels()[0]
    for line in named:
        drawn = np.column_stack([line.get_xdata(), line.get_ydata()])
        finite = drawn[np.isfinite(drawn[:, 1])]
        ends += [(to_axes.transform(last)[1], line) for last in finite[-1:]]
    gap = LETTER_HEIGHT * figure_of(axes).dpi / axes.bbox.height
    lowest = -np.inf
    style: dict[str, Any] = {"xycoords": "axes fraction", "va": "center", "fontsize": 6}
    for height, line in sorted(ends, key=lambda end: end[0]):
        lowest = max(height, lowest + gap)
        axes.annotate(f"  {line.get_label()}", (1, lowest), color=line.get_color(), **style)
    without_legend(axes)


def _scale(axes: Axes, places: Numbers) -> None:
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
    elif finite and high > 0:
        axes.set_ylim(0, high * (1 + HEADROOM))  # no marker is cut
    else:
        axes.set_ylim(bottom=0)

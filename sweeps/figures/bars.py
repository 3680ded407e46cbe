"""Bars: grouped by system, and the tornado of how far each uncertain number moves a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import InputError, unknown, warn
from nearkv.sweeps.figures.series import (
    NUMBERS,
    axis_of,
    check_drawable,
    check_no_names,
    columns_of,
    distinct_values,
    marks_along,
    marks_of,
    repeated_where_blank,
)
from nearkv.sweeps.figures.style import (
    POINTS_AN_INCH,
    Look,
    legend_above,
    log_scale,
    looks,
    new_axes,
    panel_width,
    say_empty,
    say_unequal,
    spelled,
    styled,
)
from nearkv.sweeps.tables.labels import label_of, short_number, without_unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

GROUP_WIDTH = 0.8
"""Share of a group's place on the axis that its bars fill."""

BAR_WIDTH = 0.92
"""Share of a bar's place that it fills."""


AXES_SHARE = 0.85
"""Share of a panel's width that its axes have."""

LEGIBLE = 6.0
"""Width of a bar [point] from which on it has a pattern, and text upright on it is read."""

MOST_BARS = 400
"""Bars of a figure; of more, none is wide enough to be seen."""

LEAST_LABELLED = 1 / 50
"""Bars below this share of the highest are hardly seen; their number stands on them."""


@styled
def bars(
    table: pd.DataFrame,
    value: str = "throughput_tok_s",
    *,
    over: str = "",
    by: str = "system",
    baseline: str = "",
    log: bool = False,
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Draw one group of bars a value of `over`, one bar a value of `by`.

    Cells that do not fit are marked OOM, those without a model n/m. On a linear scale, bars too
    small to be seen carry their number. Bands are drawn where the table
    has columns `<value>_p05` and `<value>_p95`, or others that end in a percentile.

    Args:
        table: a row for every bar.
        value: the column that is drawn.
        over: the column along the axis; default: the one that varies.
        by: the column whose values are bars side by side.
        baseline: value of `by` that every group is divided by.
        log: make the scale of the bars logarithmic.
        width: of a new figure, `column` (3.33 inch) or `page` (7 inch).
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column or the baseline does not exist, or several rows share one bar.

    Example:
        >>> import nearkv
        >>> table = nearkv.compare(["flexgen-ssd", "hilos"], model="opt-66b", context="8k,64k")
        >>> axes = nearkv.plot.bars(table, "decode_tok_s", baseline="flexgen-ssd")
    """
    over = axis_of(table, over, by)
    table = repeated_where_blank(table, over, by)
    marks = marks_of(table, value, over, by)
    groups = distinct_values(table, over)
    series = distinct_values(table, by)
    count = len(groups) * len(series)
    if count > MOST_BARS:
        raise InputError(
            f"{count:,} bars are more than a figure shows (at most {MOST_BARS}); draw lines, "
            "or keep fewer rows"
        )
    if baseline:
        marks = _normalised(marks, series, baseline)
    target = new_axes(axes, width)
    points = POINTS_AN_INCH * AXES_SHARE * panel_width(target) * GROUP_WIDTH / count
    for index, (name, look) in enumerate(zip(series, looks(series), strict=True)):
        row = marks_along(marks, name, groups)
        _draw_series(target, row, (index, len(series), points), str(name), look)
    if log:
        log_scale(target, "y")
    elif points >= LEGIBLE:
        _number_small(target, marks["value"].max())
    target.set(xlabel=label_of(over), ylabel=label_of(value))
    if baseline:
        relative = f"{without_unit(label_of(value))},\nrelative to {spelled(baseline)}"
        target.set_ylabel(relative)
        target.axhline(1.0, color="black", linewidth=0.6)
    ticks = [tick_of(group) for group in groups]
    target.set_xticks(range(len(groups)), ticks)
    target.set_xlim(-0.5, len(groups) - 0.5)
    say_empty(target, table, value)
    if len(series) > 1:
        legend_above(target, by)
    if axes is None:
        say_unequal(target, table)
    return target


def _normalised(marks: pd.DataFrame, series: Sequence[Any], baseline: str) -> pd.DataFrame:
    """Divide every group by the baseline's value in it, a band by the same number.

    A group in which the baseline has no value above 0 is blank, and a warning says so.
    """
    by_text = {
        f"{name:g}" if isinstance(name, float) else str(name): name for name in series
    }
    named = str(spelled(str(baseline)))
    if named not in by_text:
        raise unknown("baseline", str(baseline), list(by_text))
    own = marks[marks["by"] == by_text[named]].set_index("over")["value"]
    unit = marks["over"].map(own)
    is_blank = marks["value"].notna() & ~(unit > 0)
    if is_blank.any():
        groups = dict.fromkeys(map(tick_of, marks["over"][is_blank]))
        lacks = f"has no value above 0 at {', '.join(groups)}"
        warn(f"baseline {baseline} {lacks}: what is compared with it is blank there")
    numbers = {name: marks[name] / unit.mask(is_blank) for name in NUMBERS}
    return marks.assign(mark=marks["mark"].mask(is_blank, "n/a"), **numbers)


def _draw_series(
    axes: Axes,
    row: pd.DataFrame,
    place_in_group: tuple[int, int, float],
    name: str,
    look: Look,
) -> None:
    """Draw the bars of one value of `by` over all groups, which are 1 apart.

    Args:
        axes: where to draw.
        row: what stands in each group.
        place_in_group: place of the bar in its group, bars of a group, and their width [point].
        name: for the legend.
        look: of the bars.
    """
    index, count, points = place_in_group
    step = GROUP_WIDTH / count
    places = np.arange(len(row)) + (index + 0.5) * step - GROUP_WIDTH / 2
    value, low, high = row[[*NUMBERS]].to_numpy(float).T
    axes.bar(places, value, step * BAR_WIDTH, label=name, **look.bar)
    for one in np.flatnonzero(np.isfinite(value + low + high)):
        axes.vlines(places[one], low[one], high[one], color="black", linewidth=0.8)
    for place, text in zip(places, row["mark"].where(np.isnan(value)), strict=True):
        if isinstance(text, str):  # not where the table has no row
            mark(axes, place, text or "-", min(points, LEGIBLE))


def _number_small(axes: Axes, highest: float) -> None:
    """Write the number on every bar that is too small to be seen."""
    for bar in axes.patches:
        height = bar.get_height()  # type: ignore[attr-defined]
        if 0 < height < highest * LEAST_LABELLED:
            middle = bar.get_x() + bar.get_width() / 2  # type: ignore[attr-defined]
            mark(axes, middle, f"{height:.2g}")


def mark(axes: Axes, place: float, text: str, size: float = LEGIBLE) -> None:
    """Write what stands in place of a bar, upright on the axis, in letters of a size [point]."""
    axes.annotate(
        text,
        (place, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=size,
    )


def tick_of(group: object) -> str:
    """Return the name of a group below its bars."""
    if isinstance(group, int | float | np.number):
        return short_number(float(group))
    return str(group)


MOST_NUMBERS = 12
"""A tornado chart shows at most this many numbers, the widest."""


@styled
def tornado(
    table: pd.DataFrame,
    *,
    width: str = "column",
    axes: Axes | None = None,
) -> Axes:
    """Draw how far each uncertain number moves a prediction, the widest on top.

    Bars begin at the prediction. Of a table of Sobol indices they are shares of the variance.

    Args:
        table: rows of `sensitivity`: `number`, the prediction, and it at both ends of the range.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: the table is not one of `sensitivity`, or no number has a range.

    Example:
        >>> import nearkv
        >>> axes = nearkv.plot.tornado(nearkv.sensitivity("hilos", model="opt-66b"))
    """
    check_drawable(table, "number")
    target = new_axes(axes, width)
    if "total" in table:
        ends = {"with others": "total", "alone": "first"}
        _draw_rows(target, table, [*table["number"]], ends, 0.0)
        target.set_xlabel("Share of the variance")
        return target
    measured = [name for name in columns_of(table) if name.endswith("_at_low")]
    if not measured:
        raise InputError(
            "the table has no column that ends in _at_low; make it with sensitivity"
        )
    column = measured[0].removesuffix("_at_low")
    low, high = f"{column}_at_low", f"{column}_at_high"
    check_drawable(table, low, high, column)
    check_no_names(table, low, high)
    moving = table[(table[low] != table[high]) & table[low].notna() & table[high].notna()]
    if moving.empty:
        raise InputError("no number of the table has a range; there is nothing to draw")
    span = (moving[high] - moving[low]).abs()
    rows = moving.loc[span.sort_values(ascending=False).index]
    names = [_ranged(row) for row in rows.to_dict("records")]
    center = float(rows[column].iloc[0])
    _draw_rows(target, rows, names, {"low end": low, "high end": high}, center)
    target.axvline(center, color="black", linewidth=0.8)
    target.set_xlabel(label_of(column))
    return target


def _draw_rows(
    axes: Axes,
    rows: pd.DataFrame,
    names: Sequence[str],
    ends: Mapping[str, str],
    center: float,
) -> None:
    """Draw the first rows, two bars each from the center to an end; the first row is on top."""
    widest = rows[:MOST_NUMBERS]
    places = np.arange(len(widest))
    heights = 0.7 - 0.4 * np.arange(2) * (center == 0)  # shares lie on each other
    for look, height, (name, column) in zip(
        looks([*ends]), heights, ends.items(), strict=True
    ):
        lengths = widest[column] - center
        axes.barh(places, lengths, height, left=center, label=name, **look.bar)
    axes.set_yticks(places, names[:MOST_NUMBERS])
    axes.invert_yaxis()
    legend_above(axes)


def _ranged(row: Mapping[Any, Any]) -> str:
    """Return the name of a number with its value, its range and their unit."""
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    low, value, high = (short_number(row[name]) for name in ("low", "value", "high"))
    return f"{row['number']}\n{value} ({low} to {high}){unit}"

"""Grouped bars, normalised to a named baseline where one is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import unknown
from nearkv.sweeps.figures.labels import label_of, short_number
from nearkv.sweeps.figures.series import Cell, axis_of, cells, levels
from nearkv.sweeps.figures.style import bar_style, new_axes, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

GROUP_WIDTH = 0.8
"""Share of a group's place on the axis that its bars fill."""


@styled
def bars(
    table: pd.DataFrame,
    value: str = "throughput_tok_s",
    *,
    over: str = "",
    by: str = "system",
    baseline: str = "",
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Draw one group of bars a value of `over`, one bar a value of `by`.

    Cells that do not fit are marked OOM, those without a model n/m. Bands are drawn where the table
    has columns `<value>_p05` and `<value>_p95`.

    Args:
        table: a row for every bar.
        value: the column that is drawn.
        over: the column along the axis; default: the one that varies.
        by: the column whose values are bars side by side.
        baseline: value of `by` that every group is divided by.
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
    marks = cells(table, value, over, by)
    groups, series = levels(table, over), levels(table, by)
    if baseline:
        marks = _normalised(marks, groups, series, baseline)
    target = new_axes(axes, width)
    for index, name in enumerate(series):
        _draw_series(
            target, index, len(series), [marks.get((group, name)) for group in groups], name
        )
    _finish(target, groups, value, over, baseline)
    if len(series) > 1:
        target.legend(
            ncols=min(len(series), 4), frameon=False, loc="lower left", bbox_to_anchor=(0, 1)
        )
    return target


def _normalised(
    marks: Mapping[tuple[Any, Any], Cell],
    groups: Sequence[Any],
    series: Sequence[Any],
    baseline: str,
) -> dict[tuple[Any, Any], Cell]:
    """Divide every group by the baseline's value in it; a band by the same number."""
    if baseline not in series:
        raise unknown("baseline", baseline, [str(name) for name in series])
    shown: dict[tuple[Any, Any], Cell] = {}
    for (group, name), cell in marks.items():
        reference = marks.get((group, baseline))
        unit = reference.value if reference else float("nan")
        shown[group, name] = Cell(cell.value / unit, cell.mark, cell.low / unit, cell.high / unit)
    return shown


def _draw_series(
    axes: Axes, index: int, count: int, row: Sequence[Cell | None], name: object
) -> None:
    """Draw the bars of one value of `by` over all groups."""
    step = GROUP_WIDTH / count
    places = np.arange(len(row)) + (index + 0.5) * step - GROUP_WIDTH / 2
    heights = np.array([cell.value if cell else np.nan for cell in row])
    axes.bar(places, heights, step * 0.92, label=str(name), **bar_style(index))
    for place, cell in zip(places, row, strict=True):
        if cell is None:
            continue
        if not np.isfinite(cell.value):
            _mark(axes, place, cell.mark or "-")
        elif np.isfinite(cell.low) and np.isfinite(cell.high):
            axes.vlines(place, cell.low, cell.high, color="black", linewidth=0.8)


def _mark(axes: Axes, place: float, text: str) -> None:
    """Write what stands in place of a bar, upright on the axis."""
    axes.annotate(
        text,
        (place, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=6,
    )


def _finish(axes: Axes, groups: Sequence[Any], value: str, over: str, baseline: str) -> None:
    """Label the axes: units in brackets, the baseline by name."""
    axes.set_xticks(range(len(groups)), [_tick(group) for group in groups])
    axes.set_xlabel(label_of(over))
    axes.set_ylabel(f"{label_of(value)},\nrelative to {baseline}" if baseline else label_of(value))
    if baseline:
        axes.axhline(1.0, color="black", linewidth=0.6)


def _tick(group: object) -> str:
    if isinstance(group, int | float | np.number):
        return short_number(float(group))
    return str(group)

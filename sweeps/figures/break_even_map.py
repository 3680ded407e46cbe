"""Contour map of a break-even: the value of a number at which each cell changes hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.figures.policy_map import number_places
from nearkv.sweeps.figures.region_map import (
    BUDGET,
    CAPTION_SIZE,
    PANEL_HEIGHT,
    TICK_SIZE,
)
from nearkv.sweeps.figures.series import check_drawable, check_no_names, distinct_values
from nearkv.sweeps.figures.style import PAGE_WIDTHS, load_pyplot, styled
from nearkv.sweeps.tables.labels import short_number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LEVELS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Values of contours in each decade."""
LABEL_ROOM = (2.0, 1.0)
"""Weights of both axes in the distance of a contour's label from the numbers."""
SHADE = 0.85
"""Grey of a cell that the owners win as stated."""


@styled
def break_even_map(
    table: pd.DataFrame,
    value: str = "",
    *,
    x: str = "context_tok",
    y: str = "batch",
    by: str = "",
    boundaries: pd.DataFrame | None = None,
    width: str = "page",
) -> Axes:
    """Draw for each budget the value at which cells change hands, as a number in each and contours.

    Grey cells are those that the owners of the number win as stated. Where no value changes who
    wins, the cell says `always` or `never`.

    Args:
        table: of `nearkv.design` with a `break_even`.
        value: the column of the value; default: `usd_per_gb` of a price, `at` of others.
        x, y: the columns of numbers along the axes.
        by, boundaries: of maps that tell who wins; none here.
        width: `column` or `page`.

    Returns:
        The axes of the first map, to restyle.

    Raises:
        InputError: a column does not exist or holds no numbers, or there are several numbers.
    """
    if by or boundaries is not None:
        raise InputError("a map of a break-even has no --by and no --boundaries")
    check_drawable(table, x, y, "number", "owner_wins", "at", "usd_per_gb")
    check_known("width", [width], PAGE_WIDTHS)
    value = value or ("usd_per_gb" if table["usd_per_gb"].notna().any() else "at")
    check_drawable(table, value)
    check_no_names(table, value)
    (number, *others) = distinct_values(table, "number")
    if others:
        raise InputError(
            f"the table has {number} and {others[0]}; keep one with --where number={number}"
        )
    if BUDGET not in table:
        table = table.assign(**{BUDGET: np.inf})
    budgets = distinct_values(table, BUDGET)
    figure = load_pyplot().figure(
        figsize=(PAGE_WIDTHS[width], PANEL_HEIGHT), layout="constrained"
    )
    panels = figure.subplots(1, len(budgets), squeeze=False)[0]
    for budget, panel in zip(budgets, panels, strict=True):
        rows = table[table[BUDGET] == budget]
        cells = rows.pivot_table([value, "owner_wins"], y, x, dropna=False)
        wins = cells["owner_wins"].to_numpy(bool)
        values = np.full(wins.shape, np.nan)
        if value in cells:
            values = cells[value].to_numpy(float)
        _draw_cells(panel, wins, values)
        _draw_contours(panel, values)
        number_places(panel, rows, x, y)
        panel.tick_params(labelsize=TICK_SIZE)
        panel.set(title=f"{budget:,.0f} USD" if np.isfinite(budget) else "")
    for panel in panels[1:]:
        panel.set_ylabel("")
    unit = (
        "USD/GB"
        if value.startswith("usd_per_gb")
        else next(iter(table["unit"].dropna()), "")
    )
    caption = f"{number} [{unit}] at which its owners win or lose; grey: they win now."
    figure.supxlabel(caption, x=0.01, horizontalalignment="left", fontsize=CAPTION_SIZE)
    first: Axes = panels[0]
    return first


def _draw_cells(axes: Axes, wins: Numbers, values: Numbers) -> None:
    """Shade the cells that the owners win, and write the value in each."""
    shade = np.where(wins, SHADE, 1.0)
    axes.imshow(shade, cmap="grey", vmin=0, vmax=1, origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = short_number(float(f"{value:.3g}"))
        if np.isnan(value):
            text = "always" if wins[row, column] else "never"
        # a contour that passes ends beside it
        ground = {"color": str(shade[row, column]), "pad": 0.6}
        label = axes.text(column, row, text, ha="center", va="center", fontsize=TICK_SIZE)
        label.set_bbox(ground)


def _draw_contours(axes: Axes, values: Numbers) -> None:
    """Draw lines of equal value between the middles of cells, where four neighbours have one."""
    known = np.isfinite(values)
    squares = known[1:, 1:] & known[1:, :-1] & known[:-1, 1:] & known[:-1, :-1]
    if not squares.any():
        return
    logarithms = np.log10(values)
    low, high = np.nanmin(logarithms), np.nanmax(logarithms)
    decades = 10.0 ** np.arange(np.floor(low), np.ceil(high) + 1)
    levels = np.log10(np.outer(decades, LEVELS).ravel())
    levels = levels[(levels > low) & (levels < high)]
    if len(levels):
        style: dict[str, Any] = {"colors": "0.3", "linestyles": "--", "linewidths": 0.7}
        lines = axes.contour(logarithms, levels=levels, **style)
        places = []
        for line in (line for level in lines.allsegs for line in level):
            # vertices lie between two cells; cells are wide, so that beside a number there is room
            distance = np.abs(line - np.round(line)) @ LABEL_ROOM
            places.append(line[np.argmax(distance)])
        axes.clabel(
            lines,
            fmt=lambda level: f"{10**level:.3g}",
            fontsize=TICK_SIZE - 0.5,
            manual=places,
        )

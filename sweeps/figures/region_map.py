"""Maps of a grid of `design`: which technology wins where, and the value at which that changes."""

from __future__ import annotations

import string
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.figures.policy_map import (
    BestPolicy,
    best_of,
    check_boundaries,
    draw_boundaries,
    number_places,
)
from nearkv.sweeps.figures.series import (
    SPEED,
    check_drawable,
    check_no_names,
    check_numbers,
    distinct_values,
)
from nearkv.sweeps.figures.style import PAGE_WIDTHS, colour, load_pyplot, styled
from nearkv.sweeps.tables.labels import label_of, short_number, without_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

BUDGET, SHARE = "budget_usd", "best_share"
"""Columns of a grid: the most that a machine may cost, and the share of draws that it wins."""
SURE = 0.9
"""Share of the draws from which on a winner is sure [1]."""
OPAQUE = 0.45
"""Opacity of a colour on which black letters are read."""
TICK_SIZE = 5.5
"""Height of numbers along a map, of which several stand in a row [point]."""
PANEL_HEIGHT = 2.2
"""Height of a map [inch]."""
CAPTION_SIZE = 6.0
"""Height of the letters below a map [point]."""
BAR_REACH = 0.28
"""Half the length of a bar where the best changes, as a share of a cell."""
MOST_SHADED = 10.0
"""Margin from which on its shade is darkest."""
LEVELS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Values of contours in each decade."""
LABEL_ROOM = (2.0, 1.0)
"""Weights of both axes in the distance of a contour's label from the numbers."""
SHADE = 0.85
"""Grey of a cell that the owners win as stated."""


@styled
def region_map(
    table: pd.DataFrame,
    value: str = "",
    *,
    x: str = "context_tok",
    y: str = "batch",
    by: str = "",
    boundaries: pd.DataFrame | None = None,
    width: str = "page",
) -> Axes:
    """Draw a map for each budget: a letter for the best of `by` in every cell, below it the margin.

    Cells that the best wins in less than 90 % of the draws are hatched, those that no machine
    serves have a dash. Letters and hatches are read in grey.

    Args:
        table: of `nearkv.design` over a grid.
        value: the column that is compared; default: `throughput_tok_s`.
        x, y: the columns of numbers along the axes.
        by: the column whose values compete; default: the technology.
        boundaries: the borders of the grid, which are drawn where exactly they lie.
        width: `column` or `page`.

    Returns:
        The axes of the first map, to restyle.

    Raises:
        InputError: a column does not exist or holds no numbers.
    """
    by, value = by or "technology", value or SPEED
    check_drawable(table, value, x, y, by)
    check_numbers(table.dropna(subset=[value]), value)
    if boundaries is not None:
        check_boundaries(boundaries, x, y)
    by_budget = _by_budget(table.assign(**{by: table[by].fillna("").astype(str)}))
    maps = {}
    wins = Counter[str]()
    for budget, rows in by_budget.items():
        best, rivals = best_of(rows, value, (x, y), by), distinct_values(rows, by)
        wins.update(rivals[winner] for winner in best.winner.ravel() if winner >= 0)
        maps[budget] = (best, rivals)
    names = [name for name, _ in wins.most_common()]
    figure, panels = _panels(by_budget, width, 2, (x, y))
    for budget, (upper, lower) in zip(by_budget, panels.T, strict=True):
        rows, (best, rivals) = by_budget[budget], maps[budget]
        order = [names.index(name) if name in names else -1 for name in rivals]
        _draw_winners(upper, best, order)
        if SHARE in rows:
            shares = rows.pivot_table(SHARE, [y, x], by, "max", dropna=False)
            _hatch_unsure(upper, best, shares[rivals].to_numpy(float))
        if boundaries is not None:
            is_here: Any = boundaries.get(BUDGET, budget) == budget
            own = boundaries[is_here] if BUDGET in table else boundaries
            draw_boundaries(upper, own, rows, (x, y), BAR_REACH)
        _write_margins(lower, best)
        upper.set_xlabel("")
    first: Axes = panels[0, 0]
    for index, name in enumerate(names):
        label = f"{string.ascii_uppercase[index]}  {name}"
        first.fill_between([], [], color=colour(index), alpha=OPAQUE, label=label)
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False)
    _write_caption(figure, _caption(value, SHARE in table, boundaries is not None))
    return first


def _by_budget(table: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """The rows of each budget; all of them where there is none."""
    if BUDGET not in table:
        table = table.assign(**{BUDGET: np.inf})
    budgets = distinct_values(table, BUDGET)
    return {budget: table[table[BUDGET] == budget] for budget in budgets}


def _panels(
    by_budget: Mapping[float, pd.DataFrame],
    width: str,
    lines: int,
    columns: tuple[str, str],
) -> tuple[Figure, NDArray[np.object_]]:
    """Axes of maps, (lines, budgets), with the numbers of two columns along them.

    Raises:
        InputError: the width has another name.
    """
    check_known("width", [width], PAGE_WIDTHS)
    size = (PAGE_WIDTHS[width], lines * PANEL_HEIGHT)
    figure = load_pyplot().figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines, len(by_budget), squeeze=False)
    for budget, panels_of_budget in zip(by_budget, panels.T, strict=True):
        for panel in panels_of_budget:
            number_places(panel, by_budget[budget], *columns)
            panel.tick_params(labelsize=TICK_SIZE)
        title = f"{budget:,.0f} USD" if np.isfinite(budget) else ""
        panels_of_budget[0].set_title(title)
    for panel in panels[:, 1:].ravel():
        panel.set_ylabel("")
    return figure, panels


def _write_caption(figure: Figure, text: str) -> None:
    """Write what explains the maps of a figure below them."""
    figure.supxlabel(text, x=0.01, horizontalalignment="left", fontsize=CAPTION_SIZE)


def _caption(value: str, has_shares: bool, has_borders: bool) -> str:
    """Explain the numbers, bars and hatches of the map below it.

    Args:
        value: the column that is compared.
        has_shares: whether cells know their share of draws.
        has_borders: whether borders are drawn.
    """
    caption = f"Below: {without_unit(label_of(value))} of the best over the second's."
    if has_borders:
        caption += " Bars: exact borders between cells."
    if has_shares:
        caption += f" Hatched: best in less than {SURE:.0%} of the draws."
    return caption


def _draw_winners(axes: Axes, best: BestPolicy, order: list[int]) -> None:
    """Colour each cell by its winner, whose letter stands in it; a dash where there is none.

    Args:
        axes: where to draw.
        best: the winners.
        order: place in the legend of each value that competes.
    """
    from matplotlib.colors import to_rgba

    image = np.zeros((*best.winner.shape, 4))
    for (row, column), winner in np.ndenumerate(best.winner):
        letter = "-"
        if winner >= 0:
            image[row, column] = to_rgba(colour(order[winner]), OPAQUE)
            letter = string.ascii_uppercase[order[winner]]
        axes.text(column - 0.4, row + 0.4, letter, ha="left", va="top", fontsize=6)
    axes.imshow(image, origin="lower", aspect="auto", interpolation="nearest")


def _hatch_unsure(axes: Axes, best: BestPolicy, shares: Numbers) -> None:
    """Hatch the cells that the winner wins in less than `SURE` of the draws.

    Args:
        axes: where to draw.
        best: the winners.
        shares: of each cell and value that competes, cells in the order of the map.
    """
    from matplotlib.patches import Rectangle

    winners = np.maximum(best.winner, 0).reshape(-1, 1)
    of_winner = np.take_along_axis(shares, winners, axis=1).reshape(best.winner.shape)
    unsure = (of_winner < SURE) & (best.winner >= 0)
    for row, column in np.argwhere(unsure):
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, hatch="////", linewidth=0, color="0.35")
        )


def _write_margins(axes: Axes, best: BestPolicy) -> None:
    """Write in each cell how many times the second's value the best has, on a shade of it."""
    shade = np.log(np.minimum(best.margin, MOST_SHADED)) / np.log(MOST_SHADED)
    shade = np.where(best.winner >= 0, shade, 0.0)
    axes.imshow(shade, cmap="Greys", vmin=0, vmax=2, origin="lower", aspect="auto")
    for (row, column), margin in np.ndenumerate(best.margin):
        text = f"{margin:.2f}" if np.isfinite(margin) else "only"
        if best.winner[row, column] < 0:
            text = "-"
        axes.text(column, row, text, ha="center", va="center", fontsize=5)


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
    wins, the cell says `always` or `never`; an end of a band that is open has a dash, as has a cell
    that the table lacks.

    Args:
        table: of `nearkv.design` with a `break_even`.
        value: the column of the value; default: `usd_per_gb` of a price, `at` of others.
        x, y: the columns of numbers along the axes.
        by, boundaries: of maps that tell who wins; none here.
        width: `column` or `page`.

    Returns:
        The axes of the first map, to restyle.

    Raises:
        InputError: a column does not exist or holds no numbers, or a cell or the table has several.
    """
    if by or boundaries is not None:
        raise InputError("a map of a break-even has no --by and no --boundaries")
    check_drawable(table, x, y, "number", "owner_wins", "at", "usd_per_gb")
    value = value or ("usd_per_gb" if table["usd_per_gb"].notna().any() else "at")
    check_drawable(table, value)
    check_no_names(table, value)
    number, *others = distinct_values(table, "number")
    if others:
        raise InputError(
            f"the table has {number} and {others[0]}; keep one with --where number={number}"
        )
    by_budget = _by_budget(table)
    figure, panels = _panels(by_budget, width, 1, (x, y))
    for rows, panel in zip(by_budget.values(), panels[0], strict=True):
        if rows.duplicated([x, y]).any():
            raise InputError(f"several rows have one {x} and {y}; keep one with --where")
        cells = rows.set_index([y, x]).sort_index()
        values, turns, wins = (
            cells[name].astype(float).unstack().to_numpy()
            for name in (value, "at", "owner_wins")
        )
        words = np.where(wins == 1, "always", "never")
        words[np.isfinite(turns) | np.isnan(wins)] = "-"
        _draw_cells(panel, wins == 1, values, words)
        _draw_contours(panel, values)
    unit = next(iter(table["unit"].dropna()), "")
    if value.startswith("usd_per_gb"):
        unit = "USD/GB"
    explained = "at which its owners win or lose; grey: they win now."
    _write_caption(figure, f"{number} [{unit}] {explained}")
    first: Axes = panels[0, 0]
    return first


def _draw_cells(
    axes: Axes, wins: Booleans, values: Numbers, words: NDArray[np.str_]
) -> None:
    """Shade the cells that the owners win, and write the value in each, or a word without one."""
    shade = np.where(wins, SHADE, 1.0)
    axes.imshow(shade, cmap="grey", vmin=0, vmax=1, origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = short_number(float(f"{value:.3g}"))
        if np.isnan(value):
            text = str(words[row, column])
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
        for line in (line for level in lines.allsegs for line in level if len(line)):
            # vertices lie between two cells; cells are wide, so that beside a number there is room
            distance = np.abs(line - np.round(line)) @ LABEL_ROOM
            places.append(line[np.argmax(distance)])
        axes.clabel(
            lines,
            fmt=lambda level: f"{10**level:.3g}",
            fontsize=TICK_SIZE - 0.5,
            manual=places,
        )

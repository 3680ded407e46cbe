"""Map of the system (or knob, or placement) that is best over two axes, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Indices, Numbers
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.figures.series import (
    check_drawable,
    check_no_names,
    check_numbers,
    distinct_values,
    repeated_where_blank,
)
from nearkv.sweeps.figures.style import colour, legend_above, new_axes, styled
from nearkv.sweeps.tables.labels import label_of, short_number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FAINT, FULL = 0.25, 0.9
"""Shade of a place where two are equal, and where the best is twice the second or more."""

DOUBLE = 2.0
"""Margin from which on the shade is full."""


@dataclass(frozen=True)
class BestPolicy:
    """The best of every place of a map; arrays of shape (values of y, values of x).

    Attributes:
        winner: index of the best, -1 where none fits.
        margin: its value over the second best's, at least 1; infinite where only one fits [1].
    """

    winner: Indices
    margin: Numbers


@styled
def policy_map(
    table: pd.DataFrame,
    value: str = "throughput_tok_s",
    *,
    x: str = "context_tok",
    y: str = "batch",
    by: str = "system",
    boundaries: pd.DataFrame | None = None,
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Colour every place of two axes by the best value of `by`, darker where its margin is larger.

    Places where nothing fits stay white. Several rows of one `by` at one place count by their best.

    Args:
        table: a row for every place and every value of `by`.
        value: the column that is compared.
        x, y: the columns of numbers along the axes.
        by: the column whose values compete.
        boundaries: rows of `solve crossover` along x, with a column y: where exactly the best
            changes; drawn as lines.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist or holds no numbers.

    Example:
        >>> import nearkv
        >>> systems = ["flexgen-dram", "hilos"]
        >>> table = nearkv.compare(systems, model="opt-30b", batch="1:16:x4", context="1k:16k:x2")
        >>> axes = nearkv.plot.policy_map(table)
    """
    check_drawable(table, value, x, y, by)
    if x == y:
        raise InputError(f"{x} is named for both axes of the map; name another for one")
    table = repeated_where_blank(table, x, y, by)
    check_numbers(table, value)
    places_x = _numbers(table, x)
    places_y = _numbers(table, y)
    best = best_of(table, value, (x, y), by)
    target = new_axes(axes, width)
    for index, name in enumerate(distinct_values(table, by)):
        _shade(target, best, index)
        target.fill_between([], [], color=colour(index), label=str(name))
        _name_region(target, best.winner == index, str(name))
    if boundaries is not None:
        _check_boundaries(boundaries, x, y)
        _draw_boundaries(target, boundaries, places_x, places_y, y)
    texts_x = [short_number(place) for place in places_x]
    texts_y = [short_number(place) for place in places_y]
    target.set_xticks(range(len(texts_x)), texts_x)
    target.set_yticks(range(len(texts_y)), texts_y)
    target.set(xlabel=label_of(x), ylabel=label_of(y))
    legend_above(target)
    return target


def best_of(table: pd.DataFrame, value: str, axes: tuple[str, str], by: str) -> BestPolicy:
    """Return the best value of `by` at every place, and its margin over the second best."""
    x, y = axes
    places = (len(_numbers(table, y)), len(_numbers(table, x)))
    sign = 1.0 if higher_is_better(value) else -1.0
    scored = table.assign(score=sign * table[value])
    grid = scored.pivot_table("score", [y, x], by, "max", dropna=False)
    scores = np.nan_to_num(grid[distinct_values(table, by)].to_numpy(float), nan=-np.inf)
    order = np.sort(scores, axis=1)
    best = order[:, -1]
    second = order[:, -2] if order.shape[1] > 1 else np.full_like(best, -np.inf)
    fits, contested = np.isfinite(best), np.isfinite(second)
    ratio = np.divide(best, second, out=np.full_like(best, np.inf), where=contested)
    # of costs, which are negative here, the second is the larger
    margin = np.maximum(
        ratio, np.divide(1.0, ratio, out=np.ones_like(ratio), where=ratio > 0)
    )
    winner = np.where(fits, scores.argmax(axis=1), -1)
    return BestPolicy(winner.reshape(places), margin.reshape(places))


def _numbers(table: pd.DataFrame, column: str) -> list[float]:
    check_no_names(table, column, advice="a map needs two axes of numbers")
    return sorted(float(level) for level in distinct_values(table, column))


def _shade(axes: Axes, best: BestPolicy, index: int) -> None:
    """Colour the places one value of `by` wins; a margin of 2 and more is full colour."""
    from matplotlib import colors

    won = best.winner == index
    doublings = np.log(best.margin) / np.log(DOUBLE)
    strength = np.clip(doublings, 0.0, 1.0)
    opacity = FAINT + (FULL - FAINT) * strength
    image = np.zeros((*best.winner.shape, 4))
    image[..., :3] = colors.to_rgb(colour(index))
    image[..., 3] = np.where(won, opacity, 0.0)
    axes.imshow(image, origin="lower", aspect="auto", interpolation="nearest")


def _name_region(axes: Axes, won: Booleans, name: str) -> None:
    """Write a name on the place that it wins which lies nearest to the middle of all it wins."""
    places = np.argwhere(won)
    if len(places):
        away = np.abs(places - places.mean(axis=0)).sum(axis=1)
        row, column = places[np.argmin(away)]
        side = {0: "left", won.shape[1] - 1: "right"}.get(int(column), "center")
        inset = {"left": -0.4, "right": 0.4}.get(side, 0.0)
        axes.text(column + inset, row, name, ha=side, va="center", fontsize=6)


def _check_boundaries(boundaries: pd.DataFrame, x: str, y: str) -> None:
    """Refuse crossings along another axis than that of the map."""
    for name in (y, "along", "below", "above"):
        if name not in boundaries.columns:
            made = "make them with solve crossover"
            raise InputError(f"the boundaries have no column {name}; {made}")
    for along in distinct_values(boundaries, "along"):
        if x not in (along, f"{along}_tok"):
            raise InputError(f"the boundaries lie along {along}, and the map's x is {x}")


def _draw_boundaries(
    axes: Axes,
    boundaries: pd.DataFrame,
    places_x: Sequence[float],
    places_y: Sequence[float],
    y: str,
) -> None:
    """Draw, in every row of the map, where the best changes; between two ticks by its logarithm."""
    ticks = np.arange(len(places_x), dtype=float)
    heights = {place: index for index, place in enumerate(places_y)}
    for row in boundaries.dropna(subset=["below"]).to_dict("records"):
        below, above = float(row["below"]), float(row["above"])
        crossing = float(np.sqrt(below * above))
        height = heights.get(float(row[y]))
        if height is None or not places_x[0] <= crossing <= places_x[-1]:
            continue
        place = float(np.interp(np.log(crossing), np.log(places_x), ticks))
        axes.vlines(place, height - 0.5, height + 0.5, color="black", linewidth=1.2)

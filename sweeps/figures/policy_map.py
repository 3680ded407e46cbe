"""Map of the system (or knob, or placement) that is best over two axes, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Indices, Numbers
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.figures.series import (
    SPEED,
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
    value: str = "",
    *,
    x: str = "context_tok",
    y: str = "batch",
    by: str = "",
    boundaries: pd.DataFrame | None = None,
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Colour every place of two axes by the best value of `by`, darker where its margin is larger.

    Places where nothing fits stay white. Several rows of one `by` at one place count by their best.

    Args:
        table: a row for every place and every value of `by`.
        value: the column that is compared; default: `throughput_tok_s`.
        x, y: the columns of numbers along the axes.
        by: the column whose values compete; default: the system.
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
    by, value = by or "system", value or SPEED
    check_drawable(table, value, x, y, by)
    if x == y:
        raise InputError(f"{x} is named for both axes of the map; name another for one")
    table = repeated_where_blank(table, x, y, by)
    check_numbers(table, value)
    best = best_of(table, value, (x, y), by)
    target = new_axes(axes, width)
    for index, name in enumerate(distinct_values(table, by)):
        _shade(target, best, index)
        target.fill_between([], [], color=colour(index), label=str(name))
        _name_region(target, best.winner == index, str(name))
    if boundaries is not None:
        check_boundaries(boundaries, x, y)
        draw_boundaries(target, boundaries, table, (x, y))
    number_places(target, table, x, y)
    legend_above(target)
    return target


def number_places(axes: Axes, table: pd.DataFrame, x: str, y: str) -> None:
    """Write the numbers of both columns along a map."""
    texts_x, texts_y = (
        [short_number(place) for place in _numbers(table, column)] for column in (x, y)
    )
    axes.set_xticks(range(len(texts_x)), texts_x)
    axes.set_yticks(range(len(texts_y)), texts_y)
    axes.set(xlabel=label_of(x), ylabel=label_of(y))


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


def check_boundaries(boundaries: pd.DataFrame, x: str, y: str) -> None:
    """Refuse crossings along another axis than those of the map."""
    for name in (y, "along", "below", "above"):
        if name not in boundaries.columns:
            made = "make them with solve crossover"
            raise InputError(f"the boundaries have no column {name}; {made}")
    for along in distinct_values(boundaries, "along"):
        names = (along, f"{along}_tok")
        # those of a grid of machines lie along both axes
        if x not in names and not (y in names and x in boundaries.columns):
            raise InputError(f"the boundaries lie along {along}, and the map's x is {x}")


def draw_boundaries(
    axes: Axes,
    boundaries: pd.DataFrame,
    table: pd.DataFrame,
    columns: tuple[str, str],
    reach: float = 0.5,
) -> None:
    """Draw where the best changes along each line of the map; between ticks by its logarithm.

    Args:
        axes: of the map.
        boundaries: where it changes.
        table: of the map.
        columns: across and upwards.
        reach: half the length of each mark, as a share of a place.
    """
    x, y = columns
    line: dict[str, Any] = {"color": "black", "linewidth": 1.2}
    for row in boundaries.dropna(subset=["below"]).to_dict("records"):
        is_across = x in (row["along"], f"{row['along']}_tok")
        along, beside = (x, y) if is_across else (y, x)
        values = _numbers(table, along)
        lines = {value: place for place, value in enumerate(_numbers(table, beside))}
        middle = lines.get(float(row[beside]))
        crossing = float(np.sqrt(float(row["below"]) * float(row["above"])))
        if middle is None or not values[0] <= crossing <= values[-1]:
            continue
        place = float(np.interp(np.log(crossing), np.log(values), np.arange(len(values))))
        draw = axes.vlines if is_across else axes.hlines
        draw(place, middle - reach, middle + reach, **line)

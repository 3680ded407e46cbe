"""Points: designs of a Pareto front, predictions over statements, measurements inside bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.series import check_columns, check_numbers, levels
from nearkv.sweeps.figures.style import line_style, log_scale, new_axes, styled
from nearkv.sweeps.tables.labels import label_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIDES = ("stated", "predicted")
RELIABILITY = ("level", "inside")

NEAR = 1.25
"""A prediction within this factor of what is stated is near."""


@styled
def pareto(
    table: pd.DataFrame,
    x: str = "cost_usd",
    y: str = "throughput_tok_s",
    *,
    by: str = "system",
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Draw the designs of a Pareto front, the points of one `by` joined as a staircase.

    Args:
        table: a row for every design, as `pareto` returns.
        x, y: the columns that were compared.
        by: the column whose values have colours of their own.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist.

    Example:
        >>> import nearkv
        >>> table = nearkv.pareto(systems="hilos", model="opt-66b", batch="1:16:x2")
        >>> axes = nearkv.plot.pareto(table)
    """
    check_columns(table, x, y, by)
    check_numbers(table, x, y)
    target = new_axes(axes, width)
    designs = table.sort_values([x, y])
    _draw_points(target, designs, (x, y), levels_of=by, drawstyle="steps-post")
    return _labelled(target, label_of(x), label_of(y))


@styled
def parity(
    table: pd.DataFrame,
    *,
    by: str = "paper",
    width: str = "column",
    axes: Axes | None = None,
) -> Axes:
    """Draw predictions over what was stated, on logarithmic axes.

    The line is equality; the shaded band holds what is within 25 %. Rows without one positive
    number on both sides (yes-or-no statements, ranges) are left out.

    Args:
        table: rows with `stated` and `predicted`, as `validate` returns.
        by: the column whose values have colours of their own.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist, or no row can be drawn.

    Example:
        >>> import nearkv
        >>> axes = nearkv.plot.parity(nearkv.validate("hilos"))
    """
    import pandas as pd

    if not set(SIDES) <= set(table.columns):
        raise InputError("the table holds no claims; make it with nearkv validate")
    check_columns(table, by)
    table = table.reset_index(drop=True)
    numbers = table[[*SIDES]].apply(pd.to_numeric, errors="coerce")
    drawn = (numbers > 0).all(axis=1)
    if not drawn.any():
        raise InputError("no row has a positive number on both sides; nothing to draw")
    claims = table[[by]].join(numbers)[drawn]
    target = new_axes(axes, width)
    ends = np.array([claims["stated"].min() / 2, claims["stated"].max() * 2])
    target.fill_between(
        ends, ends / NEAR, ends * NEAR, color="0.9", linewidth=0, label="within 25 %"
    )
    target.plot(ends, ends, color="0.4", linewidth=0.8)
    _draw_points(target, claims, SIDES, levels_of=by, linestyle="none")
    log_scale(target, "x")
    log_scale(target, "y")
    return _labelled(target, "Stated", "Predicted")


@styled
def reliability(
    table: pd.DataFrame,
    *,
    by: str = "rows_of",
    width: str = "column",
    axes: Axes | None = None,
) -> Axes:
    """Draw the share of measurements inside bands over the level of the bands.

    On the line, bands are right; below it they are too narrow, above it too wide.

    Args:
        table: rows with `level` and `inside` [%], as `coverage(reliability=True)` returns.
        by: the column whose values have colours of their own.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Example:
        >>> import nearkv
        >>> axes = nearkv.plot.reliability(nearkv.coverage(reliability=True))
    """
    check_columns(table, *RELIABILITY, by)
    target = new_axes(axes, width)
    target.plot([0, 100], [0, 100], color="0.4", linewidth=0.8)
    _draw_points(target, table, RELIABILITY, levels_of=by)
    target.set_xlim(0, 100)
    target.set_ylim(0, 100)
    return _labelled(target, "Level of the band [%]", "Measurements inside [%]")


def _draw_points(
    axes: Axes, table: pd.DataFrame, sides: tuple[str, str], levels_of: str, **style: Any
) -> None:
    """Draw the points of every value of a column in a colour and a marker of their own."""
    x, y = sides
    for index, name in enumerate(levels(table, levels_of)):
        rows = table[table[levels_of] == name]
        look = line_style(index) | style
        axes.plot(rows[x], rows[y], label=str(name), **look)


def _labelled(axes: Axes, x: str, y: str) -> Axes:
    """Label both axes and name the points; return the axes."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False)
    return axes

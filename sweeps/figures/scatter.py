"""Points: the Pareto front of designs, and predictions beside what was stated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearkv.sweeps.figures.labels import label_of
from nearkv.sweeps.figures.series import check_columns, levels
from nearkv.sweeps.figures.style import line_style, new_axes, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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
        >>> table = nearkv.pareto("hilos", model="opt-66b", batch="1:16:x2")
        >>> axes = nearkv.plot.pareto(table)
    """
    check_columns(table, x, y, by)
    target = new_axes(axes, width)
    for index, name in enumerate(levels(table, by)):
        rows = table[table[by] == name].sort_values([x, y])
        target.plot(
            rows[x], rows[y], drawstyle="steps-post", label=str(name), **line_style(index)
        )
    target.set_xlabel(label_of(x))
    target.set_ylabel(label_of(y))
    target.legend(frameon=False)
    return target


@styled
def parity(
    table: pd.DataFrame,
    *,
    by: str = "paper",
    width: str = "column",
    axes: Axes | None = None,
) -> Axes:
    """Draw predictions over what was stated, on logarithmic axes.

    The line is equality; the shaded band holds what is within 25 %. Rows without a positive number
    on both sides (yes-or-no statements) are left out.

    Args:
        table: rows with `stated` and `predicted`, as `validate` returns.
        by: the column whose values have colours of their own.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist.

    Example:
        >>> import nearkv
        >>> axes = nearkv.plot.parity(nearkv.validate("hilos"))
    """
    import pandas as pd

    check_columns(table, "stated", "predicted", by)
    stated = pd.to_numeric(table["stated"], errors="coerce")
    predicted = pd.to_numeric(table["predicted"], errors="coerce")
    drawn = (stated > 0) & (predicted > 0)
    target = new_axes(axes, width)
    smallest = stated[drawn].min() / 2
    largest = stated[drawn].max() * 2
    ends = np.array([smallest, largest])
    target.fill_between(
        ends, ends / NEAR, ends * NEAR, color="0.9", linewidth=0, label="within 25 %"
    )
    target.plot(ends, ends, color="0.4", linewidth=0.8)
    for index, name in enumerate(levels(table, by)):
        rows = drawn & (table[by] == name)
        style = line_style(index) | {"linestyle": "none"}
        target.plot(stated[rows], predicted[rows], label=str(name), **style)
    target.set_xscale("log")
    target.set_yscale("log")
    target.set_xlabel("Stated")
    target.set_ylabel("Predicted")
    target.legend(frameon=False)
    return target

"""How far each uncertain number moves a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.series import check_columns, check_no_names, columns_of
from nearkv.sweeps.figures.style import bar_style, new_axes, styled
from nearkv.sweeps.tables.labels import label_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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

    Args:
        table: rows of `sensitivity`: `number` and the column at both ends of its range.
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
    check_columns(table, "number")
    ends = [name for name in columns_of(table) if name.endswith("_at_low")]
    if not ends:
        raise InputError(
            "the table has no column that ends in _at_low; make it with sensitivity"
        )
    column = ends[0].removesuffix("_at_low")
    low, high = f"{column}_at_low", f"{column}_at_high"
    check_columns(table, low, high)
    check_no_names(table, low, high)
    rows = table.dropna(subset=[low, high]).reset_index(drop=True)
    if rows.empty:
        raise InputError("no number of the table has a range; there is nothing to draw")
    span = (rows[high] - rows[low]).abs()
    order = span.sort_values(ascending=False).index
    widest = rows.loc[order[:MOST_NUMBERS]][::-1]  # the last is drawn on top
    target = new_axes(axes, width)
    places = np.arange(len(widest))
    for index, (end, name) in enumerate(((low, "low end"), (high, "high end"))):
        other = high if end == low else low
        middle = (widest[end] + widest[other]) / 2
        style = bar_style(index)
        target.barh(places, widest[end] - middle, 0.7, left=middle, label=name, **style)
    target.set_yticks(places, list(widest["number"]))
    target.set_xlabel(label_of(column))
    target.legend(frameon=False)
    return target

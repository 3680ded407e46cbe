"""How far each uncertain number moves a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.series import check_drawable, check_no_names, columns_of
from nearkv.sweeps.figures.style import legend_above, looks, new_axes, styled
from nearkv.sweeps.tables.labels import label_of, short_number

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

"""How many measurements lie in bands, over how many should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearkv.sweeps.figures.scatter import draw_points, labelled
from nearkv.sweeps.figures.series import check_columns
from nearkv.sweeps.figures.style import new_axes, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIDES = ("level", "inside")


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
    check_columns(table, *SIDES, by)
    target = new_axes(axes, width)
    target.plot([0, 100], [0, 100], color="0.4", linewidth=0.8)
    draw_points(target, table, SIDES, levels_of=by)
    target.set_xlim(0, 100)
    target.set_ylim(0, 100)
    return labelled(target, "Level of the band [%]", "Measurements inside [%]")

"""The figures by name: `nearkv.plot.bars` and its siblings, and the one that suits a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.bars import bars, tornado
from nearkv.sweeps.figures.breakdown import breakdown, footprint
from nearkv.sweeps.figures.lines import lines
from nearkv.sweeps.figures.papers import PaperFigure, draw, paper_figure
from nearkv.sweeps.figures.policy_map import policy_map
from nearkv.sweeps.figures.region_map import break_even_map, region_map
from nearkv.sweeps.figures.scatter import pareto, parity, roofline
from nearkv.sweeps.figures.series import varying
from nearkv.sweeps.figures.style import save

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "PaperFigure",
    "bars",
    "break_even_map",
    "breakdown",
    "draw",
    "footprint",
    "lines",
    "paper_figure",
    "pareto",
    "parity",
    "policy_map",
    "region_map",
    "roofline",
    "save",
    "tornado",
]

MOST_GROUPS = 6
"""Numbers along an axis; of more, a line shows the course better than bars."""

MAP_AXES = ("context_tok", "batch")


def suitable(
    table: pd.DataFrame, value: str, axes: Sequence[str], baseline: str = ""
) -> Axes:
    """Draw bars, lines along more than a few numbers, or a map over context and batch.

    Args:
        table: a row for every design point.
        value: the column that is drawn.
        axes: columns that the study varies, beside the system.
        baseline: system that bars are divided by; none, or one without a value where another has
            one, draws the values themselves.

    Raises:
        InputError: the table varies over more than a figure shows.
    """
    free = [name for name in varying(table, axes) if name != "system"]
    if set(free) == set(MAP_AXES) and table["system"].nunique() > 1:
        return policy_map(table, value)
    if len(free) > 1:
        raise InputError(
            f"the table varies over {' and '.join(free)}, which is more than a figure shows; "
            "keep one value of all but one, or write a table and use nearkv plot"
        )
    over = free[0] if free else ""
    many = bool(over) and table[over].nunique() > MOST_GROUPS
    if many and table[over].dtype.kind in "if":
        return lines(table, value, over=over)
    # a baseline that was not named is dropped where it would leave a group blank
    valued = table[table[value] > 0]
    own = valued[valued["system"].astype(str) == baseline]
    divides = valued[over].isin(own[over]).all() if over else len(own)
    return bars(table, value, over=over, baseline=baseline if divides else "")

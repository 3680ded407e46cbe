"""Small print below a figure: what makes the rows of its rivals unequal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from nearkv.sweeps.tables.unequal import unequal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIZE = 5.0
"""Height of its letters [point]."""
LETTER_WIDTH = 0.55
"""Width of a letter over its height [1]."""
LINE_HEIGHT = 1.25
"""Height of a line over that of its letters [1]."""
POINTS_AN_INCH = 72.0


def say_unequal(axes: Axes, table: pd.DataFrame) -> None:
    """Write below a figure what its rivals own and who attends, where that differs.

    Args:
        axes: the only ones of a new figure, which grows by the text.
        table: what they show.
    """
    figure = axes.get_figure(root=True)
    rows = [
        {str(name): cell for name, cell in row.items()} for row in table.to_dict("records")
    ]
    sentences = unequal(rows, ())
    if figure is None or not sentences:
        return
    letters = int(figure.get_figwidth() * POINTS_AN_INCH / (SIZE * LETTER_WIDTH))
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, letters)]
    taller = len(lines) * SIZE * LINE_HEIGHT / POINTS_AN_INCH
    figure.set_figheight(figure.get_figheight() + taller)
    text = "\n".join(lines)
    figure.supxlabel(text, x=0.01, horizontalalignment="left", fontsize=SIZE, color="0.3")

"""Lines pass through the points of the table and break where nothing fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from support.figures import TABLE

from nearkv.sweeps.figures import plot

LACKING = pd.DataFrame(
    {"system": ["csd", "csd", "dram"], "devices": [4.0, 8.0, np.nan], "step_ms": [3.0, 2.0, 5.0]}
)


def test_lines_pass_through_the_points_and_break_where_nothing_fits() -> None:
    axes = plot.lines(TABLE, "decode_tok_s")
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
    assert drawn["slow"].tolist() == [2.0, 1.0]
    assert np.isnan(drawn["fast"]).tolist() == [False, True]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "Context (tokens)"


def test_its_line_is_flat() -> None:
    axes: Any = plot.lines(LACKING, "step_ms")
    assert [line.get_ydata().tolist() for line in axes.get_lines()] == [[3.0, 2.0], [5.0, 5.0]]


def test_what_makes_lines_unequal_stands_below() -> None:
    """Only below a figure of their own: panels of others have their own texts."""
    owned = TABLE.assign(machine=np.where(TABLE["system"] == "slow", "1 gpu", "1 gpu, 8 csd"))
    figure: Any = plot.lines(owned, "decode_tok_s").figure
    plain: Any = plot.lines(TABLE, "decode_tok_s").figure
    assert "slow: 1 gpu." in figure._supxlabel.get_text().splitlines()
    assert figure.get_figheight() > plain.get_figheight()


def test_no_marker_is_cut_at_the_top() -> None:
    """A marker of 3.5 points needs 0.02 of axes 1.9 inches high above its middle."""
    table = pd.DataFrame({"interval": [4.0, 8.0], "system": "a", "step_ms": [0.9, 1.0]})
    axes = plot.lines(table, "step_ms", over="interval")
    low, high = axes.get_ylim()
    assert low == 0
    assert high > 1.02
    assert axes.get_xlabel() == "Spill interval (tokens)"

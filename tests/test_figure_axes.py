"""What a figure runs over: numbers that are set, and knobs that one of its systems lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("agg")

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot, style

LACKING = pd.DataFrame(
    {"system": ["csd", "csd", "dram"], "devices": [4.0, 8.0, np.nan], "step_ms": [3.0, 2.0, 5.0]}
)
SET = pd.DataFrame(
    {
        "system": ["csd", "csd", "dram", "dram"],
        "csd.count": [4, 8, 4, 8],
        "devices": [4.0, 8.0, np.nan, np.nan],
        "step_ms": [3.0, 2.0, 5.0, 5.0],
    }
)
EVERYWHERE = [[3.0, 2.0], [5.0, 5.0]]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every test closes the figures it opened."""
    yield
    style.load_pyplot().close("all")


def heights(axes: Any) -> list[list[float]]:
    """Heights of the bars of every series."""
    return [[bar.get_height() for bar in series] for series in axes.containers]


def test_bars_of_a_system_without_the_knob_stand_at_each_value() -> None:
    """A group without a number had no bar, and nothing said so."""
    axes = plot.bars(LACKING, "step_ms")
    assert heights(axes) == EVERYWHERE
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "8"]


def test_its_line_is_flat() -> None:
    axes: Any = plot.lines(LACKING, "step_ms")
    assert [line.get_ydata().tolist() for line in axes.get_lines()] == EVERYWHERE


def test_devices_are_no_axis_beside_the_number_they_stand_for() -> None:
    axes = plot.bars(SET, "step_ms")
    assert heights(axes) == EVERYWHERE
    assert axes.get_xlabel() == "csd.count"


def test_what_would_tell_rows_apart_is_named() -> None:
    with pytest.raises(InputError, match="keep one value of system"):
        plot.bars(SET, "step_ms", by="csd.count", over="csd.count")

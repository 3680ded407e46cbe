"""Stacks are as high as their rows are long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.figures import heights, tops

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot

NAMES_OF_SYSTEMS = ["flexgen-dram", "hilos", "l3", "h2m2"]


SET = pd.DataFrame(
    {
        "system": ["csd", "csd", "dram", "dram"],
        "csd.count": [4, 8, 4, 8],
        "devices": [4.0, 8.0, np.nan, np.nan],
        "step_ms": [3.0, 2.0, 5.0, 5.0],
    }
)


SHORT = SET.assign(status=["ok", "ok", "ok", "infeasible"])


STACKED = SHORT.assign(**{"time_s:gpu.hbm": 1.0, "time_s:host.dram": 2.0})


def test_a_stack_is_as_high_as_its_row_is_long() -> None:
    table = pd.DataFrame(
        {"system": ["a", "b"], "time_s:gpu.hbm": [1.0, 2.0], "time_s:pcie": [3.0, 0.0]}
    )
    axes = plot.breakdown(table)
    assert max(tops(axes)) == 4.0
    assert axes.get_ylabel() == "Time (s)"
    assert max(tops(plot.breakdown(table, relative=True))) == pytest.approx(1.0)


@pytest.mark.slow
def test_names_of_many_bars_leave_room_for_the_bars() -> None:
    rows = {"system": NAMES_OF_SYSTEMS * 3, "context_tok": [1024] * 4 + [4096] * 4 + [65536] * 4}
    parts = {f"time_s:resource-{index}": 1.0 for index in range(16)}
    axes = plot.breakdown(pd.DataFrame(rows | parts))
    figure: Any = axes.figure
    figure.draw_without_rendering()
    assert axes.get_window_extent().height > figure.dpi  # an inch of bars
    legend: Any = axes.get_legend()
    assert legend.get_window_extent().y0 >= 0


def test_a_stack_of_what_does_not_fit_is_a_mark() -> None:
    axes = plot.breakdown(STACKED)
    assert [text.get_text() for text in axes.texts] == ["OOM"]
    assert heights(axes)[0] == [1, 1, 1, 0]
    with pytest.raises(InputError, match="no row of the table has seconds"):
        plot.breakdown(STACKED.assign(status="infeasible"))


def test_bars_of_a_knob_are_told_apart() -> None:
    after = ["status", "step_ms", "time_s:gpu.hbm", "time_s:host.dram"]
    rows = STACKED[:2].assign(alpha=[0.0, 0.5], devices=4.0)
    alike = rows[["system", "devices", "alpha", *after]]
    names = [label.get_text() for label in plot.breakdown(alike).get_xticklabels()]
    assert names == ["csd\n0", "csd\n0.5"]
    with pytest.raises(InputError, match="keep one value of alpha"):
        plot.bars(alike, "step_ms", over="devices")

"""Bars are as high as the table says; what does not fit is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.command_line import refusal
from support.figures import TABLE, heights, vertical_segments

import nearkv
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.figures import plot
from nearkv.sweeps.figures.plot import suitable

NAMES_OF_SYSTEMS = ["flexgen-dram", "hilos", "l3", "h2m2"]


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


def test_bars_are_as_high_as_the_table_says() -> None:
    axes = plot.bars(TABLE, "decode_tok_s")
    slow, fast = heights(axes)
    assert slow == [2.0, 1.0]
    assert fast[0] == 6.0
    assert axes.get_ylabel() == "Decode (tok/s)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1k", "64k"]


def test_bars_relative_to_a_baseline_divide_group_by_group() -> None:
    axes = plot.bars(TABLE, "decode_tok_s", baseline="slow")
    slow, fast = heights(axes)
    assert slow == [1.0, 1.0]
    assert fast[0] == 3.0
    assert "relative to slow" in axes.get_ylabel()


def test_a_baseline_below_one_is_no_blank() -> None:
    table = TABLE.assign(decode_tok_s=TABLE["decode_tok_s"] / 10)
    slow, fast = heights(plot.bars(table, "decode_tok_s", baseline="slow"))
    assert slow == [1.0, 1.0]
    assert fast[0] == pytest.approx(3)


def test_a_bar_that_does_not_fit_is_marked() -> None:
    axes = plot.bars(TABLE, "decode_tok_s")
    assert [text.get_text() for text in axes.texts] == ["OOM"]


def test_bars_too_small_to_be_seen_carry_their_number() -> None:
    """1 in 600 is no pixel of a linear scale; a logarithmic one shows it."""
    rows = TABLE.assign(decode_tok_s=[1.0, 600.0, 30.0, float("nan")])
    axes = plot.bars(rows, "decode_tok_s")
    assert [text.get_text() for text in axes.texts] == ["OOM", "1"]
    assert axes.get_yscale() == "linear"
    axes = plot.bars(rows, "decode_tok_s", log=True)
    assert [text.get_text() for text in axes.texts] == ["OOM"]
    assert axes.get_yscale() == "log"


def test_a_band_is_drawn_where_the_table_has_one() -> None:
    banded = TABLE.assign(decode_tok_s_p05=[1.0] * 4, decode_tok_s_p95=[8.0] * 4)
    assert not plot.bars(TABLE, "decode_tok_s").collections
    segments = vertical_segments(plot.bars(banded, "decode_tok_s"))
    assert [segment[:, 1].tolist() for segment in segments] == [[1.0, 8.0]] * 3


def test_a_band_of_other_percentiles_is_drawn_too() -> None:
    """`--band 80` gives p10, p50 and p90."""
    ends = {"decode_tok_s_p10": [1.0] * 4, "decode_tok_s_p50": [2.0] * 4}
    banded = TABLE.assign(**ends, decode_tok_s_p90=[8.0] * 4)
    segments = vertical_segments(plot.bars(banded, "decode_tok_s"))
    assert [segment[:, 1].tolist() for segment in segments] == [[1.0, 8.0]] * 3
    areas = plot.lines(banded, "decode_tok_s").collections
    assert len(areas) == 2


def test_more_bars_than_can_be_seen_are_refused() -> None:
    table = pd.DataFrame({"system": "one", "context_tok": range(401), "step_ms": 1.0})
    with pytest.raises(InputError, match="401 bars are more than a figure shows"):
        plot.bars(table, "step_ms")


def test_a_legend_is_no_wider_than_a_column() -> None:
    table = pd.DataFrame({"system": NAMES_OF_SYSTEMS, "context_tok": 1024, "step_ms": 1.0})
    figure: Any = plot.bars(table, "step_ms", width="column").figure
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend().get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1


def test_a_legend_has_four_columns_where_there_is_room() -> None:
    table = pd.DataFrame({"system": [*"abcde"], "context_tok": 1024, "step_ms": 1.0})
    figure: Any = plot.bars(table, "step_ms", width="page").figure
    figure.draw_without_rendering()
    names = figure.axes[0].get_legend().get_texts()
    assert len({round(name.get_window_extent().x0) for name in names}) == 4


def test_bars_of_a_system_without_the_knob_stand_at_each_value() -> None:
    """A group without a number had no bar, and nothing said so."""
    axes = plot.bars(LACKING, "step_ms")
    assert heights(axes) == [[3.0, 2.0], [5.0, 5.0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "8"]


def test_devices_are_no_axis_beside_the_number_they_stand_for() -> None:
    axes = plot.bars(SET, "step_ms")
    assert heights(axes) == [[3.0, 2.0], [5.0, 5.0]]
    assert axes.get_xlabel() == "csd.count"


def test_what_would_tell_rows_apart_is_named() -> None:
    with pytest.raises(InputError, match="keep one value of system"):
        plot.bars(SET, "step_ms", by="csd.count", over="csd.count")


def test_marks_stand_inside_the_axes() -> None:
    rows = pd.DataFrame(
        {
            "system": ["a", "b"],
            "context_tok": [1024, 1024],
            "status": ["ok", "infeasible"],
            "step_ms": [1.0, np.nan],
        }
    )
    axes = plot.bars(rows, "step_ms")
    assert axes.get_xlim() == (-0.5, 0.5)
    with pytest.warns(NearkvWarning, match="baseline b has no value above 0 at 1k"):
        blank = plot.bars(rows, "step_ms", baseline="b")
    assert "n/a" in [text.get_text() for text in blank.texts]
    assert heights(suitable(rows, "step_ms", ["context_tok"], "b"))[0] == [1.0]


def test_rows_of_a_figure_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    """All but the first model were left out of it."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "t"\nsystems = ["hilos"]\nmodel = ["opt-30b", "opt-66b"]\n'
        'context = "16k,64k"\n[figure]\nkind = "bars"\nvalue = "step_ms"\n'
        'over = "context_tok"\nby = ["system"]\n'
    )
    picture = str(tmp_path / "x.png")
    assert "keep one value of model" in refusal("figure", str(file), "-o", picture)
    lines = file.read_text().replace('"bars"', '"lines"')
    file.write_text(f'{lines}baseline = "hilos"\n')
    assert "baseline is of bars, not of lines" in refusal("figure", str(file), "-o", picture)


def test_a_baseline_may_be_a_number() -> None:
    table = pd.DataFrame({"system": "hilos", "context_tok": [1, 1], "devices": [4, 8]})
    axes = nearkv.plot.bars(table.assign(step_ms=[2.0, 1.0]), "step_ms", by="devices", baseline="4")
    heights = [bar.get_bbox().height for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == [1.0, 0.5]

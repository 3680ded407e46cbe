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
from nearkv.sweeps.figures.series import axes_in, band_of
from nearkv.sweeps.figures.suiting import suitable

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


SHORT = SET.assign(status=["ok", "ok", "ok", "infeasible"])
STACKED = SHORT.assign(**{"time_s:gpu.hbm": 1.0, "time_s:host.dram": 2.0})


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
    with pytest.raises(InputError, match="baseline b has no value above 0 at 1k"):
        plot.bars(rows, "step_ms", baseline="b")
    assert heights(suitable(rows, "step_ms", ["context_tok"], "b"))[0] == [1.0]


def test_ends_of_a_band_between_whole_percentiles() -> None:
    rows = SET[:2].assign(**{"step_ms_p02.5": [2.0, 1.0], "step_ms_p97.5": [4.0, 3.0]})
    assert band_of(rows, "step_ms") == ("step_ms_p02.5", "step_ms_p97.5")
    assert axes_in(rows) == ["csd.count"]


MAP = pd.DataFrame(
    {
        "system": ["a", "b"],
        "context_tok": [1024, 1024],
        "batch": [1, 1],
        "step_ms": [1.0, 2.0],
        "word": ["x", "y"],
    }
)


def test_a_map_of_times_is_won_by_the_shortest() -> None:
    drawn = plot.policy_map(MAP, "step_ms").get_images()
    images: Any = [image.get_array() for image in drawn]
    won = [float(np.max(image[..., 3])) for image in images]
    assert won[0] > 0
    assert won[1] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"value": "step_ms", "y": "context_tok"}, "context_tok is named for both axes"),
        ({"value": "word"}, "word holds names, not numbers"),
    ],
)
def test_a_map_refuses_what_it_cannot_draw(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plot.policy_map(MAP, **options)  # type: ignore[arg-type]


def test_claims_of_two_papers_in_one_table() -> None:
    claims = pd.DataFrame({"paper": ["p"], "stated": [1.0], "predicted": [1.1]})
    axes: Any = plot.parity(pd.concat([claims, claims.assign(paper="q")]))
    assert [len(line.get_xdata()) for line in axes.get_lines()[1:]] == [1, 1]

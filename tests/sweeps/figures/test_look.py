"""Every kind of figure, in the width of a column: nothing lies on anything, nothing looks alike."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer
from matplotlib.text import Text
from matplotlib.transforms import Bbox

mpl.use("agg")

from nearkv.costmodel.model.registry import systems
from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot
from nearkv.sweeps.figures.style import colour, load_pyplot, looks, restyle

MOST_OVERLAP = 0.01
"""Share of the smaller of two boxes that may lie on the other."""


def comparison(systems: int) -> pd.DataFrame:
    """Rates of some systems at four contexts, the last of which no even system can hold."""
    rows = [
        {
            "system": f"system-{number}",
            "context_tok": context,
            "status": "ok" if context < 8192 or number % 2 else "infeasible",
            "decode_tok_s": 2.0**number * 1024 / context,
        }
        for number in range(systems)
        for context in (1024, 2048, 4096, 8192)
    ]
    table = pd.DataFrame(rows)
    return table.assign(decode_tok_s=table["decode_tok_s"].where(table["status"] == "ok"))


def designs() -> pd.DataFrame:
    """Designs of two systems for two workloads, half of them beaten."""
    count = np.arange(1.0, 9.0)
    tables = [
        pd.DataFrame(
            {
                "system": system,
                "context_tok": context,
                "cost_usd": 1000 * count,
                "throughput_tok_s": np.sqrt(count) * 4096 / context * (1 - 0.2 * (count % 2)),
            }
        )
        for system in ("a", "b")
        for context in (4096, 8192)
    ]
    return pd.concat(tables, ignore_index=True)


def tree() -> pd.DataFrame:
    """Two operators: one at the memory's roof, one at the processor's."""
    rows = [
        ("total", 3.0, None, None, None),
        ("decode/layers", 3.0, None, None, None),
        ("decode/layers/linear", 1.0, None, None, None),
        ("decode/layers/linear/weights", 1.0, 1e12, "B", "gpu.hbm"),
        ("decode/layers/linear/compute", 0.01, 1e12, "FLOP", "gpu.tensor"),
        ("decode/layers/attention", 2.0, None, None, None),
        ("decode/layers/attention/kv", 0.5, 5e11, "B", "gpu.hbm"),
        ("decode/layers/attention/compute", 2.0, 2e14, "FLOP", "gpu.tensor"),
    ]
    return pd.DataFrame(rows, columns=["span", "seconds", "amount", "unit", "resource"])


def footprint() -> pd.DataFrame:
    """A memory that holds two things, and one that is full."""
    rows = [
        ("gpu", "all", 30.0, 40.0),
        ("gpu", "weights", 20.0, None),
        ("gpu", "KV cache", 10.0, None),
        ("host", "all", 64.0, 64.0),
        ("host", "KV cache", 64.0, None),
    ]
    return pd.DataFrame(rows, columns=["memory", "content", "needed_gb", "available_gb"])


def ranges() -> pd.DataFrame:
    """Two numbers with ranges."""
    return pd.DataFrame(
        {
            "number": ["csd.dma", "derate.pcie"],
            "value": [30.0, 0.8],
            "unit": ["us", "1"],
            "low": [10.0, 0.65],
            "high": [100.0, 0.9],
            "step_ms": [10.0, 10.0],
            "step_ms_at_low": [9.0, 12.0],
            "step_ms_at_high": [14.0, 9.5],
        }
    )


def seconds() -> pd.DataFrame:
    """Seconds of nine systems on nine resources."""
    parts = {f"time_s:part-{number}": 1.0 + number for number in range(9)}
    return pd.DataFrame([{"system": f"system-{number}", **parts} for number in range(9)])


CLAIMS = pd.DataFrame(
    {"paper": ["hilos", "l3"], "stated": [1e-3, 1e5], "predicted": [1.1e-3, 0.9e5]}
)
COLUMN: dict[str, Any] = {"width": "column"}
FIGURES: dict[str, Callable[[], Axes]] = {
    "bars": lambda: plot.bars(comparison(4), "decode_tok_s", baseline="system-1", **COLUMN),
    "many bars": lambda: plot.bars(comparison(12), "decode_tok_s", log=True, **COLUMN),
    "lines": lambda: plot.lines(comparison(6), "decode_tok_s", **COLUMN),
    "many lines": lambda: plot.lines(comparison(12), "decode_tok_s", **COLUMN),
    "breakdown": lambda: plot.breakdown(seconds(), **COLUMN),
    "footprint": lambda: plot.footprint(footprint()),
    "roofline": lambda: plot.roofline(tree()),
    "pareto": lambda: plot.pareto(designs(), **COLUMN),
    "tornado": lambda: plot.tornado(ranges()),
    "parity": lambda: plot.parity(CLAIMS),
}


@pytest.fixture(params=FIGURES)
def axes(request: pytest.FixtureRequest) -> Any:
    with mpl.rc_context():
        drawn = FIGURES[request.param]()
        figure: Any = drawn.figure
        figure.draw_without_rendering()
        yield drawn
    load_pyplot().close("all")


def overlap(first: Bbox, second: Bbox) -> float:
    """Share of the smaller box that lies on the other."""
    common = Bbox.intersection(first, second)
    area = min(first.width * first.height, second.width * second.height)
    return common.width * common.height / area if common and area else 0.0


def test_no_text_lies_on_another(axes: Axes) -> None:
    hidden = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        ticks = [*axis.majorTicks, *axis.minorTicks]
        hidden += [tick.label1 for tick in ticks if not low <= tick.get_loc() <= high]
    texts: Any = axes.findobj(lambda artist: isinstance(artist, Text) and artist.get_visible())
    shown = [text for text in texts if text.get_text().strip() and text not in hidden]
    collisions = [
        (first.get_text(), second.get_text())
        for first, second in combinations(shown, 2)
        if overlap(first.get_window_extent(), second.get_window_extent()) > MOST_OVERLAP
    ]
    assert collisions == []


def test_the_legend_covers_no_data(axes: Axes) -> None:
    legend = axes.get_legend()
    if legend:
        assert overlap(legend.get_window_extent(), axes.get_window_extent()) <= MOST_OVERLAP
    figure: Any = axes.figure
    parts: list[Any] = [axes, legend] if legend else [axes]
    for drawn in parts:
        shown: Any = Bbox.intersection(drawn.get_window_extent(), figure.bbox)
        assert shown.width >= drawn.get_window_extent().width - 1


def test_no_two_series_look_alike(axes: Axes) -> None:
    handles: Any = axes.get_legend_handles_labels()[0]
    lines = [
        (line.get_color(), line.get_marker(), line.get_linestyle())
        for line in handles
        if hasattr(line, "get_marker")
    ]
    bars = [
        (group[0].get_facecolor(), group[0].get_hatch())
        for group in axes.containers
        if isinstance(group, BarContainer)
    ]
    assert lines or bars
    assert len({*map(str, lines)}) == len(lines)
    assert len({*map(str, bars)}) == len(bars)


def test_both_axes_say_what_they_show(axes: Axes) -> None:
    labelled = [label for label in (axes.get_xlabel(), axes.get_ylabel()) if label]
    units = ("(", "[", "Share", "relative to", "Stated", "Predicted")
    assert labelled
    assert all(any(unit in label for unit in units) for label in labelled)


def test_steps_of_a_knob_are_one_hue_and_systems_are_not() -> None:
    """Hue: which channel is the largest, and which the smallest."""
    four, eight, other = (look.colour for look in looks(["A, n 4", "A, n 8", "B"]))
    assert np.argsort(four).tolist() == np.argsort(eight).tolist()
    assert np.mean(four) > np.mean(eight)
    assert np.argsort(other).tolist() != np.argsort(four).tolist()


def test_a_series_without_steps_has_the_plain_colour() -> None:
    plain = [to_rgb(colour(place)) for place in range(2)]
    assert [look.colour for look in looks(["A", "B"])] == plain


def test_a_second_knob_has_patterns_that_are_read_in_grey() -> None:
    """The bars of HILOS's figure 10, beside the four systems that it is compared with."""
    others = ["FLEX(SSD)", "FLEX(DRAM)", "FLEX(16 SSDs)", "DS+UVM(DRAM)"]
    half = [f"HILOS, devices {count}, alpha 0.5" for count in (4, 8, 16)]
    whole = [f"HILOS, devices {count}, alpha 1" for count in (4, 8)]
    drawn = looks([*others, *half, *whole])
    hilos = drawn[len(others) :]
    assert len({look.hatch for look in hilos}) == 2
    grey = [round(float(np.mean(to_rgb(look.colour))), 1) for look in drawn]
    read = {(look.hatch, shade) for look, shade in zip(drawn, grey, strict=True)}
    assert len(read) == len(drawn)


def test_a_roof_is_the_lower_of_both_and_an_operator_lies_on_it() -> None:
    """Rates 1e12 B/s and 1e14 FLOP/s, so the ridge is at 100; attention has 2e14 / 5e11 = 400."""
    axes = plot.roofline(tree())
    points = {line.get_label(): np.asarray(line.get_xydata())[0].tolist() for line in axes.lines}
    assert points["decode: layers/linear"] == pytest.approx([1.0, 1e12])
    assert points["decode: layers/attention"] == pytest.approx([400.0, 1e14])
    roof = np.asarray(axes.lines[0].get_ydata())
    assert roof.max() == pytest.approx(1e14)


def test_shares_of_a_memory_are_of_its_size() -> None:
    axes = plot.footprint(footprint())
    weights, cache = ([bar.get_height() for bar in group] for group in axes.containers)
    assert weights == [0.5, 0.0]
    assert cache == [0.25, 1.0]


def test_an_empty_panel_says_why() -> None:
    table = comparison(2).assign(status="infeasible", decode_tok_s=np.nan, short_of="gpu")
    for draw in (plot.bars, plot.lines):
        axes = draw(table, "decode_tok_s")
        assert "short of memory\nin gpu" in "".join(text.get_text() for text in axes.texts)


def test_texts_and_limits_are_as_asked_for() -> None:
    axes = plot.bars(comparison(2).replace("system-0", "hilos"), "decode_tok_s")
    restyle(axes, "A title", {"hilos": "Ours"}, "0:3", "right")
    figure: Any = axes.figure
    legend: Any = axes.get_legend()
    assert figure.get_suptitle() == "A title"
    assert [text.get_text() for text in legend.get_texts()] == ["Ours", "system-1"]
    assert axes.get_ylim() == (0.0, 3.0)
    restyle(axes, "", {}, "", "none")
    assert axes.get_legend() is None


@pytest.mark.parametrize(
    ("labels", "limits", "legend", "message"),
    [
        ({"hylos": "Ours"}, "", "", "--labels: unknown name"),
        ({}, "3", "", "write it as 0:2.5"),
        ({}, "", "below", "--legend: unknown legend 'below'"),
    ],
)
def test_what_cannot_be_restyled_is_one_sentence(
    labels: dict[str, str], limits: str, legend: str, message: str
) -> None:
    axes = plot.bars(comparison(2), "decode_tok_s")
    with pytest.raises(InputError, match=message):
        restyle(axes, "", labels, limits, legend)


def test_every_printed_name_is_of_a_system() -> None:
    names = tomllib.loads((Path(plot.__file__).parent / "names.toml").read_text())
    assert set(names) <= set(systems())

"""Figures show what the table says: heights, labels with units, marks where nothing fits."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from support.command_line import refusal, succeed

mpl.use("agg")

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot, style

TABLE = pd.DataFrame(
    {
        "system": ["slow", "fast", "slow", "fast"],
        "context_tok": [1024, 1024, 65536, 65536],
        "status": ["ok", "ok", "ok", "infeasible"],
        "decode_tok_s": [2.0, 6.0, 1.0, float("nan")],
    }
)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every test closes the figures it opened."""
    yield
    style.load_pyplot().close("all")


def heights(axes: Axes) -> list[list[float]]:
    """Heights of the bars of every series."""
    series = [group for group in axes.containers if isinstance(group, BarContainer)]
    return [[bar.get_height() for bar in group if isinstance(bar, Rectangle)] for group in series]


def tops(axes: Axes) -> list[float]:
    """Upper ends of all bars."""
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [bar.get_y() + bar.get_height() for bar in bars]


def test_bars_too_small_to_be_seen_carry_their_number() -> None:
    """1 in 600 is no pixel of a linear scale; a logarithmic one shows it."""
    rows = TABLE.assign(decode_tok_s=[1.0, 600.0, 30.0, float("nan")])
    axes = plot.bars(rows, "decode_tok_s")
    assert [text.get_text() for text in axes.texts] == ["OOM", "1"]
    assert axes.get_yscale() == "linear"
    axes = plot.bars(rows, "decode_tok_s", log=True)
    assert [text.get_text() for text in axes.texts] == ["OOM"]
    assert axes.get_yscale() == "log"


def vertical_segments(axes: Axes) -> list[NDArray[np.float64]]:
    """Ends of every vertical line that is drawn, a row an end."""
    paths = [path for group in axes.collections for path in group.get_paths()]
    ends = [np.asarray(path.vertices, dtype=float) for path in paths]
    return [end for end in ends if len(end) == 2]


def shown_text(pdf: bytes) -> str:
    """Letters that a reader of a PDF can select: what its pages show with TJ."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    pages = []
    for stream in streams:
        with suppress(zlib.error):
            pages.append(zlib.decompress(stream).decode("latin-1"))
    arrays = re.findall(r"\[(.*?)\]\s*TJ", "\n".join(pages), re.S)
    strings = [re.findall(r"\(((?:\\.|[^\\()])*)\)", array, re.S) for array in arrays]
    return re.sub(r"\\(.)", r"\1", "\n".join("".join(parts) for parts in strings)).replace("\0", "")


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


def test_a_bar_that_does_not_fit_is_marked() -> None:
    axes = plot.bars(TABLE, "decode_tok_s")
    assert [text.get_text() for text in axes.texts] == ["OOM"]


def test_a_band_is_drawn_where_the_table_has_one() -> None:
    banded = TABLE.assign(decode_tok_s_p05=[1.0] * 4, decode_tok_s_p95=[8.0] * 4)
    assert not plot.bars(TABLE, "decode_tok_s").collections
    segments = vertical_segments(plot.bars(banded, "decode_tok_s"))
    assert [segment[:, 1].tolist() for segment in segments] == [[1.0, 8.0]] * 3


def test_lines_pass_through_the_points_and_break_where_nothing_fits() -> None:
    axes = plot.lines(TABLE, "decode_tok_s")
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
    assert drawn["slow"].tolist() == [2.0, 1.0]
    assert np.isnan(drawn["fast"]).tolist() == [False, True]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "Context (tokens)"


def test_repeated_rows_name_the_column_that_is_left_over() -> None:
    twice = pd.concat([TABLE.assign(batch=1), TABLE.assign(batch=2)])
    with pytest.raises(InputError, match="keep one value of batch"):
        plot.bars(twice, "decode_tok_s", over="context_tok")


def test_an_unknown_column_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="decode_tok_s"):
        plot.bars(TABLE, "decode_toks")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        plot.bars(TABLE.iloc[:0], "decode_tok_s", over="context_tok")


MAP = pd.DataFrame(
    {
        "system": ["a", "a", "b", "b"],
        "context_tok": [1024, 2048, 1024, 2048],
        "batch": [1, 1, 1, 1],
        "throughput_tok_s": [4.0, 1.0, 2.0, float("nan")],
    }
)


def test_a_policy_map_knows_the_best_and_its_margin() -> None:
    from nearkv.sweeps.figures.policy_map import best_of

    best = best_of(MAP, "throughput_tok_s", ("context_tok", "batch"), "system", True)
    assert best.winner.tolist() == [[0, 0]]
    assert best.margin.tolist() == [[2.0, float("inf")]]
    worst = best_of(MAP, "throughput_tok_s", ("context_tok", "batch"), "system", False)
    assert worst.winner.tolist() == [[1, 0]]
    assert worst.margin.tolist() == [[2.0, float("inf")]]


def test_a_policy_map_labels_both_axes_and_names_who_competes() -> None:
    axes = plot.policy_map(MAP)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Context (tokens)", "Batch (sequences)")
    legend = axes.get_legend()
    assert legend
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_a_front_passes_through_its_designs_from_cheap_to_dear() -> None:
    table = pd.DataFrame(
        {"system": ["a"] * 2, "cost_usd": [2.0, 1.0], "throughput_tok_s": [5.0, 3.0]}
    )
    axes = plot.pareto(table)
    (line,) = axes.lines
    assert np.asarray(line.get_xydata()).tolist() == [[1.0, 3.0], [2.0, 5.0]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Cost (USD)", "Throughput (tok/s)")


def test_a_boundary_stands_where_the_crossing_is() -> None:
    """A crossing at the geometric mean of two ticks is half-way between them."""
    crossing = 1024 * 2**0.5
    edges = pd.DataFrame({"batch": [1], "below": [crossing], "above": [crossing]})
    along = edges.assign(along="context")
    axes = plot.policy_map(MAP, boundaries=along)
    (segment,) = vertical_segments(axes)
    assert segment[:, 0].tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(InputError, match="lie along output_tokens"):
        plot.policy_map(MAP, boundaries=edges.assign(along="output_tokens"))


def test_a_tornado_has_the_widest_number_on_top() -> None:
    table = pd.DataFrame(
        {
            "number": ["narrow", "wide", "fixed"],
            "step_ms_at_low": [9.0, 5.0, None],
            "step_ms_at_high": [11.0, 15.0, None],
        }
    )
    axes = plot.tornado(table)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["narrow", "wide"]
    widths = [[bar.get_width() for bar in group if isinstance(bar, Rectangle)]
              for group in axes.containers]  # fmt: skip
    assert widths == [[-1.0, -5.0], [1.0, 5.0]]
    assert axes.get_xlabel() == "Step (ms)"


def test_parity_leaves_out_what_is_no_positive_number() -> None:
    table = pd.DataFrame(
        {"paper": ["x", "x", "y"], "stated": [1.0, 0.0, 4.0], "predicted": [1.1, 1.0, 3.0]}
    )
    axes = plot.parity(table)
    points = [len(np.asarray(line.get_xdata())) for line in axes.lines[1:]]
    assert points == [1, 1]


def test_a_stack_is_as_high_as_its_row_is_long() -> None:
    table = pd.DataFrame(
        {"system": ["a", "b"], "time_s:gpu.hbm": [1.0, 2.0], "time_s:pcie": [3.0, 0.0]}
    )
    axes = plot.breakdown(table)
    assert max(tops(axes)) == 4.0
    assert axes.get_ylabel() == "Time (s)"
    assert max(tops(plot.breakdown(table, relative=True))) == pytest.approx(1.0)


@pytest.mark.parametrize("width", ["column", "page"])
def test_a_figure_has_the_width_of_a_paper(width: str) -> None:
    figure = plot.bars(TABLE, "decode_tok_s", width=width).figure
    assert figure.get_figwidth() == {"column": 3.33, "page": 7.0}[width]  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_pdf_embeds_its_fonts_as_text(tmp_path: Path) -> None:
    """Type 42 (TrueType), no Type 3; a figure of 60 bars is smaller than 100 kB."""
    wide = pd.DataFrame(
        {
            "system": [f"s{i % 6}" for i in range(60)],
            "context_tok": [1024 * (1 + i // 6) for i in range(60)],
            "decode_tok_s": [1.0 + i for i in range(60)],
        }
    )
    file = tmp_path / "bars.pdf"
    plot.save(plot.bars(wide, "decode_tok_s").figure, file)  # type: ignore[arg-type]
    content = file.read_bytes()
    assert re.search(rb"/FontFile2\b", content)
    assert b"/Subtype /Type3" not in content
    assert len(content) < 100_000
    assert b"/ToUnicode" in content
    assert "Decode (tok/s)" in shown_text(content)
    assert not list(tmp_path.glob("*.partial"))


def test_a_band_of_other_percentiles_is_drawn_too() -> None:
    """`--band 80` gives p10, p50 and p90."""
    ends = {"decode_tok_s_p10": [1.0] * 4, "decode_tok_s_p50": [2.0] * 4}
    banded = TABLE.assign(**ends, decode_tok_s_p90=[8.0] * 4)
    segments = vertical_segments(plot.bars(banded, "decode_tok_s"))
    assert [segment[:, 1].tolist() for segment in segments] == [[1.0, 8.0]] * 3
    areas = plot.lines(banded, "decode_tok_s").collections
    assert len(areas) == 2


def test_an_svg_keeps_its_text(tmp_path: Path) -> None:
    file = tmp_path / "bars.svg"
    plot.save(plot.bars(TABLE, "decode_tok_s").figure, file)  # type: ignore[arg-type]
    assert "Decode (tok/s)" in file.read_text()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.pdf, \.svg, \.png"):
        style.check_format(tmp_path / "a.gif")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra."""
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: object, **kwargs: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "hilos", "--model", "opt-30b", "-o", "a.pdf"],
        ["plot", "bars", "-", "-o", "a.pdf"],
        ["figure", "inf2-fig10"],
        ["report", "--system", "hilos", "--model", "opt-30b", "-o", "a.html"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("without_library")
def test_without_the_library_one_sentence_names_the_extra(words: list[str]) -> None:
    assert "nearkv[plot]" in refusal(*words, text="system\na\n")


@pytest.mark.usefixtures("without_library")
def test_charts_and_lists_need_no_library() -> None:
    assert "█" in succeed("compare", "hilos", "--model", "opt-30b", "--chart")
    assert "hilos-fig10" in succeed("figure")


NAMES_OF_SYSTEMS = ["flexgen-dram", "hilos", "l3", "h2m2"]


def test_a_legend_is_no_wider_than_a_column() -> None:
    table = pd.DataFrame({"system": NAMES_OF_SYSTEMS, "context_tok": 1024, "step_ms": 1.0})
    figure: Any = plot.bars(table, "step_ms", width="column").figure
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend().get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1


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


@pytest.mark.parametrize("value", ["note", "empty", "endless"])
def test_a_column_without_a_number_is_refused(value: str) -> None:
    table = TABLE[:2].assign(note="1,2", empty=float("nan"), endless=float("inf"))
    for draw in (plot.bars, plot.lines):
        with pytest.raises(InputError, match=f"{value} holds n"):
            draw(table, value)


def test_more_bars_than_can_be_seen_are_refused() -> None:
    table = pd.DataFrame({"system": "one", "context_tok": range(401), "step_ms": 1.0})
    with pytest.raises(InputError, match="401 bars are more than a figure shows"):
        plot.bars(table, "step_ms")

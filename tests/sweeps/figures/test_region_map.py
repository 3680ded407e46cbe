"""Maps of a grid of machines say which technology wins, how surely, and what changes that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import ContourSet
from matplotlib.patches import Rectangle
from support.command_line import refusal, succeed
from support.figures import vertical_segments

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot

ROWS = [
    # budget, context, technology, tokens per second, share of draws
    (20e3, 8192, "GPU memory", 4.0, 0.95),
    (20e3, 8192, "drives", 1.0, 0.05),
    (20e3, 65536, "drives", 3.0, 0.60),
    (20e3, 65536, "GPU memory", 2.0, 0.40),
    (60e3, 8192, "drives", 5.0, 1.00),
    (60e3, 65536, None, None, None),
]
COLUMNS = ["budget_usd", "context_tok", "technology", "throughput_tok_s", "best_share"]
GRID = pd.DataFrame(ROWS, columns=COLUMNS).assign(batch=1)
BORDER = pd.DataFrame(
    {
        "budget_usd": [20e3], "along": ["context"], "context_tok": [None],
        "batch": [1], "below": [23170], "above": [23171],
    }
)  # fmt: skip
TURNS = [
    # context, batch, whether the owners win, the value
    (8192, 1, False, 8.0),
    (65536, 1, True, 4.0),
    (8192, 16, False, 2.0),
    (65536, 16, True, 1.0),
    (8192, 256, False, None),
    (65536, 256, True, None),
]
BREAK_EVENS = pd.DataFrame(TURNS, columns=["context_tok", "batch", "owner_wins", "at"]).assign(
    budget_usd=20e3, number="csd.read", unit="GB/s", usd_per_gb=None
)


def texts(axes: object) -> list[str]:
    return [text.get_text() for text in axes.texts]  # type: ignore[attr-defined]


def test_each_cell_has_the_letter_of_its_winner_and_the_margin_below() -> None:
    """Of drives, best in two cells, and of a GPU in one; where none serves stands a dash."""
    first = plot.region_map(GRID)
    figure = first.get_figure(root=True)
    assert figure
    cheap, dear, cheap_margin, dear_margin = figure.axes
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["A  drives", "B  GPU memory"]
    assert texts(cheap) == ["B", "A"]
    assert texts(dear) == ["A", "-"]
    assert texts(cheap_margin) == ["4.00", "1.50"]
    assert texts(dear_margin) == ["only", "-"]
    assert [cheap.get_title(), dear.get_title()] == ["20,000 USD", "60,000 USD"]


def test_a_winner_of_few_draws_is_hatched() -> None:
    figure = plot.region_map(GRID).get_figure(root=True)
    assert figure
    hatched = [
        [patch.get_x() for patch in axes.patches if isinstance(patch, Rectangle)]
        for axes in figure.axes
    ]
    assert hatched == [[0.5], [], [], []]


def test_a_grid_without_draws_has_no_hatch_and_no_word_of_one() -> None:
    figure: Any = plot.region_map(GRID.drop(columns="best_share")).get_figure(root=True)
    patches = [patch for axes in figure.axes for patch in axes.patches]
    assert not any(isinstance(patch, Rectangle) for patch in patches)
    assert "of the best over the second's." in figure.get_supxlabel()
    assert "Hatched" not in figure.get_supxlabel()


def test_a_border_is_drawn_on_the_map_of_its_budget() -> None:
    """The geometric mean of 8k and 64k is half-way between them."""
    first = plot.region_map(GRID, boundaries=BORDER)
    (segment,) = vertical_segments(first)
    assert segment[:, 0].tolist() == pytest.approx([0.5, 0.5], abs=1e-4)
    figure = first.get_figure(root=True)
    assert figure
    assert not vertical_segments(figure.axes[1])
    one = GRID[GRID["budget_usd"] == 20e3].drop(columns="budget_usd")
    assert len(vertical_segments(plot.region_map(one, boundaries=BORDER))) == 1


def test_a_map_of_one_budget_has_no_title_and_times_are_won_by_the_least() -> None:
    one = GRID[GRID["budget_usd"] == 20e3].drop(columns=["budget_usd", "best_share"])
    one["tpot_ms"] = [4.0, 1.0, 2.0, 3.0]
    first = plot.region_map(one, "tpot_ms")
    assert first.get_title() == ""
    assert texts(first) == ["A", "A"]
    figure = first.get_figure(root=True)
    assert figure
    assert texts(figure.axes[1]) == ["4.00", "1.50"]
    with pytest.raises(InputError, match="unknown column 'joy'"):
        plot.region_map(GRID, "joy")


def test_cells_have_their_value_or_say_that_none_turns_them() -> None:
    axes = plot.break_even_map(BREAK_EVENS)
    assert texts(axes)[:6] == ["8", "4", "2", "1", "never", "always"]
    shades = np.asarray(axes.get_images()[0].get_array())
    assert (shades[:, 1] < shades[:, 0]).all()
    assert axes.get_title() == "20,000 USD"


def test_an_open_end_of_a_band_and_a_cell_without_a_row_have_a_dash() -> None:
    """The first cell turns at 8, in too many draws at no lower value; the last is left out."""
    table = BREAK_EVENS.assign(at_p05=[np.nan, 3.0, 1.0, 0.5, np.nan, np.nan])
    axes = plot.break_even_map(table[:-1], "at_p05")
    assert texts(axes)[:6] == ["-", "3", "1", "0.5", "never", "-"]
    shades = np.asarray(axes.get_images()[0].get_array())
    assert shades[2, 1] == 1
    with pytest.raises(InputError, match="several rows have one context_tok and batch"):
        plot.break_even_map(pd.concat([table, table]))


def test_contours_lie_where_the_logarithm_of_the_value_does() -> None:
    """The values halve along the context and fall to a quarter along the batch: a plane."""
    axes = plot.break_even_map(BREAK_EVENS)
    (drawn,) = (each for each in axes.get_children() if isinstance(each, ContourSet))
    values = [10**level for level in drawn.levels]
    assert values == pytest.approx([1.5, 2.0, 3.0, 5.0, 7.0])
    for value, lines in zip(values, drawn.allsegs, strict=True):
        for line in lines:
            assert line @ (1, 2) == pytest.approx(3 - np.log2(value))


def test_prices_are_drawn_a_gigabyte_where_they_are_known() -> None:
    prices = BREAK_EVENS.assign(usd_per_gb=BREAK_EVENS["at"] / 4, number="hbf.price", unit="USD")
    axes = plot.break_even_map(prices)
    assert axes.texts[0].get_text() == "2"
    figure = axes.get_figure(root=True)
    assert figure
    assert figure.get_supxlabel().startswith("hbf.price [USD/GB]")
    assert plot.break_even_map(prices, "at").texts[0].get_text() == "8"


def test_a_table_in_which_nothing_turns_has_no_contours() -> None:
    axes = plot.break_even_map(BREAK_EVENS.assign(at=np.nan))
    assert {text.get_text() for text in axes.texts} == {"never", "always"}
    assert not [each for each in axes.get_children() if isinstance(each, ContourSet)]


def test_plot_map_draws_it_and_refuses_what_it_has_not(tmp_path: Path) -> None:
    table, figure = tmp_path / "turns.csv", tmp_path / "turns.svg"
    BREAK_EVENS.to_csv(table, index=False)
    succeed("plot", "map", str(table), "-o", str(figure))
    assert "never" in figure.read_text()
    done = refusal("plot", "map", str(table), "--value", "owner_wins", "-o", str(figure))
    assert "owner_wins holds yes and no, not numbers" in done
    with pytest.raises(InputError, match="no --by"):
        plot.break_even_map(BREAK_EVENS, by="owner")
    two = pd.concat([BREAK_EVENS, BREAK_EVENS.assign(number="csd.price")])
    with pytest.raises(InputError, match=r"--where number=csd\.read"):
        plot.break_even_map(two)


def test_a_level_that_no_square_of_known_cells_reaches_has_no_contour() -> None:
    """A value of 8 lies apart, and the squares between four known cells end at 4."""
    blank = float("nan")
    values = [[1.0, 4.0, 4.0], [blank, 1.0, 2.0], [blank, blank, 1.0], [8.0, 4.0, blank]]
    rows = [
        (context, batch, True, values[i][j])
        for i, batch in enumerate((1, 4, 16, 64))
        for j, context in enumerate((4096, 8192, 16384))
    ]
    table = pd.DataFrame(rows, columns=["context_tok", "batch", "owner_wins", "at"])
    axes = plot.break_even_map(table.assign(number="csd.read", unit="GB/s", usd_per_gb=None))
    (lines,) = [item for item in axes.collections if isinstance(item, ContourSet)]
    labels = {text.get_text() for text in lines.labelTexts}
    assert labels
    assert labels <= {"1.5", "2", "3"}

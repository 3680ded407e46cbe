"""A map of a grid of machines says which technology wins, by how much, and how sure that is."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.patches import Rectangle
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


def test_a_border_is_drawn_on_the_map_of_its_budget() -> None:
    """The geometric mean of 8k and 64k is half-way between them."""
    first = plot.region_map(GRID, boundaries=BORDER)
    (segment,) = vertical_segments(first)
    assert segment[:, 0].tolist() == pytest.approx([0.5, 0.5], abs=1e-4)
    figure = first.get_figure(root=True)
    assert figure
    assert not vertical_segments(figure.axes[1])


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

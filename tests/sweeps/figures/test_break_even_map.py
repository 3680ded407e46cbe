"""A map of a break-even says at which value each cell changes hands, and which are won now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.contour import ContourSet
from support.command_line import succeed

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot

ROWS = [
    # context, batch, whether the owners win, the value
    (8192, 1, False, 8.0),
    (65536, 1, True, 4.0),
    (8192, 16, False, 2.0),
    (65536, 16, True, 1.0),
    (8192, 256, False, None),
    (65536, 256, True, None),
]
GRID = pd.DataFrame(ROWS, columns=["context_tok", "batch", "owner_wins", "at"]).assign(
    budget_usd=20e3, number="csd.read", unit="GB/s", usd_per_gb=None
)


def test_cells_have_their_value_or_say_that_none_turns_them() -> None:
    axes = plot.break_even_map(GRID)
    texts = [text.get_text() for text in axes.texts]
    assert texts[:6] == ["8", "4", "2", "1", "never", "always"]
    shades = np.asarray(axes.get_images()[0].get_array())
    assert (shades[:, 1] < shades[:, 0]).all()
    assert axes.get_title() == "20,000 USD"


def test_contours_lie_where_the_logarithm_of_the_value_does() -> None:
    """The values halve along the context and fall to a quarter along the batch: a plane."""
    axes = plot.break_even_map(GRID)
    (drawn,) = (each for each in axes.get_children() if isinstance(each, ContourSet))
    values = [10**level for level in drawn.levels]
    assert values == pytest.approx([1.5, 2.0, 3.0, 5.0, 7.0])
    for value, lines in zip(values, drawn.allsegs, strict=True):
        for line in lines:
            assert line @ (1, 2) == pytest.approx(3 - np.log2(value))


def test_prices_are_drawn_a_gigabyte_where_they_are_known() -> None:
    prices = GRID.assign(usd_per_gb=GRID["at"] / 4, number="hbf.price", unit="USD")
    axes = plot.break_even_map(prices)
    assert axes.texts[0].get_text() == "2"
    figure = axes.get_figure(root=True)
    assert figure
    assert figure.get_supxlabel().startswith("hbf.price [USD/GB]")
    assert plot.break_even_map(prices, "at").texts[0].get_text() == "8"


def test_a_table_in_which_nothing_turns_has_no_contours() -> None:
    axes = plot.break_even_map(GRID.assign(at=np.nan))
    assert {text.get_text() for text in axes.texts} == {"never", "always"}
    assert not [each for each in axes.get_children() if isinstance(each, ContourSet)]


def test_plot_map_draws_it_and_refuses_what_it_has_not(tmp_path: Path) -> None:
    table, figure = tmp_path / "turns.csv", tmp_path / "turns.svg"
    GRID.to_csv(table, index=False)
    succeed("plot", "map", str(table), "-o", str(figure))
    assert "never" in figure.read_text()
    with pytest.raises(InputError, match="no --by"):
        plot.break_even_map(GRID, by="owner")
    two = pd.concat([GRID, GRID.assign(number="csd.price")])
    with pytest.raises(InputError, match=r"--where number=csd\.read"):
        plot.break_even_map(two)

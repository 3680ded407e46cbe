"""The sparse mesh of design points, and the boxes that it is cut into."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from nearkv.hardware.catalog import load_llm
from nearkv.sweeps.study.grid import Axis, Grid
from nearkv.sweeps.study.study import Study, blocks


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 40))
def test_boxes_cover_the_grid_once_in_order(shape: list[int], most: int) -> None:
    grid = Grid(tuple(Axis(f"a{i}", np.arange(float(n))) for i, n in enumerate(shape)))
    whole, numbers = np.arange(grid.size).reshape(shape), []
    for box in grid.boxes(most):
        piece = whole[box]
        assert piece.size <= most
        numbers += piece.ravel().tolist()
    assert numbers == list(range(grid.size))


def test_mesh_is_sparse() -> None:
    grid = Grid((Axis("a", np.arange(3.0)), Axis("b", np.arange(4.0))))
    mesh = grid.mesh(grid.whole)
    assert mesh["a"].shape == (3, 1)
    assert mesh["b"].shape == (1, 4)


def test_tables_of_many_heads_are_of_fewer_points() -> None:
    """A table of 1,024 heads has no more entries at once than one of 96."""
    model = load_llm("gpt3-175b")
    heads = replace(model.numbers["heads"], value=1024.0)
    wide = replace(model, name="wide", numbers={**model.numbers, "heads": heads})
    sizes = {}
    for part in (model, wide):
        (block,) = blocks(Study(("oracle",), (part,)))
        sizes[part.name] = block.at_once * part.si["heads"]
    assert sizes["wide"] <= sizes["gpt3-175b"] <= 1 << 20

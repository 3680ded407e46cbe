"""The sparse mesh of design points, and the boxes that it is cut into."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearkv.sweeps.study.grid import Axis, Grid


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

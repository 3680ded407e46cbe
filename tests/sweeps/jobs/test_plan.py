"""Plans: every row in one piece, in order, and only the columns that are wanted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support.studies import MIXED

from nearkv.sweeps.evaluate.columns import cells, table
from nearkv.sweeps.jobs.plan import plan, unpacked
from nearkv.sweeps.study.study import Study


@pytest.mark.slow
def test_pieces_number_every_row_once() -> None:
    rows = plan(MIXED)
    for most in (1, 5, 17, 1 << 20):
        pieces = list(rows.pieces(most))
        assert [piece.first for piece in pieces] == np.cumsum(
            [0, *(piece.rows for piece in pieces[:-1])]
        ).tolist()
        assert sum(piece.rows for piece in pieces) == rows.size == len(table(MIXED)["system"])
        assert all(piece.rows <= most for piece in pieces)


def test_a_plan_travels() -> None:
    rows = plan(MIXED)
    again = unpacked(rows.packed())
    assert [block.system for block in again.blocks] == [block.system for block in rows.blocks]
    assert again.blocks[0].system is rows.blocks[0].system
    assert pickle.loads(pickle.dumps(rows)).kinds == rows.kinds


def test_a_chunk_computes_only_what_is_wanted() -> None:
    (block,) = plan(Study(("hilos",), ("opt-66b",))).blocks
    assert cells(block, block.grid.whole, ("step_ms", "alpha")).keys() == {"alpha", "step_ms"}

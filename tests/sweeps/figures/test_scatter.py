"""Points: fronts, parity and reliability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nearkv.sweeps.figures import plot


def test_a_front_passes_through_its_designs_from_cheap_to_dear() -> None:
    table = pd.DataFrame(
        {"system": ["a"] * 2, "cost_usd": [2.0, 1.0], "throughput_tok_s": [5.0, 3.0]}
    )
    axes = plot.pareto(table)
    (line,) = axes.lines
    assert np.asarray(line.get_xydata()).tolist() == [[1.0, 3.0], [2.0, 5.0]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Cost (USD)", "Throughput (tok/s)")


def test_parity_leaves_out_what_is_no_positive_number() -> None:
    table = pd.DataFrame(
        {"paper": ["x", "x", "y"], "stated": [1.0, 0.0, 4.0], "predicted": [1.1, 1.0, 3.0]}
    )
    axes = plot.parity(table)
    points = [len(np.asarray(line.get_xdata())) for line in axes.lines[1:]]
    assert points == [1, 1]


def test_claims_of_two_papers_in_one_table() -> None:
    claims = pd.DataFrame({"paper": ["p"], "stated": [1.0], "predicted": [1.1]})
    axes: Any = plot.parity(pd.concat([claims, claims.assign(paper="q")]))
    assert [len(line.get_xdata()) for line in axes.get_lines()[1:]] == [1, 1]

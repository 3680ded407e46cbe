"""Points: fronts and parity."""

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
    (line,) = (line for line in axes.lines if line.get_label() == "a")
    assert np.asarray(line.get_xydata()).tolist() == [[1.0, 3.0], [2.0, 5.0]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Cost (USD)", "Throughput (tok/s)")


def test_every_workload_has_a_front_of_its_own_and_its_knee_is_marked() -> None:
    """Cost and rate of four designs at two contexts; at 1k the third is beaten by the second."""
    table = pd.DataFrame(
        {
            "system": ["a"] * 8,
            "context_tok": [1024] * 4 + [2048] * 4,
            "cost_usd": [1.0, 2.0, 3.0, 10.0] * 2,
            "throughput_tok_s": [1.0, 9.0, 8.0, 10.0, 0.1, 0.9, 0.95, 1.0],
            "energy_j_tok": [4.0] * 8,
        }
    )
    axes = plot.pareto(table, colour="energy_j_tok")
    fronts = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    assert fronts["a, context 1k"] == [[1.0, 1.0], [2.0, 9.0], [10.0, 10.0]]
    assert len(fronts["a, context 2k"]) == 4
    knees = [line.get_xydata() for line in axes.lines if line.get_color() == "black"]
    assert [np.asarray(knee).tolist() for knee in knees] == [[[2.0, 9.0]], [[2.0, 0.9]]]
    figure: Any = axes.figure
    assert figure.axes[1].get_ylabel() == "Energy (J/tok)"


def test_less_is_better_of_what_costs() -> None:
    """Time and cost: the front falls."""
    table = pd.DataFrame({"system": ["a"] * 3, "cost_usd": [1.0, 2.0, 3.0]})
    axes = plot.pareto(table.assign(step_ms=[5.0, 6.0, 1.0]), y="step_ms")
    (line,) = (line for line in axes.lines if line.get_label() == "a")
    assert np.asarray(line.get_xydata()).tolist() == [[1.0, 5.0], [3.0, 1.0]]


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

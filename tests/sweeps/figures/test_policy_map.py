"""A map is won by the best, and says by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.figures import vertical_segments

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot
from nearkv.sweeps.figures.policy_map import best_of

MAP = pd.DataFrame(
    {
        "system": ["a", "a", "b", "b"],
        "context_tok": [1024, 2048, 1024, 2048],
        "batch": [1, 1, 1, 1],
        "status": ["ok", "ok", "ok", "infeasible"],
        "throughput_tok_s": [4.0, 1.0, 2.0, float("nan")],
    }
)


TIMES = pd.DataFrame(
    {
        "system": ["a", "b"],
        "context_tok": [1024, 1024],
        "batch": [1, 1],
        "step_ms": [1.0, 2.0],
        "word": ["x", "y"],
    }
)


def test_a_policy_map_knows_the_best_and_its_margin() -> None:

    best = best_of(MAP, "throughput_tok_s", ("context_tok", "batch"), "system")
    assert best.winner.tolist() == [[0, 0]]
    assert best.margin.tolist() == [[2.0, float("inf")]]
    costs = MAP.rename(columns={"throughput_tok_s": "step_ms"})  # of which less is better
    worst = best_of(costs, "step_ms", ("context_tok", "batch"), "system")
    assert worst.winner.tolist() == [[1, 0]]
    assert worst.margin.tolist() == [[2.0, float("inf")]]


def test_a_policy_map_labels_both_axes_and_names_who_competes() -> None:
    axes = plot.policy_map(MAP)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Context (tokens)", "Batch (sequences)")
    legend = axes.get_legend()
    assert legend
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_two_systems_over_context_and_batch_are_a_map() -> None:
    grid = pd.concat([MAP, MAP.assign(batch=2)])
    axes = plot.suitable(grid, "throughput_tok_s", ["context_tok", "batch"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Context (tokens)", "Batch (sequences)")
    one = grid[grid["system"] == "a"]
    with pytest.raises(InputError, match="varies over context_tok and batch"):
        plot.suitable(one, "throughput_tok_s", ["context_tok", "batch"])


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


def test_a_map_of_times_is_won_by_the_shortest() -> None:
    drawn = plot.policy_map(TIMES, "step_ms").get_images()
    images: Any = [image.get_array() for image in drawn]
    won = [float(np.max(image[..., 3])) for image in images]
    assert won[0] > 0
    assert won[1] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"value": "step_ms", "y": "context_tok"}, "context_tok is named for both axes"),
        ({"value": "word"}, "word holds names, not numbers"),
    ],
)
def test_a_map_refuses_what_it_cannot_draw(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plot.policy_map(TIMES, **options)  # type: ignore[arg-type]

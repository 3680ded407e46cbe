"""A finite trace is simulated to its end, and its row holds nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nearkv
from nearkv.costmodel.model.metrics import COLUMNS

ONE_GPU = {"tp": 1, "dp": 1, "pp": 1, "ep": 1}
THREE = "1000,10,0", "2000,5,0.01", "500,20,0.02"
"""All are answered long before the queue could grow, and come within a fifth of that time."""


def asked(folder: Path, *rows: str, method: str = "simulate", **knobs: Any) -> pd.Series:
    trace = folder / "mine.csv"
    trace.write_text("\n".join(["input_tokens,output_tokens,arrival_s", *rows]))
    table = nearkv.compare(
        "gpu",
        model="llama3.1-8b",
        trace=str(trace),
        method=method,
        knobs={**ONE_GPU, **knobs},
    )
    return table.iloc[0]


def is_little(row: pd.Series, requests: int) -> bool:
    """True if those present and those that decode are as many as their rate and times say."""
    rate = row["throughput_tok_s"] / row["output_tokens"]
    decode = rate * (row["total_s"] - row["ttft_s"])
    served = row["users_served"] == pytest.approx(rate * row["total_s"])
    at_goodput = row["goodput_req_s"] == pytest.approx(rate)
    within = requests / rate >= row["total_s"] * (1 - 1e-9)
    return bool(served and at_goodput and within and row["batch_run"] == pytest.approx(decode))


@pytest.mark.parametrize(
    "rows", [THREE, THREE[:1], ("1000,10,0", "1000,10,0"), (*THREE, "100000,2,0.02")]
)
def test_a_trace_that_ends_is_served_to_its_end(tmp_path: Path, rows: tuple[str, ...]) -> None:
    row = asked(tmp_path, *rows)
    assert row["status"] == "ok"
    assert is_little(row, len(rows))


def random_trace(random: np.random.Generator) -> list[str]:
    """Requests at random times, some of them in bursts at one time."""
    count = int(random.integers(1, 201))
    times = np.sort(random.exponential(10 ** random.uniform(-3, 1), count).cumsum())
    times = np.where(random.random(count) < random.choice([0, 0.5, 1]), times[0], times)
    prompts, outputs = random.integers(1, 8000, count), random.integers(1, 300, count)
    return [f"{p},{n},{t}" for p, n, t in zip(prompts, outputs, times, strict=True)]


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(s, marks=pytest.mark.deep) for s in range(5, 50))]
)
def test_random_traces_are_served_to_their_end(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random_trace(random)
    chunk = int(random.choice([0, 512, 8192]))
    row = asked(tmp_path, *rows, chunk=chunk, dp=int(random.integers(1, 5)))
    assert row["status"] == "ok"
    assert is_little(row, len(rows))


def test_a_row_of_a_simulation_holds_nothing_else(tmp_path: Path) -> None:
    """A column that neither the machine nor the simulation answers is blank, not of averages."""
    row = asked(tmp_path, *THREE)
    of_averages = asked(tmp_path, "1000,10,0", "2000,5,1", "500,20,2", method="fluid")
    said = {"batch_run", "total_s", "ttft_s", "tpot_ms", "throughput_tok_s"}
    for name, column in COLUMNS.items():
        if not column.of_machine and name not in said:
            assert np.isnan(row.get(name, np.nan)), name
    assert of_averages["power_w"] > 0


def test_answers_of_one_token_have_no_time_per_token(tmp_path: Path) -> None:
    rows = [f"500,1,{second}" for second in range(20)]
    for method in ("fluid", "simulate"):
        row = asked(tmp_path, *rows, method=method)
        assert row["status"] == "ok"
        assert row["ttft_s"] > 0
        assert np.isnan(row.get("tpot_ms", np.nan))
        assert np.isnan(row.get("tpot_p90_ms", np.nan))


def test_averages_of_a_burst_point_to_the_simulation(tmp_path: Path) -> None:
    row = asked(tmp_path, *THREE, method="fluid")
    assert row["status"] == "not-modelled"
    assert "--method simulate serves them to the last one" in row["reason"]
    assert "memory is full" not in row["note"]


def test_a_mean_length_is_no_whole_number(tmp_path: Path) -> None:
    row = asked(tmp_path, *THREE)
    assert row["context_tok"] == pytest.approx(3500 / 3)
    assert row["output_tokens"] == pytest.approx(35 / 3)


@pytest.mark.parametrize("stages", [1, 2, 8])
def test_a_simulated_batch_means_what_the_closed_form_does(stages: int) -> None:
    """Little's law: those in memory, at a token each tpot; all else of a request's life is waiting.

    On stages prompts and those that decode fill them, as in the closed form.
    """
    knobs = {"tp": 8 // stages, "dp": 1, "pp": stages}
    fluid, played = (
        nearkv.compare(
            "gpu",
            model="opt-66b",
            platform="dgx-a100-pim",
            trace="longbench",
            knobs=knobs,
            method=method,
        ).iloc[0]
        for method in ("fluid", "simulate")
    )
    for name in ("total_s", "ttft_s", "tpot_ms", "throughput_tok_s"):
        assert played[name] == pytest.approx(fluid[name], rel=0.05), name
    assert played["batch_run"] <= fluid["batch_run"]
    in_memory = played["throughput_tok_s"] / played["output_tokens"] * (played["output_tokens"] - 1)
    assert played["batch_run"] == pytest.approx(in_memory * played["tpot_ms"] / 1e3)
    assert np.isnan(played.get("ttft_p50_s", np.nan))

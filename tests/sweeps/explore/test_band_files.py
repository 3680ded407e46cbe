"""Bands of crossovers, fronts and files: intervals, limits, the same bytes in every process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nearkv
from nearkv.cli import app
from nearkv.sweeps.evaluate.slo import higher_is_better

AXES = ["--model", "opt-66b", "--context", "8k:64k:+8k", "--batch", "1:64:x2"]
SWEEP = ["sweep", "--system", "flexgen-ssd,hilos", *AXES, "--quiet"]
BAND = ["--band", "90", "--samples", "64"]


def run(*words: str) -> None:
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == 0, outcome.output


@pytest.mark.processes
@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_whatever_the_jobs(tmp_path: Path) -> None:
    contents = []
    for name, options in (
        ("one", ["--jobs", "1"]),
        ("two", ["--jobs", "2"]),
        ("again", ["--jobs", "1"]),
        ("other", ["--jobs", "1", "--seed", "7"]),
    ):
        file = tmp_path / f"{name}.csv"
        run(*SWEEP, *BAND, *options, "-o", str(file))
        contents.append(file.read_bytes())
    one, two, again, other = contents
    assert one == two == again
    assert one != other
    beside = json.loads((tmp_path / "one.csv.provenance.json").read_text())
    assert beside["band"]["samples"] == 64
    assert {row["number"] for row in beside["band"]["numbers"]} >= {"derate.uplink"}
    assert {row["mechanism"] for row in beside["band"]["model_errors"]} <= {
        "GPU",
        "CPU",
        "flash",
        "links",
    }


@pytest.mark.slow
def test_a_table_equals_its_points() -> None:
    """The draws are those of the study, whatever the tile that a point lies in."""
    axes: dict[str, Any] = {
        "systems": "flexgen-ssd,hilos",
        "model": "opt-66b",
        "band": 90,
        "samples": 4096,
    }
    table = nearkv.sweep(**axes, context=[8192, 16384, 32768], batch=range(1, 14))
    part = nearkv.sweep(**axes, context=[16384], batch=[13])
    same = table[(table["context_tok"] == 16384) & (table["batch"] == 13)]
    for name in ("step_ms_p05", "step_ms_p50", "step_ms_p95", "fits_share"):
        assert np.array_equal(same[name].to_numpy(), part[name].to_numpy())


@pytest.mark.slow
def test_a_crossover_is_an_interval() -> None:
    row = nearkv.solve(
        "crossover",
        "opt-66b",
        systems="flexgen-dram,inf2",
        along="context=4k:1M",
        band=90,
        samples=128,
    ).iloc[0]
    assert row["above_p05"] < row["above"] < row["above_p95"]
    assert 0 < row["crossing_share"] <= 1


def test_a_front_of_lower_ends() -> None:
    """More is better of the lower end of a rate, as of the rate."""
    counts = {"csd.count": [1, 2, 4, 8]}
    front = nearkv.pareto(
        systems="hilos",
        model="opt-30b",
        context="8k",
        sets=counts,
        by="throughput_tok_s_p05,cost_usd",
        band=90,
        samples=64,
    )
    assert front["csd.count"].tolist() == [8, 4, 2, 1]
    assert higher_is_better("throughput_tok_s_p97.5")
    assert not higher_is_better("step_ms_p05")


def test_questions_without_a_band_refuse_one() -> None:
    with pytest.raises(nearkv.InputError, match="solve batch gives one batch, not a band"):
        nearkv.solve("batch", "opt-66b", band=90)
    need: dict[str, Any] = {"vary": "csd.count", "slo": "throughput_tok_s=0.5"}
    with pytest.raises(nearkv.InputError, match="solve hardware gives one size, not a band"):
        nearkv.solve("hardware", "opt-66b", band=90, **need)


@pytest.mark.slow
def test_a_split_that_is_solved_point_by_point_keeps_its_points() -> None:
    """Beta has a value of its own at each design point; the draws are one more axis."""
    options: dict[str, Any] = {"platform": "aipc-4090", "band": 90, "samples": 64}
    both = nearkv.solve("beta", "qwen-7b", batch=8, context=["8k", "12k"], **options)
    last = nearkv.solve("beta", "qwen-7b", batch=8, context="12k", **options)
    ends = ["step_ms_p05", "step_ms_p50", "step_ms_p95"]
    assert both[ends].iloc[1].tolist() == pytest.approx(last[ends].iloc[0].tolist())

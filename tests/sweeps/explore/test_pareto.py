"""The Pareto-optimal designs of a sweep, against all of them compared in pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.command_line import printed, succeed

import nearkv
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.evaluate import columns as run
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.explore.pareto import find_front
from nearkv.sweeps.jobs import best
from nearkv.sweeps.study import grid
from nearkv.sweeps.study.study import Study

STATED = {"weights": "host"}
"""A placement that need not be solved anew at every design point."""
POINT = Study(("hilos",), ("opt-66b",), "16", "64k", "64", knobs=STATED)


COUNTS = {"csd.count": "1:60:+1"}


GRID = POINT.but(systems=("hilos", "flexgen-ssd"), batch="1:40:+3", sets={"csd.count": "1:16:+1"})


@pytest.mark.slow
def test_the_frontier_of_a_sweep_is_the_brute_force_one(monkeypatch: pytest.MonkeyPatch) -> None:
    every = run.table(GRID)
    speed, cost, step = (
        every[name].astype(float) for name in ("throughput_tok_s", "cost_usd", "step_ms")
    )
    allowed = step <= 200_000
    beaten = [
        np.any(allowed & (speed >= s) & (cost <= c) & ((speed > s) | (cost < c)))
        for s, c in zip(speed, cost, strict=True)
    ]
    kept = allowed & ~np.array(beaten)
    wanted = set(zip(speed[kept], cost[kept], strict=True))  # designs alike are one row
    monkeypatch.setattr(grid, "POINTS_AT_ONCE", 16)  # many boxes, none of which sees all
    monkeypatch.setattr(best, "REDUCED", 50)
    found = find_front(GRID, "throughput_tok_s,cost_usd", ["step_ms<=200000"])
    assert set(zip(found["throughput_tok_s"], found["cost_usd"], strict=True)) == wanted
    assert np.all(np.diff(found["throughput_tok_s"].astype(float)) <= 0)


@pytest.mark.parametrize(
    ("by", "where", "requested"),
    [
        ("throughput_tok_s", [], "two or three different columns"),
        ("throughput_tok_s,cost_usd,step_ms,total_s", [], "two or three different columns"),
        ("throughput_tok_s,throughput_tok_s", [], "two or three different columns"),
        ("throughput_tok_s,cost", [], "did you mean 'cost_usd'"),
        ("throughput_tok_s,system", [], "system is not a column of numbers"),
        ("throughput_tok_s,cost_usd", ["speedup:flexgen-ssd>=2"], "need `nearkv compare`"),
        ("throughput_tok_s,cost_usd", ["step_ms<=1"], "no design meets every --where"),
    ],
)
def test_frontiers_that_cannot_be_drawn(by: str, where: list[str], requested: str) -> None:
    with pytest.raises(InputError, match=requested):
        find_front(GRID, by, where)


@pytest.mark.slow
def test_every_workload_has_a_frontier_of_its_own() -> None:
    study = POINT.but(models=("opt-66b", "opt-30b"), context="8k,64k", sets=COUNTS)
    table = find_front(study, "throughput_tok_s,cost_usd", [])
    for model in study.models:
        for context in ("8k", "64k"):
            alone = study.but(models=(model,), context=context)
            front = find_front(alone, "throughput_tok_s,cost_usd", [])
            tokens = front["context_tok"][0]
            own = (table["model"] == model) & (table["context_tok"] == tokens)
            assert list(table["csd.count"][own]) == list(front["csd.count"])


@pytest.mark.filterwarnings("ignore:--set csd.count changes nothing")
def test_designs_that_an_axis_does_not_change_are_one_row() -> None:
    study = POINT.but(systems=("flexgen-ssd",), sets={"csd.count": "1:32:+1"})
    table = find_front(study, "throughput_tok_s,cost_usd", [])
    assert len(table["system"]) == 1
    assert "the same for 32 values of csd.count, 1 to 32" in str(table["note"][0])


def test_an_axis_that_a_system_does_not_have_merges_nothing() -> None:
    knobs = {"interval": "4,8,16"}
    asked: dict[str, Any] = {"platforms": ("hilos-a100",), "sets": {"csd.count": "4,8"}}
    study = Study(("flexgen-dram", "hilos"), "opt-66b", knobs=knobs, **asked)
    table = find_front(study, "throughput_tok_s,cost_usd", [])
    assert {*table["system"]} == {"flexgen-dram", "hilos"}
    assert not [note for note in table["note"] if "of interval" in note]


@pytest.mark.parametrize("blank", ["alpha", "endurance_requests"])
def test_a_system_without_the_column_compared_by_is_told(blank: str) -> None:
    with pytest.warns(NearkvWarning, match=f"flexgen-dram run at design points without {blank}"):
        nearkv.pareto(systems=["hilos", "flexgen-dram"], model="opt-66b", by=f"{blank},step_ms")


def test_designs_are_limited_by_a_number_that_is_set() -> None:
    words = ("pareto", "--system", "hilos", "--model", "opt-66b", "--set", "csd.count=1:16:+1")
    front = succeed(*words, "--where", "csd.count<=4", "--format", "csv")
    counts = [line.split(",")[6] for line in front.splitlines()[1:]]
    assert set(counts) <= {"1", "2", "3", "4"}
    assert counts


@pytest.mark.parametrize("words", ["sweep --top 1", "sweep --best-per batch", "pareto"])
def test_columns_on_request_are_printed_of_the_best(words: str) -> None:
    names = "batch,bottleneck,footprint_gb:kv"
    study = ("--system", "hilos", "--model", "opt-66b", "--columns", names, "--format", "csv")
    assert names in printed(*words.split(), *study).splitlines()


def test_one_design_is_counted_in_the_singular() -> None:
    text = " ".join(printed("pareto", "--system", "hilos", "--model", "opt-66b").split())
    assert "1 design that no other of the same workload beats" in text


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


# --- all rows of `compare`, no code of the search ----------------------------------------------

SYSTEMS = ("hilos", "flexgen-ssd", "inf2", "gpu", "flexgen-dram", "l3", "deepspeed-uvm")
BY = ("throughput_tok_s", "step_ms", "total_s", "prefill_s", "energy_j_tok", "power_w")


def random_grid(random: np.random.Generator) -> dict[str, Any]:
    names = random.permutation(SYSTEMS)[: int(random.integers(1, 4))]
    batches = np.unique(np.round(2 ** random.uniform(0, 9, 6))).astype(int)
    return {
        "systems": names.tolist(),
        "model": str(random.choice(["opt-30b", "llama3.1-8b"])),
        "batch": batches.tolist(),
        "context": int(2 ** random.uniform(8, 14)),
        "output_tokens": int(2 ** random.uniform(2, 8)),
    }


def points_of(table: pd.DataFrame, by: list[str]) -> set[tuple[float, ...]]:
    """Numbers by which rows are compared, less is better, to nine digits."""
    signs = [-1.0 if name == "throughput_tok_s" else 1.0 for name in by]
    values = (table[by].astype(float) * signs).dropna().to_numpy()
    return {tuple(float(f"{number:.9g}") for number in row) for row in values}


def dominated(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return other != one and all(a >= b for a, b in zip(one, other, strict=True))


def check_front(random: np.random.Generator) -> None:
    asked = random_grid(random)
    by = random.permutation(BY)[:2].tolist()
    rows = points_of(nearkv.compare(**asked), by)
    if not rows:
        return
    best = {row for row in rows if not any(dominated(row, other) for other in rows)}
    front = nearkv.pareto(by=",".join(by), **asked)
    assert points_of(front, by) == best, (asked, by)
    # names in another order give the same, and a part of them nothing that beats it
    turned = {**asked, "systems": asked["systems"][::-1], "batch": asked["batch"][::-1]}
    other = nearkv.pareto(by=",".join(by), **turned)
    pd.testing.assert_frame_equal(front, other[front.columns], check_names=False)
    # a limit that all of the front meet changes nothing
    text = ",".join(by)
    limit = f"total_s<={float(front['total_s'].max())!r}"
    assert points_of(nearkv.pareto(by=text, where=[limit], **asked), by) == best
    alone = points_of(nearkv.compare(**{**asked, "systems": asked["systems"][0]}), by)
    assert not any(dominated(whole, part) for whole in best for part in alone)


@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_the_front_is_that_of_all_rows() -> None:
    random = np.random.default_rng(7)
    for _ in range(2):
        check_front(random)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_the_front_is_that_of_all_rows_in_100_cases() -> None:
    random = np.random.default_rng(8)
    for _ in range(100):
        check_front(random)

"""What a search answers, against a scan of every value; what a reducer keeps, against a sort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drawing import CASES, seeded

from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.explore.batch import best_batches
from nearkv.sweeps.explore.hardware import least_hardware
from nearkv.sweeps.jobs.best import best
from nearkv.sweeps.jobs.reduce import BestPer, Reducer, Top
from nearkv.sweeps.jobs.running import SweepRun
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.study import Study

COUNTED = {
    "hilos": "csd.count",
    "flexgen-16ssd": "raid.count",
    "inf2": "csd.count",
    "gpu-only": "gpu.count",
    "l3": "dimm.ranksets",
}
MODELS = ("opt-30b", "opt-66b", "llama2-70b", "gpt-89b")
MOST = 48
few = settings(seeded, max_examples=max(CASES // 20, 1))
"""A scan evaluates hundreds of designs."""


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """One point of a system whose devices are counted."""
    return Study(
        systems=(draw(st.sampled_from(sorted(COUNTED))),),
        models=(draw(st.sampled_from(MODELS)),),
        batch=str(draw(st.integers(1, 128))),
        context=str(draw(st.integers(8192, 131_072))),
        output_tokens=str(draw(st.integers(2, 256))),
    )


@few
@given(studies(), st.integers(0, MOST - 1))
@pytest.mark.slow
def test_the_least_count_is_the_first_of_a_scan(study: Study, place: int) -> None:
    """The target is what some count reaches, so a plateau is met exactly."""
    address = COUNTED[study.systems[0]]
    scan = table(replace(study, sets={address: f"1:{MOST}:+1"}))
    fits = scan["status"] == "ok"
    rates = np.where(fits, scan["throughput_tok_s"].astype(float), np.nan)
    target = float(rates[place])
    if np.isnan(target):
        return
    reached = rates >= target
    (row,) = least_hardware(study, f"{address}=1:{MOST}", [f"throughput_tok_s>={target!r}"])
    first = 1 + int(np.argmax(reached))
    if row["limit"] == "any":
        assert np.all(reached)
    else:
        assert row["limit"] in ("at least", "from")
        assert row["value"] == first


@few
@given(studies())
@pytest.mark.slow
def test_the_best_batch_is_the_best_of_a_scan(study: Study) -> None:
    (row,) = best_batches(replace(study, batch=Study.batch))
    most = min(int(row["largest_batch"]), 400)
    if most < 1:
        return
    scan = table(replace(study, batch=f"1:{most}:+1"))
    rates = scan["throughput_tok_s"].astype(float)
    assert np.nanmax(rates) <= row["bound_tok_s"] * (1 + 1e-9)
    if most == row["largest_batch"]:
        assert row["throughput_tok_s"] == np.nanmax(rates)


GRID = Study(
    ("flexgen-dram", "hilos"),
    ("opt-30b", "opt-175b"),
    batch="1,8,64",
    context="8k:64k:x2",
    knobs={"alpha": "0.5,auto", "devices": "4,8"},
)
COSTS = ("energy_j_tok", "step_ms", "cost_usd", "prefill_s")
GROUPS = ("system", "model", "batch", "context_tok", "status", "step_ms")


@st.composite
def reducers(draw: st.DrawFn) -> Reducer:
    by = draw(st.sampled_from(COSTS))
    if draw(st.booleans()):
        return Top(by, most=draw(st.integers(1, 100)))
    per = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True))
    return BestPer(by, tuple(per))


@few
@given(reducers())
@pytest.mark.slow
def test_a_reducer_keeps_what_a_sort_puts_first(reducer: Reducer) -> None:
    rows = table(GRID)
    costs = rows[reducer.by].astype(float)
    known = [int(row) for row in np.flatnonzero(~np.isnan(costs))]
    ordered = sorted(known, key=lambda row: (costs[row], row))
    if isinstance(reducer, Top):
        kept = ordered[: reducer.most]
    else:
        first: dict[tuple[object, ...], int] = {}
        for row in ordered:
            first.setdefault(tuple(rows[name][row] for name in reducer.per), row)
        kept = [first[group] for group in sorted(first)]
    run = SweepRun(Workers(1), True, False, lambda line: None, lambda question: True)
    answer = best(GRID, reducer, run)
    for name, column in rows.items():
        np.testing.assert_array_equal(answer[name], column[kept], err_msg=name)

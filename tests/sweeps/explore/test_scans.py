"""What a search answers, against a scan of every value."""

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

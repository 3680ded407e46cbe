"""Users who ask again: the closed form against the simulation, saturated or not."""

from __future__ import annotations

import numpy as np
import pytest
from bench.load import served, unlike

from nearkv.costmodel.mechanisms.serving.arrivals import PUT_BACK, under_load
from nearkv.costmodel.mechanisms.serving.closed_loop import of_users
from nearkv.costmodel.model.estimate import fits
from nearkv.costmodel.model.workload import Arrivals, Serving, Workload
from nearkv.sweeps.simulate.play import simulate
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.study.traces import Trace, alike


def drawn_users(seed: int) -> tuple[Trace, Workload, Serving]:
    """Requests, alike in two of five cases, of 1 to 1,024 users, and a machine that holds them."""
    random = np.random.default_rng(seed)
    while True:
        trace = unlike(random)
        if random.random() < 0.4:
            trace = alike(*np.rint([np.mean(trace.prompt), np.mean(trace.output)]))
        users = round(np.exp(random.uniform(0, np.log(1024))))
        if held := served(random, trace, users=str(users)):
            return trace, *held


def error_of(seed: int) -> float:
    """Larger error of mean TTFT and TPOT; none where the row says what the closed form lacks."""
    trace, work, serving = drawn_users(seed)
    assert work.arrivals is not None
    if np.any(under_load(work, serving, fits()).notes[PUT_BACK]):
        return np.nan
    closed = of_users(work, serving, work.batch).latency
    queue = simulate(trace, serving, Arrivals(users=work.arrivals.users), seed)
    errors = closed.ttft / queue.ttft.mean() - 1, closed.tpot / queue.tpot.mean() - 1
    return float(np.max(np.abs(errors)))


@pytest.mark.parametrize("seed", [4, 19, 25, 29, 39])
def test_users_are_answered_as_in_the_simulation(seed: int) -> None:
    """Prompts of unlike lengths, that fill 0.4 of the iterations (4), or of four replicas (19).

    Alike, on one replica (29): those that began together stay so, as no router parts them.
    """
    assert error_of(seed) < 0.15


@pytest.mark.parametrize("seed", [4, 29])
def test_the_line_of_users_adds_up_to_their_first_token(seed: int) -> None:
    """Waits, the running iteration and one's own prompt: the parts that percentiles spread."""
    _, work, serving = drawn_users(seed)
    closed = of_users(work, serving, work.batch)
    assert closed.line.mean == pytest.approx(closed.latency.ttft, rel=1e-9)


@pytest.mark.deep
def test_nine_of_ten_workloads_are_answered_as_in_the_simulation() -> None:
    errors = np.array([error_of(seed) for seed in range(60)])
    known = errors[~np.isnan(errors)]
    assert len(known) >= 45
    assert np.mean(known <= 0.15) >= 0.9


@pytest.mark.parametrize(("users", "measured", "share"), [(32, 0.2368, 0.25)])
def test_decoding_waits_for_the_prompts_beside_it(
    users: int, measured: float, share: float
) -> None:
    """Qwen3-8B on one H200, prompts of 9,000 tokens for 30 (aiconfigurator, issue 1148).

    Nearly each iteration is full of prompts, which 26 of the 32 wait for between two tokens.
    """
    knobs = {"tp": 1, "dp": 1, "pp": 1}
    study = Study(
        ("gpu",),
        ("qwen3-8b",),
        users=str(users),
        context="9000",
        output_tokens="30",
        platforms=("hgx-h200",),
        sets={"gpu.count": "1"},
        knobs=knobs,
    )
    (block,) = blocks(study)
    estimate = block.resolved(block.grid.whole).estimate
    assert float(estimate.latency.tpot) == pytest.approx(measured, rel=share)
    assert float(estimate.batch_run) == pytest.approx(26, abs=1)

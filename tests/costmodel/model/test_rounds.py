"""A batch in rounds: each as long as a batch of its own, in the memory of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.systems import SYSTEMS

import nearkv
from nearkv.costmodel.model.estimate import AT_LIMIT, IN_ROUNDS
from nearkv.costmodel.model.workload import Workload
from nearkv.sweeps.study.study import Study, blocks

pytestmark = pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
ASKED: dict[str, Any] = {
    "model": "llama3.1-8b",
    "context": "4k",
    "platform": "own",
    "output_tokens": 33,
}


@pytest.mark.parametrize(
    ("batch", "most", "rounds"),
    [(16, 16, 1), (16, 4, 4), (24, 16, 2), (17, 16, 2), (16, np.inf, 1), (3, 1, 3), (2, 8, 1)],
)
def test_a_batch_runs_in_as_few_equal_rounds_as_hold_it(
    batch: float, most: float, rounds: float
) -> None:
    assert Workload(batch, 8.0, 8.0, per_round=most).rounds == rounds


def test_four_rounds_take_four_times_as_long_as_one_on_every_system() -> None:
    """Rates and energy stay; a mean request waits for one and a half rounds before its own."""
    one = nearkv.compare([*SYSTEMS], batch=4, **ASKED).set_index("system")
    four = nearkv.compare([*SYSTEMS], batch=16, per_round=4, **ASKED).set_index("system")
    assert {*one["status"]} == {*four["status"]} == {"ok"}
    for name in ("total_s", "prefill_s", "step_ms"):
        assert four[name].to_numpy() == pytest.approx(4 * one[name].to_numpy(), nan_ok=True)
    for name in ("throughput_tok_s", "tpot_ms", "batch_run", "energy_j_tok", "power_w"):
        assert four[name].to_numpy() == pytest.approx(one[name].to_numpy(), nan_ok=True), name
    waits = (0 + 1 + 2 + 3) / 4 * one["total_s"] + one["ttft_s"]
    assert four["ttft_s"].to_numpy() == pytest.approx(waits.to_numpy())
    assert four["note"].str.contains(IN_ROUNDS).all()
    assert not one["note"].str.contains(IN_ROUNDS).any()


@pytest.mark.parametrize(("sequences", "run"), [("engine", 4), (0, 8), (6, 6), (8, 8)])
def test_rounds_that_the_engine_ends_say_so(sequences: str | int, run: int) -> None:
    """llama.cpp runs four at once unless told otherwise; one RTX 4090 holds eight of 4k."""
    asked = {**ASKED, "platform": "rtx-4090-box", "parts": {"engine": "llama.cpp"}}
    row = nearkv.estimate("gpu", batch=8, knobs={"sequences": sequences}, **asked)
    assert row["batch_run"] == run
    assert (AT_LIMIT in str(row["note"])) == (run < 8)


def test_what_fits_in_rounds_of_one_fits_at_any_batch_and_not_all_at_once() -> None:
    sizes = nearkv.compare("h2m2", batch=4096, per_round="1,4096", **ASKED)
    assert sizes["status"].tolist() == ["ok", "infeasible"]
    assert sizes["batch_run"][0] == 1


def test_a_solved_share_and_its_bound_are_of_all_rounds() -> None:
    """Where `hilos` solves its X-cache share, the least seconds it can reach count every round."""
    (block,) = blocks(Study("hilos", "opt-66b", batch=64, per_round=16, knobs={"weights": "host"}))
    solved = block.resolved(block.grid.whole)
    assert solved.choice is not None
    assert solved.estimate.work.rounds == 4
    assert solved.choice.seconds == pytest.approx(solved.estimate.total.seconds)
    assert solved.choice.bound <= solved.choice.seconds * (1 + 1e-9)

"""Requests that keep their limits, of a batch in which all are alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tiny import WORK, estimate

from nearkv.costmodel.model.workload import Arrivals
from nearkv.solvers.goodput import goodput, load_columns


@pytest.mark.parametrize(("ttft", "tpot", "kept"), [(2, 2, 1), (0.5, 2, 0), (2, 0.5, 0)])
def test_of_a_batch_all_requests_keep_both_limits_or_none(
    ttft: float, tpot: float, kept: float
) -> None:
    """Limits of twice and half the times of a request of five, in one round."""
    answer = estimate("full-cache")
    slo = Arrivals(
        users=5.0, ttft_slo=ttft * answer.prefill.seconds, tpot_slo=tpot * answer.step.seconds
    )
    limited = replace(answer, work=replace(WORK, arrivals=slo))
    assert load_columns(limited)["users_served"] == 5 * kept
    assert goodput(limited) == pytest.approx(5 * kept / answer.total.seconds)

"""Times of a mean request, from the spans of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Port
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.workload import Workload

SECONDS = Port("gpu.wait", "wait", 1.0, "s")


def answered(batch: float, at_once: float) -> Estimate:
    """A round: a prefill of 3 s, then 11 - 1 steps of 0.2 s."""
    rounds = batch / at_once
    return Estimate(
        prefill=SECONDS(3 * rounds),
        step=SECONDS(0.2 * rounds),
        fits=fits(gpu=(1.0, 2.0)),
        work=Workload(batch, 100.0, 11.0),
        batch_run=at_once,
    )


def test_a_batch_gets_its_first_tokens_after_all_its_prompts() -> None:
    latency = answered(8.0, 8.0).latency
    assert (latency.ttft, latency.tpot) == pytest.approx((3.0, 0.2))


@pytest.mark.parametrize(
    ("batch", "waits"),
    [(16.0, (0, 1)), (24.0, (0, 1, 2)), (20.0, (0, 0, 1, 1, 2)), (12.0, (0, 0, 1))],
)
def test_later_rounds_wait_for_those_before(batch: float, waits: tuple[int, ...]) -> None:
    """Eight at a time: of 20 requests, 8 wait for no round of 5 s, 8 for one and 4 for two."""
    latency = answered(batch, 8.0).latency
    assert latency.ttft == pytest.approx(3 + 5 * np.mean(waits))
    assert latency.tpot == pytest.approx(0.2)


def test_an_empty_batch_waits_for_nothing() -> None:
    empty = answered(0.0, 1.0).latency
    assert (empty.ttft, empty.tpot) == (0.0, 0.0)

"""Moments of requests that differ, by hand."""

from __future__ import annotations

from nearkv.costmodel.model.workload import Spread, Workload


def test_the_end_that_steps_see_weighs_requests_by_their_answers() -> None:
    """Requests of 100 + 10 and 300 + 30 tokens: E[(s + n) n] / E[n] = (1,100 + 9,900) / 40."""
    spread = Spread(product=1.25, output_square=1.25)
    assert Workload(2.0, 200.0, 20.0, spread=spread).final_seen == 275

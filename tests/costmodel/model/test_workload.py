"""Moments of requests that differ, by hand."""

from __future__ import annotations

from nearkv.costmodel.model.workload import Load, Spread, Workload


def test_the_end_that_steps_see_weighs_requests_by_their_answers() -> None:
    """Requests of 100 + 10 and 300 + 30 tokens: E[(s + n) n] / E[n] = (1,100 + 9,900) / 40."""
    spread = Spread(product=1.25, output_square=1.25)
    assert Workload(2.0, 200.0, 20.0, spread=spread).final_seen == 275


def test_requests_that_are_alike_are_one_part() -> None:
    work = Workload(2.0, 200.0, 20.0)
    assert (work.prompts, work.prompt_parts, work.outputs) == ([200], [200], [20])


def test_a_step_that_decodes_carries_no_prompt_and_keeps_what_it_computes() -> None:
    load = Load(2.0, 440.0, 440.0).share(0.5)
    assert (load.sequences, load.tokens) == (1, 220)
    assert (load.prompt, load.squares, load.products, load.kept_share) == (0, 0, 0, 1)

"""Columns of an answer by hand: energy, and times of decoding alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.tiny import estimate

from nearkv.costmodel.model.metrics import Answer, _seconds_alone, energy
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study


def test_a_device_that_draws_the_same_at_work_and_idle() -> None:
    """Two of 7 W all the time, for 5 sequences of 21 tokens."""
    answer = estimate("full-cache")
    hw = load_platform("aipc-4090").machine()
    steady = hw.with_values({"gpu.count": 2, "gpu.power": 7.0, "gpu.idle_power": 7.0})
    joules = energy(Answer(answer, steady, ("gpu",)))
    assert joules == pytest.approx(2 * 7.0 * answer.total.seconds / (5 * 21), rel=1e-12)


def test_tokens_per_second_of_decoding_are_blank_where_prompts_ride() -> None:
    serving = Study(("l3",), ("gpt-175b",), traces=("dolphin",))
    alone = Study(("l3",), ("gpt-175b",), batch="4", context="8k")
    assert np.isnan(table(serving)["decode_tok_s"].astype(float)).all()
    assert np.isfinite(table(alone)["decode_tok_s"].astype(float)).all()


def test_only_points_whose_steps_carry_prompts_are_blank() -> None:
    answer = estimate("full-cache")
    hw = load_platform("aipc-4090").machine()
    mixed = Answer(replace(answer, step_carries=np.array([0.0, 5.0])), hw, ())
    alone, carrying = np.ravel(_seconds_alone(mixed, answer.step))
    assert alone == answer.step.seconds
    assert np.isnan(carrying)

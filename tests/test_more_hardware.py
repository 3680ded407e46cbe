"""More memory, bandwidth or devices never hurt, on every platform that a system runs on."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest
from conftest import SYSTEMS

from nearkv.costmodel.models import llm_from_part
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.sweeps.validation.contracts import Trial, hardware_addresses, slower_with_more

CHANGES = int(os.environ.get("NEARKV_CASES", "12"))
SEED = int(os.environ.get("NEARKV_SEED", "1"))
CASES = [("llama2-7b", 1.0, 1024.0), ("opt-66b", 8.0, 16384.0), ("opt-175b", 4.0, 8192.0)]
"""Models whose weights fit a GPU, its host, and neither beside a cache; batch and prompt."""
GREEDY = {"h2m2"}
"""Its mapping is the paper's walk, which more bandwidth may lead to a step longer by 0.01 %."""
MACHINES = {name: load_platform(name).machine() for name in names("platform")}


@cache
def trials(name: str, platform: str) -> list[Trial]:
    """The cases that a system answers on a platform; none where it lacks a role or a number."""
    system, hw = SYSTEMS[name], MACHINES[platform]
    answered = []
    for llm_name, batch, prompt in CASES:
        llm = llm_from_part(load_llm(llm_name), hw["precision"])
        trial = Trial(system, hw, llm, Workload(batch, prompt, 64.0))
        try:
            if np.all(trial.at().fits.ok):
                answered.append(trial)
        except InputError:
            return []
    return answered


@pytest.mark.parametrize("platform", sorted(MACHINES))
def test_more_hardware_never_hurts(platform: str) -> None:
    """Each number alone times eight, and random changes of several at once."""
    every = [trial for name in SYSTEMS.keys() - GREEDY for trial in trials(name, platform)]
    for trial in every:
        slower = list(slower_with_more(trial, CHANGES, SEED))
        assert not slower, (trial.system.name, trial.llm.layers, slower)


def test_every_system_is_tried_somewhere() -> None:
    tried = {name for name in SYSTEMS for platform in MACHINES if trials(name, platform)}
    assert tried == set(SYSTEMS)


def test_more_memory_makes_a_small_model_fast() -> None:
    """A GPU of 800 GB holds a 7B model whole: no weight comes over its link any more."""
    hw = MACHINES["hilos-a100"]
    (trial, *_) = trials("hilos", "hilos-a100")
    large = trial.at(hw=hw.with_values({"gpu.memory": 800e9}))
    small = trial.at(hw=hw.with_values({"gpu.memory": 6e9}))
    assert large.step.seconds < small.step.seconds
    assert {"gpu.memory", "host.memory", "csd.count"} <= set(hardware_addresses(hw))

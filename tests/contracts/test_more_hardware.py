"""More memory, bandwidth or devices never hurt, on every platform that a system runs on."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.systems import SYSTEMS

from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import KnobSetting, resolve_knobs
from nearkv.sweeps.validation.contracts import (
    ContractCase,
    hardware_addresses,
    worse_with_more_hardware,
)

CHANGES = int(os.environ.get("NEARKV_CASES", "12"))
SEED = int(os.environ.get("NEARKV_SEED", "1"))
CASES = [("llama2-7b", 1.0, 1024.0), ("opt-175b", 4.0, 8192.0)]
"""Models whose weights fit a GPU, and not even its host beside a cache; batch and prompt.

Between them lies the model of `test_every_system_keeps_what_a_system_of_ones_own_is_checked_for`.
"""
GREEDY = {"h2m2"}
"""Algorithm 1 takes the fastest attention that fits and leaves fc what HBM has then left: more
bandwidth lets it take more. Its model is held at a mapping that stays, its solver by `oracle`."""
PLATFORMS = names("platform")
OWN_PLATFORMS = {system.platform for system in SYSTEMS.values()}
"""Those that systems run on by default; the others are tried by `make deep`."""


@cache
def machine(platform: str) -> Machine:
    return load_platform(platform).machine()


@cache
def trials(name: str, platform: str) -> list[ContractCase]:
    """The cases that a system answers on a platform; none where it lacks a role or a number."""
    system, hw = SYSTEMS[name], machine(platform)
    answered = []
    for llm_name, batch, prompt in CASES:
        llm = llm_from_part(load_llm(llm_name), hw["precision"])
        trial = ContractCase(system, hw, llm, Workload(batch, prompt, 64.0))
        with pytest.MonkeyPatch.context() as patch:
            # a list of all that a platform lacks takes longer than an answer
            patch.setattr("nearkv.solvers.knobs.lacking", lambda *_: ["a role"])
            try:
                if np.all(trial.at().fits.ok):
                    answered.append(trial)
            except InputError:
                return []
    return answered


@pytest.mark.parametrize(
    "platform",
    [
        name if name in OWN_PLATFORMS else pytest.param(name, marks=pytest.mark.deep)
        for name in PLATFORMS
    ],
)
@pytest.mark.slow
def test_more_hardware_never_hurts(platform: str) -> None:
    """Each number alone times eight, and random changes of several at once."""
    every = [trial for name in SYSTEMS.keys() - GREEDY for trial in trials(name, platform)]
    for trial in every:
        worse = list(worse_with_more_hardware(trial, CHANGES, SEED))
        assert not worse, (trial.system.name, trial.llm.layers, worse)


def test_only_the_greedy_mapping_is_slower_with_more_bandwidth() -> None:
    """Three times HBM's bandwidth, against twice: the greedy step is longer, the best one is not.

    With the heads that the greedy chose once left where they are, nothing is slower.
    """
    (*_, trial) = trials("h2m2", "gh-asymmetric")
    factors = np.array([1.0, 2.0, 3.0])
    bandwidth = trial.hw["hbm"].values["bandwidth"]
    faster = trial.hw.with_values({"hbm.bandwidth": factors * bandwidth})
    _, twice, thrice = np.asarray(trial.at(hw=faster).step.seconds)
    assert thrice > twice
    best = replace(trial, system=SYSTEMS["oracle"]).at(hw=faster).step.seconds
    assert np.all(np.diff(best) <= 0)
    defaults: dict[str, KnobSetting] = dict(trial.system.defaults)
    chosen = resolve_knobs(trial.system, trial.hw, trial.llm, trial.work, defaults).knobs
    held = replace(trial, knobs=chosen)
    assert np.all(np.diff(held.at(hw=faster).step.seconds) <= 0)
    assert not list(worse_with_more_hardware(held, CHANGES, SEED))


def test_every_system_is_tried_somewhere() -> None:
    """On its own platform, or on another one."""
    for name, system in SYSTEMS.items():
        platforms = [system.platform, *PLATFORMS]
        assert any(trials(name, platform) for platform in platforms), name


def test_more_memory_makes_a_small_model_fast() -> None:
    """A GPU of 800 GB holds a 7B model whole: no weight comes over its link any more."""
    hw = machine("hilos-a100")
    (trial, *_) = trials("hilos", "hilos-a100")
    large = trial.at(hw=hw.with_values({"gpu.memory": 800e9}))
    small = trial.at(hw=hw.with_values({"gpu.memory": 6e9}))
    assert large.step.seconds < small.step.seconds
    assert {"gpu.memory", "host.memory", "csd.count"} <= set(hardware_addresses(hw))

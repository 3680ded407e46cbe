"""Design points every test may use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from nearkv.costmodel import registry
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.models import llm_from_part
from nearkv.costmodel.registry import System
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.machine import Machine, Role

# the same examples in every run, so that a run says what a change did; `make fuzz` draws new ones;
# no example is timed: a busy machine is no fault
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

SYSTEMS = registry.systems()
NATIVE = Role("", "precision", {"weight": 2.0, "kv": 2.0, "activation": 2.0})


def model(name: str, machine: Machine | None = None) -> LLM:
    """A model of the catalogue, 16-bit unless a machine says otherwise."""
    widths = machine["precision"] if machine else NATIVE
    return llm_from_part(load_llm(name), widths)


def machine_of(system: System) -> Machine:
    """The platform of a system's paper."""
    return load_platform(system.platform).machine()


def middle(system: System) -> dict[str, Real]:
    """Every knob within its range, where the model does not set it."""
    values: dict[str, Real] = {}
    for name, knob in system.knobs.items():
        if knob.sets:
            continue
        if knob.solver:
            values[name] = 8.0
        elif knob.kind == "share":
            values[name] = knob.low + 0.3 * (knob.high - knob.low)
        else:
            values[name] = np.floor((knob.low + knob.high) / 2)
    return values


@pytest.fixture(params=sorted(SYSTEMS))
def system(request: pytest.FixtureRequest) -> System:
    """Every registered system in turn."""
    return SYSTEMS[request.param]


@pytest.fixture
def work() -> Workload:
    """A workload that most systems fit."""
    return Workload(batch=8.0, prompt=16384.0, output=64.0)

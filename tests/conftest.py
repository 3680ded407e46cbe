"""Design points every test may use."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel import registry
from nearkv.costmodel.llm import LLM, llm_of
from nearkv.costmodel.registry import System
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.machine import Machine, Role

SYSTEMS = registry.systems()
NATIVE = Role("", "precision", {"weight": 2.0, "kv": 2.0, "activation": 2.0})


def model(name: str, machine: Machine | None = None) -> LLM:
    """A model of the catalogue, 16-bit unless a machine says otherwise."""
    shape: dict[str, Real] = {key: number.si for key, number in load_llm(name).numbers.items()}
    return llm_of(shape, machine["precision"] if machine else NATIVE)


def machine_of(system: System) -> Machine:
    """The platform of a system's paper."""
    return load_platform(system.platform).machine()


def middle(system: System) -> dict[str, Real]:
    """Every knob somewhere inside its range; heads or layers that every model has, where the range is the model's."""
    knobs = {name: knob for name, knob in system.knobs.items() if not knob.sets}
    return {
        n: 8.0
        if k.solver
        else k.low + 0.3 * (k.high - k.low)
        if k.kind == "share"
        else np.floor((k.low + k.high) / 2)
        for n, k in knobs.items()
    }


@pytest.fixture(params=sorted(SYSTEMS))
def system(request: pytest.FixtureRequest) -> System:
    """Every registered system in turn."""
    return SYSTEMS[request.param]


@pytest.fixture
def work() -> Workload:
    """A workload that most systems fit."""
    return Workload(batch=8.0, prompt=16384.0, output=64.0)

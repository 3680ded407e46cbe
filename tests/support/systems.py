"""Registered systems, their machines and models, for tests of any of them."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model import registry
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import System
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.machine import Machine, Role

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
        elif name == "prefix":
            values[name] = 0.0  # of the work, which tests state themselves
        elif system.combinations and knob.kind == "count":
            values[name] = 1.0
        elif knob.is_continuous:
            values[name] = knob.low + 0.3 * (knob.high - knob.low)
        else:
            values[name] = np.floor((knob.low + knob.high) / 2)
    return values

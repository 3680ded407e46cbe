"""Questions that checks put to the models: one system at one workload, one catalogued number."""

from __future__ import annotations

from functools import cache

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM, llm_of
from nearkv.costmodel.model.registry import System, find_knob, find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_part, load_platform, names
from nearkv.hardware.errors import unknown
from nearkv.hardware.machine import Machine
from nearkv.hardware.quantity import Quantity
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.sizes import size

PUBLISHED = "paper"
"""The choice of a knob that a paper made."""


@cache
def model_on(platform: str, name: str) -> tuple[Machine, LLM]:
    """A platform and a model at its element widths, read once: many claims ask for the same."""
    hw = load_platform(platform).machine()
    shape: dict[str, Real] = {}
    for key, number in load_llm(name).numbers.items():
        shape[key] = number.si
    return hw, llm_of(shape, hw["precision"])


def number_at(address: str) -> float:
    """A number of a platform, a part or a model, named `NAME:ROLE.KEY` or `NAME:KEY` [SI].

    Raises:
        InputError: nothing has that address.
    """
    return quantity_at(address).si


def quantity_at(address: str) -> Quantity:
    """The same as its source prints it.

    Raises:
        InputError: nothing has that address.
    """
    name, _, key = address.partition(":")
    if name in names("platform"):
        role, _, key = key.partition(".")
        roles = load_platform(name).roles
        if role not in roles:
            raise unknown("part", role, roles, name)
        numbers = roles[role].numbers
    else:
        numbers = (load_part if name in names("part") else load_llm)(name).numbers
    if key not in numbers:
        raise unknown("number", key, numbers, name)
    return numbers[key]


def workload(context: str | Real, batch: str = "16", output: str = "64") -> Workload:
    """A workload from words; a context may also be an array of tokens."""
    tokens = size(context, "context") if isinstance(context, str) else context
    return Workload(float(batch), tokens, float(output))


def default_knobs(system: System) -> dict[str, Real | str]:
    """A system's knobs as its paper has them, those that stand for hardware numbers left out."""
    knobs: dict[str, Real | str] = {}
    for name, knob in system.knobs.items():
        if not knob.sets:
            knobs[name] = knob.default
    return {**knobs, **published_choices(system)}


def published_choices(system: System) -> dict[str, Real]:
    """Places of the choices named `paper`, which is what a claim speaks of, by knob [1]."""
    knobs = system.knobs.items()
    return {
        name: float(knob.choices.index(PUBLISHED))
        for name, knob in knobs
        if PUBLISHED in knob.choices
    }


def estimate_of(
    platform: str, system: str, model: str, work: Workload, knobs: str = ""
) -> Estimate:
    """A system's answer for one model, with knobs as in `name=value;...` and the others at their
    defaults.
    """
    hw, llm = model_on(platform, model)
    spec = find_system(system)
    requested = default_knobs(spec)
    for item in filter(None, knobs.split(";")):
        name, _, value = item.partition("=")
        knob = find_knob(spec, name)
        if knob.sets:
            hw = hw.with_values({knob.sets: float(value)})
        elif value in knob.choices:
            requested[name] = float(knob.choices.index(value))
        elif value == "auto" or value in knob.rules:
            requested[name] = value
        else:
            requested[name] = float(value)
    return resolve_knobs(spec, hw, llm, work, requested).estimate


def decode_rate(estimate: Estimate) -> Real:
    """Tokens per second while decoding; NaN where it does not fit [1/s]."""
    rate = estimate.work.batch / estimate.step.seconds
    return np.where(estimate.fits.ok, rate, np.nan)

"""Statements that no column of a table answers: each a small computation over the models, by name.

A module here holds the checks one paper needs; a check that serves several papers is in `shared`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM, llm_of
from nearkv.costmodel.registry import find_knob, find_system
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_part, load_platform, names
from nearkv.hardware.errors import unknown
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs

Check = Callable[..., Any]
_Check = TypeVar("_Check", bound=Check)

_CHECKS: dict[str, Check] = {}


def check(function: _Check) -> _Check:
    """Register a check under its function's name.

    It takes the words of a claim's `system` field, split at commas, and gives the predicted value or
    values in the claim's unit.
    """
    if function.__name__ in _CHECKS:
        raise ValueError(f"check {function.__name__!r} is registered twice")
    _CHECKS[function.__name__] = function
    return function


def checks() -> dict[str, Check]:
    """All checks by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _CHECKS


def find_check(name: str) -> Check:
    """Look a check up.

    Raises:
        InputError: no check has that name.
    """
    known = checks()
    if name not in known:
        raise unknown("check", name, known)
    return known[name]


def model_on(platform: str, name: str) -> tuple[Machine, LLM]:
    """A platform and a model at its element widths."""
    hw = load_platform(platform).machine()
    shape: dict[str, Real] = {key: number.si for key, number in load_llm(name).numbers.items()}
    return hw, llm_of(shape, hw["precision"])


def number_at(address: str) -> float:
    """A number of a platform, a part or a model, named `NAME:ROLE.KEY` or `NAME:KEY` [SI]."""
    name, _, key = address.partition(":")
    if name in names("platform"):
        role, _, number = key.partition(".")
        return load_platform(name).roles[role].numbers[number].si
    part = load_part(name) if name in names("part") else load_llm(name)
    return part.numbers[key].si


def estimate_of(
    platform: str, system: str, model: str, work: Workload, knobs: str = ""
) -> Estimate:
    """What a system answers for one model, its knobs (`name=value;...`) as said and solved."""
    hw, llm = model_on(platform, model)
    spec = find_system(system)
    requested: dict[str, Real | str] = {
        name: knob.default for name, knob in spec.knobs.items() if not knob.sets
    }
    for item in knobs.split(";") if knobs else ():
        name, _, value = item.partition("=")
        knob = find_knob(spec, name)
        if knob.sets:
            hw = hw.with_values({knob.sets: float(value)})
        elif value in knob.choices:
            requested[name] = float(knob.choices.index(value))
        else:
            requested[name] = value if value == "auto" or value in knob.rules else float(value)
    return resolve_knobs(spec, hw, llm, work, requested).estimate


def decode_rate(estimate: Estimate) -> Real:
    """Tokens a second while decoding; NaN where it does not fit [1/s]."""
    return np.where(estimate.fits.ok, estimate.work.batch / estimate.step.seconds, np.nan)

"""Turn what a user says of a system's knobs (a value, a paper's rule, `auto`) into numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.registry import System
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.mapping.policies import POLICIES, solve_mapping
from nearkv.solvers.shares.balance import Choice, feasible_share, minimise

Requested = Real | str
"""A knob's value, the name of a rule, or `auto`."""

Joint = Callable[[Machine, LLM, Workload, Mapping[str, Requested]], Mapping[str, Real]]
"""Settles several knobs at once: hw, llm, work, what was said of each -> values."""

JOINT: dict[str, Joint] = {name: partial(solve_mapping, name) for name in POLICIES}
"""Solvers by the name a `Knob.solver` gives; they see the knobs in the order the system declares them."""


@dataclass(frozen=True)
class Resolved:
    """An estimate with every knob settled.

    Attributes:
        estimate: the system's answer.
        knobs: value of every knob [1].
        choice: certificate of the share that was solved for, if one was.
    """

    estimate: Estimate
    knobs: Mapping[str, Real]
    choice: Choice | None = None


def resolve_knobs(
    system: System, hw: Machine, llm: LLM, work: Workload, requested: Mapping[str, Requested]
) -> Resolved:
    """Evaluate a system with its knobs as said; solve those that are `auto` for the fastest step.

    Knobs that name a joint solver are settled together by it. Other whole-numbered knobs and choices
    are searched exhaustively; a share is then minimised exactly for each of their values.

    Args:
        system: a registered system.
        hw, llm, work: what it runs on and does; broadcast over design points.
        said: value, rule name or `auto`, for every knob that sets no hardware number.
    """
    ruled = _ruled(system, hw, llm, work, requested)
    joint = _jointly(system, hw, llm, work, ruled)
    ruled |= joint
    searched = [
        n for n, v in ruled.items() if isinstance(v, str) and system.knobs[n].kind != "share"
    ]
    if not searched:
        return _solve_share(system, hw, llm, work, ruled)
    asked = {
        **requested,
        **joint,
    }  # rules may look at what is searched, so they are asked again for each value
    best: dict[str, Real] = {}
    lowest: Real = np.inf
    for values in product(*(_values(system, name) for name in searched)):
        candidate = dict(zip(searched, values, strict=True))
        tried = _solve_share(
            system, hw, llm, work, _ruled(system, hw, llm, work, {**asked, **candidate})
        )
        seconds = np.where(tried.estimate.fits.ok, tried.estimate.step.seconds, np.inf)
        for name, value in candidate.items():
            best[name] = np.where(seconds < lowest, value, best.get(name, value))
        lowest = np.minimum(lowest, seconds)
    return _solve_share(system, hw, llm, work, _ruled(system, hw, llm, work, {**asked, **best}))


def _jointly(
    system: System, hw: Machine, llm: LLM, work: Workload, requested: Mapping[str, Requested]
) -> dict[str, Requested]:
    solved: dict[str, Requested] = {}
    for solver in dict.fromkeys(
        system.knobs[name].solver for name, value in requested.items() if isinstance(value, str)
    ):
        if solver:
            together = {
                name: requested[name]
                for name, knob in system.knobs.items()
                if knob.solver == solver
            }
            solved |= JOINT[solver](hw, llm, work, together)
    return solved


def _values(system: System, name: str) -> list[float]:
    knob = system.knobs[name]
    return [float(value) for value in range(int(knob.low), int(knob.high) + 1)]


def _ruled(
    system: System, hw: Machine, llm: LLM, work: Workload, requested: Mapping[str, Requested]
) -> dict[str, Requested]:
    """Replace the names of rules by their values; rules see the knobs that are numbers."""
    stated = {name: value for name, value in requested.items() if not isinstance(value, str)}

    def value_of(name: str, value: Requested) -> Requested:
        if isinstance(value, str) and value in system.knobs[name].rules:
            return system.knobs[name].rules[value](hw, llm, work, stated)
        return value

    return {name: value_of(name, value) for name, value in requested.items()}


def _solve_share(
    system: System, hw: Machine, llm: LLM, work: Workload, requested: Mapping[str, Requested]
) -> Resolved:
    open_ = [name for name, value in requested.items() if isinstance(value, str)]
    values = {name: value for name, value in requested.items() if not isinstance(value, str)}
    if not open_:
        return Resolved(system(hw, llm, work, values), values)
    if len(open_) > 1:
        raise InputError(
            f"{system.name}: {' and '.join(open_)} are both auto; give all but one of them a value"
        )
    name = open_[0]
    start = system(hw, llm, work, {**values, name: 0.0})
    end = system(hw, llm, work, {**values, name: 1.0})
    low, high = feasible_share(start.fits, end.fits)
    knob = system.knobs[name]
    choice = minimise(
        start.step, end.step, np.clip(low, knob.low, knob.high), np.clip(high, knob.low, knob.high)
    )
    values[name] = choice.value
    return Resolved(system(hw, llm, work, values), values, choice)

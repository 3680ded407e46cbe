"""Contracts that every system keeps: what adds up, what is the same, what more hardware does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import NearkvError
from nearkv.hardware.quantity import sources
from nearkv.sweeps.validation.more_hardware import (
    Trial,
    less_served_with_more,
    slower_with_more,
)

MODELS = ("opt-66b", "qwen2.5-32b", "mixtral-8x7b", "gpt-oss-20b")
"""Models that a system is tried on: many heads, grouped heads, experts, windows."""
CHANGES = 64
"""Random changes of the hardware that a check tries."""
_ROUNDING = 1e-9
_BATCHES = np.array([1.0, 3.0, 16.0])
_PROMPTS = np.array([2048.0, 20000.0])


def violations(
    system: System, models: tuple[str, ...] = MODELS, seed: int = 0
) -> list[str]:
    """Say which contracts a system breaks, a sentence each.

    Args:
        system: any registered system.
        models: names of models that it is tried on; those that it does not model are left out.
        seed: of the random changes of its platform.
    """
    try:
        trials = list(_trials(system, models))
        sentences = list(_declared(system))
        for trial in trials:
            for contract in CONTRACTS:
                sentences += contract(trial)
            sentences += slower_with_more(trial, CHANGES, seed)
            sentences += less_served_with_more(trial, CHANGES, seed)
    except NearkvError as problem:
        return [str(problem)]
    if not trials:
        sentences.append(
            f"models none of {', '.join(models)}; name its attention in attends"
        )
    return list(dict.fromkeys(sentences))


def _trials(system: System, models: tuple[str, ...]) -> Iterator[Trial]:
    hw = load_platform(system.platform).machine()
    work = Workload(8.0, 16384.0, 64.0)
    for name in models:
        trial = Trial(system, hw, llm_from_part(load_llm(name), hw["precision"]), work)
        if not np.any(trial.at().fits.unmodelled):
            yield trial


# --- what is declared ---------------------------------------------------------------------------


def _declared(system: System) -> Iterator[str]:
    roles = load_platform(system.platform).roles
    for role in system.owns:
        if role not in roles:
            yield f"owns {role!r}, which is no role of {system.platform}"
    if system.cite not in sources():
        yield f"cites {system.cite!r}, which is no source; leave cite out, or name a known one"
    if not system.summary:
        yield "has no docstring; its first line is what `nearkv systems` shows"


# --- what adds up -------------------------------------------------------------------------------


def breakdown_sums(trial: Trial) -> Iterator[str]:
    """The seconds of all leaves sum to the seconds of the whole."""
    total = trial.at().total
    parts = sum(total.breakdown().values(), 0.0)
    if not np.allclose(parts, total.seconds):
        yield f"its breakdown sums to {parts:g} s of {total.seconds:g} s"


def nothing_booked_twice(trial: Trial) -> Iterator[str]:
    """No resource works longer than the whole takes."""
    total = trial.at().total
    for resource, busy in total.busy().items():
        if np.any(busy > total.seconds * (1 + _ROUNDING)):
            yield f"{resource} works {busy:g} s in {total.seconds:g} s"


def grid_equals_points(trial: Trial) -> Iterator[str]:
    """A grid of design points has the times of its points, one by one."""
    mesh = trial.at(work=Workload(_BATCHES[:, None], _PROMPTS[None, :], 64.0))
    whole = np.broadcast_to(mesh.total.seconds, (len(_BATCHES), len(_PROMPTS)))
    for (i, j), seconds in np.ndenumerate(whole):
        work = Workload(float(_BATCHES[i]), float(_PROMPTS[j]), 64.0)
        alone = trial.at(work=work).total.seconds
        if np.ndim(alone):
            yield "answers numbers by arrays; use np.where and [()] so that numbers stay numbers"
        elif not np.isclose(seconds, alone, rtol=1e-12):
            point = f"batch {work.batch:g} and {work.prompt:g} tokens"
            yield f"takes {alone:g} s at {point} alone, {seconds:g} s there in a grid"


def nothing_for_nothing(trial: Trial) -> Iterator[str]:
    """An empty batch takes no time."""
    seconds = trial.at(work=Workload(0.0, 4096.0, 64.0)).step.seconds
    if np.any(np.asarray(seconds) != 0):
        yield f"takes {seconds:g} s for a step of no sequences"


def slower_with_more_work(trial: Trial) -> Iterator[str]:
    """More sequences or longer prompts never make a step or the prefill faster."""
    sizes = np.array([1.0, 2.0, 5.0, 16.0])
    fixed = np.full(sizes.shape, 4.0)
    cases = {
        "sequences": Workload(sizes, 1024 * fixed, 64.0),
        "prompt tokens": Workload(fixed, 1024 * sizes, 64.0),
    }
    for what, work in cases.items():
        estimate = trial.at(work=work)
        for phase in ("prefill", "step"):
            seconds = np.broadcast_to(getattr(estimate, phase).seconds, sizes.shape)
            if np.any(np.diff(seconds) < -_ROUNDING * seconds[1:]):
                yield f"has a faster {phase} with more {what}"


CONTRACTS: tuple[Callable[[Trial], Iterator[str]], ...] = (
    breakdown_sums,
    nothing_booked_twice,
    grid_equals_points,
    nothing_for_nothing,
    slower_with_more_work,
)
"""What is checked of every system on every model, but for random changes of its hardware."""

"""Checks of H2M2's statements about mapping costs and trends over lengths.

Source: H2M2 sec. 2, 3, 5.2; Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.solvers.search import crossings
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import default_knobs, model_on

Values = NDArray[np.float64]
PLATFORM = "gh-asymmetric"
BATCHES = {"gpt3-175b": 32.0, "chinchilla-70b": 64.0, "llama2-70b": 128.0}
"""Batches of sec. 5.2."""
LENGTHS = {
    "gpt3-175b": np.arange(256.0, 2049.0, 256.0),
    "chinchilla-70b": np.arange(256.0, 4097.0, 256.0),
    "llama2-70b": np.arange(512.0, 8193.0, 512.0),
}
"""Fig. 3 prints GPT3's; Chinchilla's are longer, Llama2's longer still: twice each."""


@cache
def solved(
    system: str, name: str, changes: tuple[tuple[str, float], ...] = ()
) -> tuple[Resolved, Machine, LLM]:
    """A system at every length of a model's grid, with numbers of the platform replaced; and what
    it ran on.
    """
    hw, llm = model_on(PLATFORM, name)
    hw = hw.with_values(dict(changes))
    resolved = _resolved(system, hw, llm, BATCHES[name], LENGTHS[name])
    return resolved, hw, llm


def _resolved(
    system: str, hw: Machine, llm: LLM, batch: float, lengths: Values
) -> Resolved:
    spec = find_system(system)
    work = Workload(batch, lengths, 1.0).at(lengths)
    knobs = default_knobs(spec)
    return resolve_knobs(spec, hw, llm, work, knobs)


def estimate(system: str, name: str) -> Estimate:
    """What a system answers at every length of a model's grid."""
    return solved(system, name)[0].estimate


def seconds(system: str, name: str, changes: Mapping[str, float] | None = None) -> Values:
    """A step at every length of a model's grid [s]."""
    resolved, _, _ = solved(system, name, tuple((changes or {}).items()))
    step = resolved.estimate.step.seconds
    return np.broadcast_to(step, LENGTHS[name].shape)


def _speedup(system: str, name: str) -> Values:
    """Speed-up over LPDDR-only at every length [1]."""
    return seconds("lpddr-only", name) / seconds(system, name)


def _unpaged(name: str) -> Values:
    """A step with greedy's mapping, address translation for free [s]."""
    resolved, hw, llm = solved("h2m2", name)
    work = resolved.estimate.work
    ideal = find_system("asymmetric")(hw, llm, work, resolved.knobs)
    return np.asarray(ideal.step.seconds)


def all_of(holds: Any) -> float:
    """1 where all of it holds, else 0."""
    return float(np.all(holds))


# --- costs of Table 3 -------------------------------------------------------------------------


def _mean_loss(better: Values, worse: Values) -> float:
    loss = 1 - better / worse
    return float(np.mean(loss))


@check
def translation_cost(*models: str) -> list[float]:
    """Share of H2M2's step that address translation takes, averaged over lengths, a model each [1].

    Source: Table 3.
    """
    return [_mean_loss(_unpaged(name), seconds("h2m2", name)) for name in models]


@check
def greedy_cost(*models: str) -> list[float]:
    """Share of its step that the greedy mapping loses to the optimum, averaged over lengths [1].

    Source: Table 3.
    """
    return [_mean_loss(seconds("oracle", name), _unpaged(name)) for name in models]


@check
def h2m2_cost(*models: str) -> list[float]:
    """Share of its step that H2M2 loses to the oracle, averaged over lengths [1].

    Source: Table 3, total.
    """
    return [_mean_loss(seconds("oracle", name), seconds("h2m2", name)) for name in models]


# --- order and trend over lengths, sec. 2, 3, 5.2 ---------------------------------------------


@check
def gains_more(larger: str, smaller: str, *systems: str) -> float:
    """Whether systems gain more over LPDDR-only, averaged over lengths, with one model than
    another.

    Source: Sec. 5.2.
    """
    for system in systems:
        with_larger = _speedup(system, larger).mean()
        with_smaller = _speedup(system, smaller).mean()
        if with_larger <= with_smaller:
            return 0.0
    return 1.0


@check
def wins_at_the_shortest(name: str, first: str, second: str) -> float:
    """Whether the first system beats the second at the shortest length and loses at the longest.

    Source: Sec. 5.2.3.
    """
    ahead = seconds(first, name) < seconds(second, name)
    return float(ahead[0] and not ahead[-1])


@check
def crossover_context(name: str, first: str, second: str) -> float:
    """Context at which the first system stops being the faster one (sec. 5.2.1) [tokens]."""
    hw, llm = model_on(PLATFORM, name)

    def lead(_: Any, tokens: Values) -> Values:
        steps = []
        for system in (first, second):
            resolved = _resolved(system, hw, llm, BATCHES[name], tokens)
            steps.append(np.asarray(resolved.estimate.step.seconds))
        ahead: Values = np.log(steps[1] / steps[0])
        return ahead

    lengths = np.arange(64.0, 2049.0, 64.0)
    first_crossing = crossings(lead, 1, lengths, True)[0]
    return float(first_crossing.above)

"""Checks of H2M2's statements about mappings, trends over lengths, and what a chip does (H2M2 sec. 2 to 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.head_mapping import SUBLAYERS, decoder_bytes, footprint
from nearkv.costmodel.mechanisms.head_tables import head_tables
from nearkv.costmodel.registry import find_system
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.solvers.mapping.exact import greedy
from nearkv.solvers.search import crossings
from nearkv.sweeps.validation.checks import check, model_on

PLATFORM = "gh-asymmetric"
GRIDS = {
    "gpt3-175b": (32.0, np.arange(256.0, 2049.0, 256.0)),
    "chinchilla-70b": (64.0, np.arange(256.0, 4097.0, 256.0)),
    "llama2-70b": (128.0, np.arange(512.0, 8193.0, 512.0)),
}
"""Batch of sec. 5.2 and lengths. Fig. 3 prints GPT3's; Chinchilla's are longer, Llama2's longer still: twice each."""
Values = NDArray[np.float64]


@cache
def solved(
    system: str, name: str, changes: tuple[tuple[str, float], ...] = ()
) -> tuple[Resolved, Machine, LLM]:
    """A system at every length of a model's grid, with numbers of the platform replaced; and what it ran on."""
    hw, llm = model_on(PLATFORM, name)
    hw = hw.with_values(dict(changes))
    batch, lengths = GRIDS[name]
    knobs = {key: knob.default for key, knob in find_system(system).knobs.items()}
    return (
        resolve_knobs(
            find_system(system), hw, llm, Workload(batch, lengths, 1.0).at(lengths), knobs
        ),
        hw,
        llm,
    )


def estimate(system: str, name: str) -> Estimate:
    """What a system answers at every length of a model's grid."""
    return solved(system, name)[0].estimate


def seconds(system: str, name: str, changes: Mapping[str, float] | None = None) -> Values:
    """A step at every length of a model's grid [s]."""
    found = solved(system, name, tuple((changes or {}).items()))[0].estimate
    return np.broadcast_to(found.step.seconds, GRIDS[name][1].shape)


def _speedup(system: str, name: str) -> Values:
    return seconds("lpddr-only", name) / seconds(system, name)


def _unpaged(name: str) -> Values:
    """Greedy's mapping with address translation for free [s]."""
    found, hw, llm = solved("h2m2", name)
    return np.asarray(
        find_system("asymmetric")(hw, llm, found.estimate.work, found.knobs).step.seconds
    )


def every(holds: Any) -> float:
    """1 where all of it holds, else 0."""
    return float(np.all(holds))


# --- costs of Table 3 ------------------------------------------------------------------------------


@check
def translation_cost(*models: str) -> list[float]:
    """Share of H2M2's step that address translation takes, averaged over lengths, a model each (Table 3) [1]."""
    return [float(np.mean(1 - _unpaged(name) / seconds("h2m2", name))) for name in models]


@check
def greedy_cost(*models: str) -> list[float]:
    """Share of its step that the greedy mapping loses to the optimum, averaged over lengths (Table 3) [1]."""
    return [float(np.mean(1 - seconds("oracle", name) / _unpaged(name))) for name in models]


@check
def h2m2_cost(*models: str) -> list[float]:
    """Share of its step that H2M2 loses to the oracle, averaged over lengths (Table 3, total) [1]."""
    return [float(np.mean(1 - seconds("oracle", name) / seconds("h2m2", name))) for name in models]


# --- order and trend over lengths, sec. 2, 3, 5.2 --------------------------------------------------


@check
def falls_with_length(name: str, *systems: str) -> float:
    """Whether every system's speed-up over LPDDR-only falls from each length to the next (sec. 3.2)."""
    return every([np.diff(_speedup(system, name)) < 0 for system in systems])


@check
def gap_narrows(name: str, system: str, best: str) -> float:
    """Whether what a system lacks to the best shrinks from each length to the next (sec. 3.2)."""
    return every(np.diff(1 - _speedup(system, name) / _speedup(best, name)) < 0)


@check
def faster_at_every_length(name: str, *systems: str) -> float:
    """Whether each system is faster than all that follow it, at every length (sec. 3.3)."""
    speedups = [_speedup(system, name) for system in systems]
    return every([one > other for one, other in pairwise(speedups)])


@check
def first_beats_rest(name: str, first: str, *rest: str) -> float:
    """Whether the first system is faster than each of the others at every length (sec. 3.3)."""
    return every([_speedup(first, name) > _speedup(system, name) for system in rest])


@check
def gains_more(larger: str, smaller: str, *systems: str) -> float:
    """Whether systems gain more over LPDDR-only, averaged over lengths, with one model than another (sec. 5.2)."""
    return every(
        [_speedup(system, larger).mean() > _speedup(system, smaller).mean() for system in systems]
    )


@check
def wins_at_the_shortest(name: str, first: str, second: str) -> float:
    """Whether the first system beats the second at the shortest length and loses at the longest (sec. 5.2.3)."""
    ahead = seconds(first, name) < seconds(second, name)
    return float(ahead[0] and not ahead[-1])


@check
def crossover_context(name: str, first: str, second: str) -> float:
    """Context at which the first system stops being the faster one (sec. 5.2.1) [tokens]."""
    hw, llm = model_on(PLATFORM, name)
    batch = GRIDS[name][0]

    def lead(_: Any, tokens: Values) -> Values:
        steps = []
        for system in (first, second):
            knobs = {key: knob.default for key, knob in find_system(system).knobs.items()}
            work = Workload(batch, tokens, 1.0).at(tokens)
            steps.append(
                np.asarray(
                    resolve_knobs(find_system(system), hw, llm, work, knobs).estimate.step.seconds
                )
            )
        ahead: Values = np.log(steps[1] / steps[0])
        return ahead

    return float(crossings(lead, 1, np.arange(64.0, 2049.0, 64.0), True)[0].above)


@check
def mappings(name: str, sublayers: str) -> float:
    """Ways to put 0 to N heads of so many sub-layers on HBM (sec. 3.2, 3.3) [1]."""
    return float((model_on(PLATFORM, name)[1].heads + 1) ** int(sublayers))


# --- what HBM holds, sec. 4.3, fig. 3 and 14 -------------------------------------------------------


def _on_hbm(name: str) -> dict[str, Values]:
    also = estimate("h2m2", name).also
    return {part: np.asarray(also[f"hbm_{part}_gb"]) for part in SUBLAYERS}


@check
def hbm_fill(name: str) -> Values:
    """Share of HBM that H2M2 fills, at every length (fig. 14) [1]."""
    _, hw, _ = solved("h2m2", name)
    filled: Values = (
        np.asarray(estimate("h2m2", name).also["hbm_used_gb"])
        * 1e9
        / (hw.hbm.count * hw.hbm.memory)
    )
    return filled


@check
def attention_takes_over(name: str) -> float:
    """Whether attention's bytes on HBM rise with length, to within one KV head, and those of fc fall (fig. 14)."""
    capacity_check = _on_hbm(name)
    _, _, llm = solved("h2m2", name)
    head = np.asarray(footprint(llm, estimate("h2m2", name).work, 1.0, 0.0, 0.0)["attention"]) / 1e9
    return every(
        (np.diff(capacity_check["attention"]) >= -head[1:]) & (np.diff(capacity_check["fc"]) <= 0)
    )


@check
def qkv_is_moderate(name: str) -> float:
    """Whether qkv-linear holds, at every length, bytes between those of fc and of attention (fig. 14)."""
    capacity_check = _on_hbm(name)
    low, high = (
        np.minimum(capacity_check["attention"], capacity_check["fc"]),
        np.maximum(capacity_check["attention"], capacity_check["fc"]),
    )
    return every((capacity_check["qkv"] >= low) & (capacity_check["qkv"] <= high))


@check
def mapped_in_order(*models: str) -> float:
    """Whether Algorithm 1 maps each sub-layer as if the later ones took no room (sec. 4.3.2)."""
    capacity_check = []
    for name in models:
        _, hw, llm = solved("h2m2", name)
        tables = head_tables(hw, llm, estimate("h2m2", name).work)
        chosen = greedy(tables).units
        for last in (1, 2):
            free = replace(
                tables, hbm=_without(tables.hbm, last), lpddr=_without(tables.lpddr, last)
            )
            capacity_check += [
                np.array_equal(a, b)
                for a, b in zip(chosen[:last], greedy(free).units[:last], strict=True)
            ]
    return every(capacity_check)


def _without(three: Any, last: int) -> Any:
    return tuple(table * (i < last) for i, table in enumerate(three))


@check
def evicted_for_good(name: str) -> float:
    """Whether heads of no sub-layer return to HBM as the length grows token by token (sec. 4.3.2)."""
    _, hw, llm = solved("h2m2", name)
    batch, lengths = GRIDS[name]
    tokens = np.arange(lengths[0], lengths[-1] + 1)
    units = greedy(head_tables(hw, llm, Workload(batch, tokens, 1.0).at(tokens))).units
    return every([np.diff(n) <= 0 for n in units])


@check
def attention_share_grows(name: str) -> float:
    """Whether the KV cache's share of a model's bytes grows with length (fig. 3)."""
    _, llm = model_on(PLATFORM, name)
    batch, lengths = GRIDS[name]
    cache = footprint(llm, Workload(batch, lengths, 1.0).at(lengths), llm.heads, 0.0, 0.0)[
        "attention"
    ]
    return every(np.diff(cache / decoder_bytes(llm, batch, lengths)) > 0)

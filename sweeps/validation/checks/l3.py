"""Checks of L3's statements about throughput, memory and time between tokens (L3 sec. 1, 5, 6)."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import default_knobs, model_on

Values = NDArray[np.float64]
PLATFORM = "dgx-a100-pim"
MODELS = ("opt-66b", "gpt-89b", "gpt-175b")
TRACES = ("openr1", "dolphin", "openthoughts", "longbench")
SMALLEST_DIMM = 16 * 2.0**30
SMALLEST_RANKSETS = 2.0
"""Smallest memory of sec. 6.2: 32 DIMMs hold 512 GB, in two ranksets."""
ENDLESS = 1e15
"""A memory that no batch fills [B]."""
BATCHES = (16.0, 32.0, 48.0, 64.0)
"""Of fig. 11, each request with 6,000 tokens."""
REPLICA = 4.0
"""GPUs of fig. 11: one replica of GPT-89B (Table 3), which has all DIMMs to itself."""
ONE_BATCH = 0.0
"""The bars of fig. 11 stack attention, QKV and projections: one batch, in series."""


# --- throughput on traces, fig. 8 -------------------------------------------------------------


# --- larger memories, fig. 9 ------------------------------------------------------------------


@check
def larger_memory(model: str, capacity: str, ranksets: str) -> float:
    """Throughput of L3 on OpenR1 with a memory so many times as large, and as fast, as the smallest
    [1].

    Source: Fig. 9.
    """
    larger = _openr1(model, float(capacity), float(ranksets))
    return larger / _openr1(model, 1.0, 1.0)


@cache
def _openr1(model: str, capacity: float, ranksets: float) -> float:
    """Throughput of L3 with the smallest memory so many times larger and faster [1/s]."""
    sets = {"dimm.capacity": f"{SMALLEST_DIMM * capacity}B"}
    knobs = {"ranksets": f"{SMALLEST_RANKSETS * ranksets:g}"}
    study = Study(
        ("l3",), (model,), traces=("openr1",), method="simulate", sets=sets, knobs=knobs
    )
    return float(table(study)["throughput_tok_s"][0])


@check
def both_are_needed(times: str, *models: str) -> float:
    """Whether scaling capacity and bandwidth together gains more than the sum of scaling either
    alone.

    Source: Fig. 9.
    """
    for model in models:
        bandwidth = larger_memory(model, "1", times) - 1
        capacity = larger_memory(model, times, "1") - 1
        both = larger_memory(model, times, times) - 1
        if both <= bandwidth + capacity:
            return 0.0
    return 1.0


# --- time between tokens, fig. 11 -------------------------------------------------------------


@check
def tbt_over_gpu(model: str, ranksets: str, context: str) -> Values:
    """Time between tokens of L3 over GPUs with endless memory at the same batch, at each batch [%].

    Source: Sec. 6.3.
    """
    ours = _tbt(model, "l3", float(context), ranksets)
    theirs = _tbt(model, "gpu-only", float(context))
    return 100 * ours / theirs


@check
def bars_of_fig_11(model: str, context: str, *ranksets: str) -> Values:
    """Times between tokens of GPUs and L3 at every batch, over the GPUs' at the smallest [1].

    Source: Fig. 11.
    """
    gpus = _tbt(model, "gpu-only", float(context))
    bars = [gpus, *(_tbt(model, "l3", float(context), count) for count in ranksets)]
    normalised: Values = np.concatenate(bars) / gpus[0]
    return normalised


def _tbt(model: str, system: str, context: float, ranksets: str = "") -> Values:
    """One step of a whole batch, whatever its memory [s]."""
    hw, llm = model_on(PLATFORM, model)
    hw = hw.with_values(
        {"gpu.count": REPLICA, "gpu.memory": ENDLESS, "dimm.capacity": ENDLESS}
    )
    if ranksets:
        hw = hw.with_values({"dimm.ranksets": float(ranksets)})
    spec = find_system(system)
    work = Workload(np.array(BATCHES), context, 1.0).at(context)
    knobs = default_knobs(spec)
    if "interleave" in knobs:
        knobs["interleave"] = ONE_BATCH
    resolved = resolve_knobs(spec, hw, llm, work, knobs)
    step: Values = np.asarray(resolved.estimate.step.seconds)
    return step

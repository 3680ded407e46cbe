"""Requests that finish at random and are replaced: mapping solved anew each iteration (H2M2 sec. 5.3, fig. 16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.head_mapping import SUBLAYERS, footprint
from nearkv.costmodel.registry import find_system
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Requested, resolve_knobs
from nearkv.sweeps.evaluation.evaluate import Columns

SYSTEMS = ("lpddr-only", "flexgen-mapping", "h2m2", "oracle")
"""Of fig. 16, the baseline first."""
MOST_DRAWN = 10_000_000
"""Longer traces than this are a mistake."""


@dataclass(frozen=True)
class LengthTrace:
    """What a batch goes through.

    Attributes:
        lengths: tokens of every request in every iteration, iterations x requests [1].
        new: whether a request has just replaced one that finished.
    """

    lengths: NDArray[np.int64]
    new: NDArray[np.bool_]


def random_trace(
    requests: int, iterations: int, finish: float, shortest: int, longest: int, seed: int
) -> LengthTrace:
    """Draw a trace: each request grows by a token or, at random or when longest, is replaced.

    The paper states neither the lengths of new requests nor how often one finishes: lengths are
    uniform here, and `finish` is a chance an iteration.

    Args:
        requests: in the batch [1].
        iterations: decode steps [1].
        finish: chance that a request finishes in an iteration [1].
        shortest, longest: lengths of new requests; none grows beyond the longest [tokens].
        seed: of the random numbers.

    Raises:
        InputError: no requests, no iterations, too many, or bounds that leave no choice.
    """
    if requests < 1 or iterations < 1:
        raise InputError(
            f"trace: {requests} requests over {iterations} iterations is empty; use at least one of each"
        )
    if requests * iterations > MOST_DRAWN:
        raise InputError(
            f"trace: {requests} requests over {iterations} iterations are more than {MOST_DRAWN:,}; use fewer"
        )
    if seed < 0:
        raise InputError(f"trace: seed {seed} must be a whole number, 0 or more")
    if not 1 <= shortest <= longest:
        raise InputError(
            f"trace: lengths from {shortest} to {longest} tokens; use 1 <= shortest <= longest"
        )
    if not 0 <= finish <= 1:
        raise InputError(f"trace: a chance to finish of {finish} is none; use a number from 0 to 1")
    random = np.random.default_rng(seed)
    fresh = random.integers(shortest, longest, size=(iterations, requests), endpoint=True)
    ends = random.random((iterations, requests)) < finish
    lengths, new = fresh.copy(), np.zeros(fresh.shape, dtype=bool)
    for i in range(1, iterations):  # a state machine: each row needs the one before
        new[i] = ends[i] | (lengths[i - 1] >= longest)
        lengths[i] = np.where(new[i], fresh[i], lengths[i - 1] + 1)
    return LengthTrace(lengths, new)


def replay(hw: Machine, llm: LLM, trace: LengthTrace, systems: Sequence[str]) -> Columns:
    """Run systems through a trace; every iteration is a design point.

    Args:
        hw, llm: one machine and one model.
        trace: what the batch goes through.
        systems: names; the first is what the others are compared with.

    Returns:
        One row a system: mean step, mean speed-up with and without migration, and for mappings of
        heads the migrated bytes an iteration and the share of iterations in which the mapping moves.
    """
    requests = trace.lengths.shape[1]
    # attention reads sum(S), whoever holds it, so the mean length stands for the batch
    mean = trace.lengths.sum(1) / requests
    work = Workload(float(requests), mean, 1.0, fixed_context=mean)
    rate = np.minimum(hw.c2c.count * hw.c2c.bandwidth, hw.lpddr.count * hw.lpddr.bandwidth)
    ran = [_steps_and_moves(hw, llm, work, name) for name in systems]
    base = ran[0][0]
    return {
        "system": np.array(systems),
        "step_ms": np.array([1e3 * np.mean(steps) for steps, _ in ran]),
        "speedup": np.array([np.mean(base / steps) for steps, _ in ran]),
        "speedup_migrating": np.array(
            [np.mean(base / (steps + moved / rate)) for steps, moved in ran]
        ),
        "migrated_mb": np.array([np.mean(moved) / 1e6 for _, moved in ran]),
        "moves": np.array([np.mean(moved > 0) for _, moved in ran]),
    }


def _steps_and_moves(
    hw: Machine, llm: LLM, work: Workload, name: str
) -> tuple[NDArray[np.float64], ...]:
    """Seconds of every iteration [s], bytes that change sides before it [B]."""
    system = find_system(name)
    requested: dict[str, Requested] = {n: k.default for n, k in system.knobs.items() if not k.sets}
    solved = resolve_knobs(system, hw, llm, work, requested)
    if not np.all(solved.estimate.fits.ok):
        raise InputError(
            f"{name}: some iterations do not fit its memories; use fewer requests or shorter ones"
        )
    units = [
        solved.knobs[f"n_{sublayer}"] for sublayer in SUBLAYERS if f"n_{sublayer}" in solved.knobs
    ]
    return np.broadcast_to(solved.estimate.step.seconds, np.shape(work.context)), migrated_bytes(
        llm, work, units
    )


def migrated_bytes(llm: LLM, work: Workload, units: Sequence[Real]) -> NDArray[np.float64]:
    """Bytes that change sides before each iteration, the first one apart [B].

    Args:
        llm: shapes.
        work: one design point an iteration.
        units: heads on HBM of attention, qkv and fc; empty where the system maps no heads [1].
    """
    shape = np.shape(work.context)
    if not units:
        return np.zeros(shape)
    now = [np.broadcast_to(n, shape) for n in units]
    before = [np.concatenate([n[:1], n[:-1]]) for n in now]
    there, here = footprint(llm, work, *before), footprint(llm, work, *now)
    moved: NDArray[np.float64] = np.sum([np.abs(here[name] - there[name]) for name in here], axis=0)
    return moved

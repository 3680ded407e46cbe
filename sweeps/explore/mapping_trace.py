"""Requests that finish at random and are replaced, mapped anew in each iteration.

Source: H2M2 sec. 5.3, fig. 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import SUBLAYERS, footprint
from nearkv.costmodel.model.capacity import STATUSES, shortage
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import require_alike
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Requested, resolve_knobs
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.tables.table import records

SYSTEMS = ("lpddr-only", "flexgen-mapping", "h2m2", "oracle")
"""Systems of fig. 16, the baseline first."""
MOST_LENGTHS = 10_000_000
"""A trace of more lengths than this is taken for a mistake."""


@dataclass(frozen=True)
class LengthTrace:
    """Lengths of the requests of a batch over its iterations.

    Attributes:
        lengths: tokens of every request in every iteration, iterations x requests [1].
        new: whether a request has just replaced one that finished.
    """

    lengths: NDArray[np.int64]
    new: NDArray[np.bool_]


def random_trace(
    requests: int,
    iterations: int,
    finish: float,
    shortest: int,
    longest: int,
    seed: int,
) -> LengthTrace:
    """Draw a trace: each request grows by a token or, at random or when longest, is replaced.

    The paper states neither the lengths of new requests nor how often one finishes: lengths are
    uniform here, and `finish` is a chance per iteration.

    Args:
        requests: in the batch [1].
        iterations: decode steps [1].
        finish: chance that a request finishes in an iteration [1].
        shortest, longest: lengths of new requests; none grows beyond the longest [tokens].
        seed: of the random numbers.

    Raises:
        InputError: no requests, no iterations, too many, or bounds that leave no choice.
    """
    _check_size(requests, iterations)
    if seed < 0:
        raise InputError(f"trace: seed {seed} must be a whole number, 0 or more")
    if not 1 <= shortest <= longest:
        raise InputError(
            f"trace: lengths from {shortest} to {longest} tokens; use 1 <= shortest <= longest"
        )
    if not 0 <= finish <= 1:
        raise InputError(
            f"trace: {finish} is no chance that a request finishes; use a number from 0 to 1"
        )
    random = np.random.default_rng(seed)
    shape = (iterations, requests)
    fresh = random.integers(shortest, longest, size=shape, endpoint=True)
    ends = random.random(shape) < finish
    lengths = fresh.copy()
    new = np.zeros(shape, dtype=bool)
    for i in range(1, iterations):  # a state machine: each row needs the one before
        new[i] = ends[i] | (lengths[i - 1] >= longest)
        lengths[i] = np.where(new[i], fresh[i], lengths[i - 1] + 1)
    return LengthTrace(lengths, new)


def _check_size(requests: int, iterations: int) -> None:
    trace = f"trace: {requests} requests over {iterations} iterations"
    if requests < 1 or iterations < 1:
        raise InputError(f"{trace} is empty; use at least one of each")
    if requests * iterations > MOST_LENGTHS:
        raise InputError(f"{trace} are more than {MOST_LENGTHS:,}; use fewer")


def replay(hw: Machine, llm: LLM, trace: LengthTrace, systems: Sequence[str]) -> Columns:
    """Run systems through a trace; every iteration is a design point.

    Args:
        hw, llm: one machine and one model.
        trace: lengths of the batch's requests.
        systems: names; the first is what the others are compared with.

    Returns:
        One row per system: mean step, mean speed-up with and without migration, and for mappings of
        heads the migrated bytes per iteration and the share of iterations in which a head moves;
        blank where some iteration does not fit, with the most that any misses.
    """
    requests = trace.lengths.shape[1]
    # attention reads sum(S) wherever it lies, so the mean length stands for the batch
    mean = trace.lengths.sum(1) / requests
    work = Workload(float(requests), mean, 1.0, fixed_context=mean)
    link = hw.c2c.count * hw.c2c.bandwidth
    lpddr = hw.lpddr.count * hw.lpddr.bandwidth
    rate = np.minimum(link, lpddr)
    require_alike(llm, "--model", "head mapping")
    runs = [_run(hw, llm, work, name) for name in systems]
    baseline = runs[0]
    rows = [_row(run, baseline, rate) for run in runs]
    table: Columns = {"system": np.array(systems)}
    for name in rows[0]:
        table[name] = np.array([row[name] for row in rows])
    return table


@dataclass(frozen=True)
class _Run:
    """One system's iterations: how long each takes [s], and bytes that move before it [B].

    Both are blank where some iteration misses bytes of a memory [B].
    """

    steps: NDArray[np.float64]
    moved: NDArray[np.float64]
    short_of: str
    short: float


def _row(run: _Run, baseline: _Run, rate: Real) -> dict[str, float | str]:
    migrating = run.steps + run.moved / rate
    moves = np.where(np.isnan(run.moved), np.nan, run.moved > 0)
    reason = ""
    if run.short_of:
        reason = shortage(run.short_of)
    return {
        "status": STATUSES[bool(run.short_of)],
        "reason": reason,
        "short_of": run.short_of,
        "short_gb": run.short / 1e9,
        "step_ms": 1e3 * float(np.mean(run.steps)),
        "speedup": float(np.mean(baseline.steps / run.steps)),
        "speedup_migrating": float(np.mean(baseline.steps / migrating)),
        "migrated_mb": float(np.mean(run.moved)) / 1e6,
        "moves": float(np.mean(moves)),
    }


def _run(hw: Machine, llm: LLM, work: Workload, name: str) -> _Run:
    """Solve a system's knobs in each iteration."""
    system = find_system(name)
    requested: dict[str, Requested] = {
        n: k.default for n, k in system.knobs.items() if not k.sets
    }
    solved = resolve_knobs(system, hw, llm, work, requested)
    fits, shape = solved.estimate.fits, np.shape(work.context)
    if not np.all(fits.ok):
        blank = np.full(shape, np.nan)
        missing = np.broadcast_to(fits.short_bytes, shape)
        worst = int(np.argmax(missing))
        short_of = str(np.broadcast_to(fits.short_of, shape)[worst])
        return _Run(blank, blank, short_of, float(missing[worst]))
    heads = [f"n_{sublayer}" for sublayer in SUBLAYERS]
    units = [solved.knobs[knob] for knob in heads if knob in solved.knobs]
    steps = np.broadcast_to(solved.estimate.step.seconds, shape)
    return _Run(steps, migrated_bytes(llm, work, units), "", 0.0)


def migrated_bytes(llm: LLM, work: Workload, units: Sequence[Real]) -> NDArray[np.float64]:
    """Bytes that change sides before each iteration but the first [B].

    Args:
        llm: shapes.
        work: one design point per iteration.
        units: heads on HBM of attention, qkv and fc; empty where the system maps no heads [1].
    """
    shape = np.shape(work.context)
    if not units:
        return np.zeros(shape)
    current = [np.broadcast_to(n, shape) for n in units]
    # nothing moves before the first iteration: it counts as its own predecessor
    previous = [np.concatenate([n[:1], n[:-1]]) for n in current]
    before = footprint(llm, work, *previous)
    after = footprint(llm, work, *current)
    moved = np.zeros(shape)
    for name, size in after.items():
        moved += np.abs(size - before[name])
    return moved


def why_replay(answer: Columns) -> list[str]:
    """Say which system maps a trace best, and what moving heads costs it."""
    answered = [row for row in records(answer) if row["status"] == "ok"]
    if not answered:
        return ["No system fits in every step; use fewer requests or shorter ones."]
    best = min(answered, key=lambda row: row["step_ms"])
    cost = best["speedup"] / best["speedup_migrating"] - 1
    moved = f"heads change sides before {best['moves']:.0%} of its steps"
    return [
        f"{best['system']} is fastest, {best['speedup_migrating']:.4g} times "
        f"{answer['system'][0]}; {moved}, which costs {cost:.2%}: a faster c2c would lower that."
    ]

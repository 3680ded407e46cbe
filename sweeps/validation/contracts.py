"""Contracts that every system keeps: what adds up, what is the same, what more hardware does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers, Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import NearkvError
from nearkv.hardware.machine import Machine
from nearkv.hardware.schema import PART_TYPES, ROLES, sources
from nearkv.solvers.knobs import KnobSetting, Resolved, resolve_knobs

MODELS = ("opt-66b", "qwen2.5-32b", "mixtral-8x7b", "gpt-oss-20b")
"""Models that a system is tried on: many heads, grouped heads, experts, windows."""
CHANGES = 64
"""Random changes of the hardware that a check tries."""
_ROUNDING = 1e-9
_BATCHES = np.array([1.0, 3.0, 16.0])
_PROMPTS = np.array([2048.0, 20000.0])
_BATCHES_SERVED = np.array([1.0, 3.0, 16.0, 64.0, 256.0, 1024.0])
"""Batches of which the one that serves most is compared."""
_RATE_UNITS = {"B/s", "FLOP/s", "Hz", "T/s"}
_CAPACITIES = ("count", "memory", "capacity")
Changes = Mapping[str, Numbers]
"""Factors of a machine's numbers by address, one for each change [1]."""


@dataclass(frozen=True)
class ContractCase:
    """A system, and what it is tried on.

    Attributes:
        system, hw, llm, work: what is evaluated on what.
        knobs: those that are not at their defaults.
    """

    system: System
    hw: Machine
    llm: LLM
    work: Workload
    knobs: Mapping[str, KnobSetting] = field(default_factory=dict)

    def at(self, hw: Machine | None = None, work: Workload | None = None) -> Estimate:
        """The answer of the system, on other hardware or for other work where that is stated."""
        return self._resolved(hw or self.hw, work or self.work).estimate

    def _resolved(self, hw: Machine, work: Workload) -> Resolved:
        settings: dict[str, KnobSetting] = {**self.system.defaults, **self.knobs}
        return resolve_knobs(self.system, hw, self.llm, work, settings)

    @property
    def held(self) -> ContractCase:
        """This trial at the degrees of parallelism chosen here, where a system chooses any.

        They are chosen for the whole batch: for other work or hardware others, whose prompts or
        steps may take longer.
        """
        if not self.system.combinations:
            return self
        return replace(self, knobs=self._resolved(self.hw, self.work).knobs)


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
            sentences += worse_with_more_hardware(trial, CHANGES, seed)
    except NearkvError as problem:
        return [str(problem)]
    if not trials:
        sentences.append(
            f"models none of {', '.join(models)}; name its attention in attends"
        )
    return list(dict.fromkeys(sentences))


def _trials(system: System, models: tuple[str, ...]) -> Iterator[ContractCase]:
    hw, work = load_platform(system.platform).machine(), Workload(8.0, 16384.0, 64.0)
    for name in models:
        llm = llm_from_part(load_llm(name), hw["precision"])
        trial = ContractCase(system, hw, llm, work)
        if not np.any(trial.at().fits.unmodelled):
            yield trial


# --- what is declared ---------------------------------------------------------------------------


def _declared(system: System) -> Iterator[str]:
    for role in system.owns:
        if role not in ROLES:
            yield f"owns {role!r}, which is no role of a platform"
    if system.cite not in sources():
        yield f"cites {system.cite!r}, which is no source; leave cite out, or name a known one"
    if not system.summary:
        yield "has no docstring; its first line is what `nearkv systems` shows"


# --- what adds up -------------------------------------------------------------------------------


def seconds_add_up(trial: ContractCase) -> Iterator[str]:
    """The seconds of all leaves sum to those of the span, and no resource works longer."""
    estimate = trial.at()
    for span in (estimate.prefill, estimate.step, estimate.total):
        parts = sum(span.breakdown().values(), 0.0)
        if not np.allclose(parts, span.seconds):
            yield f"its breakdown sums to {parts:g} s of {span.seconds:g} s"
        for resource, busy in span.busy().items():
            if np.any(busy > span.seconds * (1 + _ROUNDING)):
                yield f"{resource} works {busy:g} s in {span.seconds:g} s"


def grid_equals_points(trial: ContractCase) -> Iterator[str]:
    """A grid of design points has the times and the feasibility of its points, one by one."""
    shape = (len(_BATCHES), len(_PROMPTS))
    mesh = trial.at(work=Workload(_BATCHES[:, None], _PROMPTS[None, :], 64.0))
    fits = np.broadcast_to(mesh.fits.ok, shape)
    phases = ("prefill", "step", "total")
    whole = [np.broadcast_to(getattr(mesh, phase).seconds, shape) for phase in phases]
    for i, j in np.ndindex(shape):
        work = Workload(float(_BATCHES[i]), float(_PROMPTS[j]), 64.0)
        estimate = trial.at(work=work)
        point = f"batch {work.batch:g} and {work.prompt:g} tokens"
        if estimate.fits.ok != fits[i, j]:
            yield f"fits at {point} alone or in a grid, not in both"
        for phase, seconds in zip(phases, whole, strict=True):
            alone = getattr(estimate, phase).seconds
            if np.ndim(alone):
                yield (
                    "answers numbers by arrays; use np.where and [()] so that numbers stay numbers"
                )
            elif not np.isclose(seconds[i, j], alone, rtol=1e-12):
                yield f"takes {alone:g} s at {point} alone, {seconds[i, j]:g} s there in a grid"


def nothing_for_nothing(trial: ContractCase) -> Iterator[str]:
    """An empty batch takes no time."""
    estimate = trial.at(work=Workload(0.0, 4096.0, 64.0))
    seconds = estimate.step.seconds
    if np.any(np.asarray(seconds) != 0):
        yield f"takes {seconds:g} s for a step of no sequences"
    if not np.all(np.isfinite(estimate.total.seconds)):
        yield "takes no finite time for no sequences"


# --- what more work and more hardware do ----------------------------------------------------------


def slower_with_more_work(trial: ContractCase) -> Iterator[str]:
    """More sequences or longer prompts never make a step or the prefill faster."""
    # replicas for more sequences than the fewest would idle until there are as many
    held = replace(trial, work=Workload(1.0, 1024.0, 64.0)).held
    sizes = np.array([1.0, 2.0, 5.0, 16.0])
    fixed = np.full(sizes.shape, 4.0)
    cases = {
        "sequences": Workload(sizes, 1024 * fixed, 64.0),
        "prompt tokens": Workload(fixed, 1024 * sizes, 64.0),
    }
    for what, work in cases.items():
        estimate = held.at(work=work)
        for phase in ("prefill", "step"):
            seconds = np.broadcast_to(getattr(estimate, phase).seconds, sizes.shape)
            if np.any(np.diff(seconds) < -_ROUNDING * seconds[1:]):
                yield f"has a faster {phase} with more {what}"


CONTRACTS: tuple[Callable[[ContractCase], Iterator[str]], ...] = (
    seconds_add_up,
    grid_equals_points,
    nothing_for_nothing,
    slower_with_more_work,
)
"""Contracts of every system on every model, but for random changes of its hardware."""


def worse_with_more_hardware(trial: ContractCase, changes: int, seed: int) -> Iterator[str]:
    """More memory, bandwidth or devices never hurt, but for numbers that the system lists.

    Neither `total_s` at as many sequences at once, nor throughput at the best of several batches.

    Args:
        trial: what is evaluated, as it is and with each change, in one grid.
        changes: how many random changes of several numbers, besides those of each number alone.
        seed: of the changes.
    """
    trial = trial.held
    listed = {axis for reversal in trial.system.reversals for axis in reversal.axes}
    addresses = [name for name in hardware_addresses(trial.hw) if name not in listed]
    factors = random_changes(addresses, changes, seed)
    more: dict[str, Real] = {}
    for address, factor in factors.items():
        role, _, key = address.partition(".")
        more[address] = factor * trial.hw[role][key]
    larger = trial.hw.with_values(more)
    shape = next(iter(factors.values())).shape
    estimate = trial.at(hw=larger)
    fits, at_once, seconds = (
        np.broadcast_to(number, shape)
        for number in (estimate.fits.ok, estimate.batch_run, estimate.total.seconds)
    )
    if fits[0]:
        slower = (at_once == at_once[0]) & (seconds > seconds[0] * (1 + _ROUNDING))
        if np.any(slower):
            yield f"is slower with more of {_fewest_changed(factors, slower)}"
        if not np.all(fits):
            yield f"does not fit with more of {_fewest_changed(factors, ~fits)}"
    rate = _best_throughput(trial, larger, shape)
    less = rate < rate[0] * (1 - _ROUNDING)
    if np.any(less):
        yield f"serves fewer tokens per second with more of {_fewest_changed(factors, less)}"


def hardware_addresses(hw: Machine) -> list[str]:
    """All rates, capacities and counts of a machine, as `role.key`: more of each is more.

    What follows another number is left out: it changes with that.
    """
    addresses = []
    for role, part in hw.roles.items():
        for key in part.values:
            units = {keys[key].unit for keys in PART_TYPES.values() if key in keys}
            is_more = key in _CAPACITIES or not units.isdisjoint(_RATE_UNITS)
            address = f"{role}.{key}"
            if is_more and address not in hw.follows:
                addresses.append(address)
    return addresses


def random_changes(addresses: list[str], changes: int, seed: int) -> Changes:
    """Factors of at least one: none, each address alone, then some of them in each change.

    Args:
        addresses: numbers that may change.
        changes: how many changes besides those of one address.
        seed: of the random choices.

    Returns:
        Address -> factor in each change, the first of which is none; whole, so that counts stay
        whole [1].
    """
    random = np.random.default_rng(seed)
    size = (len(addresses), changes)
    drawn = random.random(size)
    shares = random.choice([0.05, 0.3, 1.0], (1, changes))
    factors_of_chosen = random.choice([2.0, 3.0, 8.0, 64.0], size)
    several = np.where(drawn < shares, factors_of_chosen, 1.0)
    alone = 1 + 7 * np.eye(len(addresses))
    factors = np.hstack([np.ones((len(addresses), 1)), alone, several])
    return dict(zip(addresses, factors, strict=True))


def _best_throughput(trial: ContractCase, hw: Machine, shape: tuple[int, ...]) -> Numbers:
    """Tokens per second at the best batch, at once or in rounds, 0 where none fits [1/s]."""
    work = replace(trial.work, batch=_BATCHES_SERVED[:, None])
    estimate = trial.at(hw, work)
    tokens = work.batch * work.output
    rate = np.where(estimate.fits.ok, tokens / estimate.total.seconds, 0.0)
    best: Numbers = np.broadcast_to(rate, (len(_BATCHES_SERVED), *shape)).max(0)
    return best


def _fewest_changed(factors: Changes, where: Booleans) -> str:
    """The numbers of the marked change that changes fewest: what a reader tries first."""
    changed = np.sum([factor > 1 for factor in factors.values()], axis=0)
    place = int(np.argmin(np.where(where, changed, np.inf)))
    names = [name for name, factor in factors.items() if factor[place] > 1]
    named = ", ".join(names[:4])
    return f"{named}, ..." if len(names) > 4 else named

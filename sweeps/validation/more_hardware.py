"""Whether more memory, bandwidth or devices hurt: contracts over random changes of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.hardware.schema import PART_TYPES
from nearkv.solvers.knobs import Requested, resolve_knobs

BATCHES = np.array([1.0, 3.0, 16.0, 64.0, 256.0, 1024.0])
"""Batches of which a check takes the one that serves most."""
_ROUNDING = 1e-9
_RATES = {"B/s", "FLOP/s", "Hz", "T/s"}
_CAPACITIES = ("count", "memory", "capacity")
_NO_HARDWARE = {
    "cluster_host.count",
    "gpu.count",
    "cluster_gpu.count",
    "collective.all_reduce",
}
"""Nodes that split a fixed number of GPUs, and degrees of tensor parallelism: more is no more."""


@dataclass(frozen=True)
class Trial:
    """A system, and what it is tried on.

    Attributes:
        system, hw, llm, work: what is evaluated on what.
        knobs: those that are not at their defaults.
    """

    system: System
    hw: Machine
    llm: LLM
    work: Workload
    knobs: Mapping[str, Requested] = field(default_factory=dict)

    def at(self, hw: Machine | None = None, work: Workload | None = None) -> Estimate:
        """Its answer, on other hardware or for other work where that is stated."""
        requested: dict[str, Requested] = {**self.system.defaults, **self.knobs}
        machine, workload = hw or self.hw, work or self.work
        return resolve_knobs(self.system, machine, self.llm, workload, requested).estimate


def hardware_addresses(hw: Machine) -> list[str]:
    """All rates, capacities and counts of a machine, as `role.key`: more of each is more."""
    addresses: list[str] = []
    for role, part in hw.roles.items():
        addresses += [f"{role}.{key}" for key in part.values]
    return [address for address in addresses if _is_more(address)]


def _is_more(address: str) -> bool:
    _, _, key = address.partition(".")
    if address in _NO_HARDWARE:
        return False
    return _is_capacity(key)


def _is_capacity(key: str) -> bool:
    if key in _CAPACITIES:
        return True
    units = {keys[key].unit for keys in PART_TYPES.values() if key in keys}
    return not units.isdisjoint(_RATES)


def random_changes(
    addresses: list[str], changes: int, seed: int
) -> Mapping[str, NDArray[np.float64]]:
    """Factors of at least one: of each address alone, then of some of them in each change.

    Args:
        addresses: numbers that may change.
        changes: how many changes besides those of one address.
        seed: of the random choices.

    Returns:
        Address -> factor in each change; whole, so that counts stay whole [1].
    """
    random = np.random.default_rng(seed)
    size = (len(addresses), changes)
    drawn = random.random(size)
    shares = random.choice([0.05, 0.3, 1.0], (1, changes))
    factors_of_chosen = random.choice([2.0, 3.0, 8.0, 64.0], size)
    several = np.where(drawn < shares, factors_of_chosen, 1.0)
    alone = 1 + 7 * np.eye(len(addresses))
    factors = np.hstack([alone, several])
    return dict(zip(addresses, factors, strict=True))


def slower_with_more(trial: Trial, changes: int, seed: int) -> Iterator[str]:
    """More memory, bandwidth or devices never hurt `total_s`, at as many sequences at once.

    Args:
        trial: what is evaluated, once as it is and once with each change.
        changes: how many random changes of its hardware.
        seed: of the changes.
    """
    addresses = hardware_addresses(trial.hw)
    factors = random_changes(addresses, changes, seed)
    before = trial.at()
    after = trial.at(hw=_changed(trial.hw, factors))
    if not np.all(before.fits.ok):
        return
    shape = _shape(factors)
    seconds = np.broadcast_to(after.total.seconds, shape)
    batch_run = np.broadcast_to(after.batch_run, shape)
    fits = np.broadcast_to(after.fits.ok, shape)
    most = before.total.seconds * (1 + _ROUNDING)
    slower = (batch_run == before.batch_run) & (seconds > most)
    if np.any(slower):
        yield f"is slower with more of {_changed_names(factors, slower)}"
    if not np.all(fits):
        yield f"does not fit with more of {_changed_names(factors, ~fits)}"


def less_served_with_more(trial: Trial, changes: int, seed: int) -> Iterator[str]:
    """More memory, bandwidth or devices never cost throughput at the best of several batches.

    Args:
        trial: what is evaluated, once as it is and once with each change.
        changes: how many random changes of its hardware.
        seed: of the changes.
    """
    addresses = hardware_addresses(trial.hw)
    factors = random_changes(addresses, changes, seed)
    before = _best_throughput(trial, trial.hw, (1,))
    after = _best_throughput(trial, _changed(trial.hw, factors), _shape(factors))
    less = after < before * (1 - _ROUNDING)
    if np.any(less):
        yield f"serves fewer tokens per second with more of {_changed_names(factors, less)}"


def _best_throughput(
    trial: Trial, hw: Machine, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Tokens per second at the best of `BATCHES` served at once, 0 where none is [1/s]."""
    work = replace(trial.work, batch=BATCHES[:, None])
    estimate = trial.at(hw, work)
    tokens = work.batch * work.output
    at_once = np.greater_equal(estimate.batch_run, work.batch)
    served = estimate.fits.ok & at_once
    rate = np.where(served, tokens / estimate.total.seconds, 0.0)
    best: NDArray[np.float64] = np.broadcast_to(rate, (len(BATCHES), *shape)).max(0)
    return best


def _changed(hw: Machine, factors: Mapping[str, NDArray[np.float64]]) -> Machine:
    """The machine with each number times its factors."""
    more: dict[str, Real] = {}
    for address, factor in factors.items():
        more[address] = factor * _number(hw, address)
    return hw.with_values(more)


def _shape(factors: Mapping[str, NDArray[np.float64]]) -> tuple[int]:
    """How many changes there are of a machine."""
    first = next(iter(factors.values()))
    return (len(first),)


def _changed_names(
    factors: Mapping[str, NDArray[np.float64]], where: NDArray[np.bool_]
) -> str:
    """The numbers of the smallest change of some."""
    place = _fewest_changes(factors, where)
    names = [name for name, factor in factors.items() if factor[place] > 1]
    named = ", ".join(names[:4])
    return f"{named}, ..." if len(names) > 4 else named


def _fewest_changes(
    factors: Mapping[str, NDArray[np.float64]], where: NDArray[np.bool_]
) -> int:
    """The change, of some, that changes fewest numbers."""
    differs = [factor > 1 for factor in factors.values()]
    changed = np.sum(differs, axis=0)
    counted = np.where(where, changed, np.inf)
    return int(np.argmin(counted))


def _number(hw: Machine, address: str) -> Real:
    role, _, key = address.partition(".")
    return hw[role][key]

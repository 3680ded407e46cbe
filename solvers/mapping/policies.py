"""Policies by which systems of the H2M2 paper pick what goes to HBM (sec. 3.3, 4.3).

Symbols: n units on HBM, N units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import (
    OF_REQUEST,
    HeadTables,
    Tabulate,
    head_tables,
    layer_tables,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.mapping.exact import exact
from nearkv.solvers.mapping.tables import HeadMapping, entries, flatten, mapping_of

MappingMethod = Callable[[HeadTables], HeadMapping]


def greedy(tables: HeadTables) -> HeadMapping:
    """Algorithm 1: attention, then qkv-linear, then fc, each at its fastest that still fits.

    Where nothing fits both memories, as many units as HBM holds.
    """
    flat = flatten(tables)
    hbm, lpddr = flat.hbm_headroom, flat.lpddr_headroom  # what is left of them
    units = np.arange(flat.seconds.shape[2])
    chosen = []
    for seconds, on_hbm, on_lpddr in zip(flat.seconds, flat.hbm, flat.lpddr, strict=True):
        fits_hbm = on_hbm <= hbm[:, None]
        fits_lpddr = on_lpddr <= lpddr[:, None]
        allowed = np.where(fits_hbm & fits_lpddr, seconds, np.inf)
        most = np.where(fits_hbm & np.isfinite(seconds), units, 0).max(1)
        n = np.where(np.isinf(allowed.min(1)), most, allowed.argmin(1))
        hbm = hbm - entries(on_hbm, n)
        lpddr = lpddr - entries(on_lpddr, n)
        chosen.append(n)
    return mapping_of(tables, flat, np.stack(chosen))


def major(first: int, tables: HeadTables) -> HeadMapping:
    """As many units of one sub-layer on HBM as fit, the others at their best (sec. 3.3).

    Args:
        first: which one; 0 attention, 1 qkv-linear, 2 fc.
        tables: of any design points.
    """
    on_hbm = tables.hbm[first]
    n = np.arange(on_hbm.shape[-1])
    holds = on_hbm <= tables.hbm_headroom[..., None]
    exists = n <= tables.units[..., None]
    # units that are stated are the only ones that take a finite time
    possible = holds & exists & np.isfinite(tables.seconds[first])
    most = np.where(possible, n, 0).max(-1)
    pinned = pin(tables, first, most)
    return exact(pinned)


def pin(tables: HeadTables, which: int, units: Any) -> HeadTables:
    """Tables that leave one sub-layer no choice.

    Args:
        tables: of any design points.
        which: 0 attention, 1 qkv-linear, 2 fc.
        units: what it must have on HBM [1].
    """
    seconds = list(tables.seconds)
    n = np.arange(seconds[which].shape[-1])
    chosen = n == np.asarray(units)[..., None]
    seconds[which] = np.where(chosen, seconds[which], np.inf)
    attention, qkv, fc = seconds
    return replace(tables, seconds=(attention, qkv, fc))


@dataclass(frozen=True)
class MappingPolicy:
    """Rule by which a mapping is chosen.

    Attributes:
        tables: make what it chooses from; of several the fastest choice is taken.
        choose: the choice.
    """

    tables: tuple[Tabulate, ...]
    choose: MappingMethod


MAPPING_POLICIES = {
    "mapping-greedy": MappingPolicy((head_tables,), greedy),
    "mapping-exact": MappingPolicy(OF_REQUEST, exact),
    "mapping-a-major": MappingPolicy((head_tables,), partial(major, 0)),
    "mapping-q-major": MappingPolicy((head_tables,), partial(major, 1)),
    "mapping-f-major": MappingPolicy((head_tables,), partial(major, 2)),
    "mapping-layers": MappingPolicy((layer_tables,), exact),
}
"""Policies by the solver name of a knob."""


def solve_mapping(
    policy: str, hw: Machine, llm: LLM, work: Workload, settings: Mapping[str, Real | str]
) -> dict[str, Real]:
    """Units of all three sub-layers by a policy; units that the user stated stay.

    Args:
        policy: a key of POLICIES.
        hw, llm, work: broadcast over design points; prompts in chunks.
        settings: knob -> number or `auto`, in the order attention, qkv, fc.
    """
    chosen = MAPPING_POLICIES[policy]
    stated = {name: units for name, units in settings.items() if not isinstance(units, str)}
    places = list(settings)

    def mapping(tabulate: Tabulate) -> HeadMapping:
        tables = tabulate(hw, llm, work)
        for name, units in stated.items():
            tables = pin(tables, places.index(name), units)
        return chosen.choose(tables)

    best = _fastest([mapping(tabulate) for tabulate in chosen.tables])
    return dict(zip(settings, best.units, strict=True)) | stated


def _fastest(mappings: Sequence[HeadMapping]) -> HeadMapping:
    """The fastest of some mappings at each design point, the first on a tie or if none fits."""
    best, *others = mappings
    for other in others:
        is_faster = other.ok & (other.seconds < best.seconds)
        attention, qkv, fc = [
            np.where(is_faster, *pair)[()]
            for pair in zip(other.units, best.units, strict=True)
        ]
        seconds = np.where(is_faster, other.seconds, best.seconds)
        best = HeadMapping((attention, qkv, fc), seconds, best.ok)
    return best

"""Head mappings by name: how each system of the H2M2 paper picks what goes to HBM (sec. 3.3, 4.3).

Symbols: n units on HBM, N units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.head_tables import HeadTables, head_tables, layer_tables
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.mapping import exact as mapping

Tabulate = Callable[[Machine, LLM, Workload], HeadTables]
Method = Callable[[HeadTables], mapping.Mapping]


def major(first: int, tables: HeadTables) -> mapping.Mapping:
    """As many units of one sub-layer on HBM as fit, the others at their best (sec. 3.3).

    Args:
        first: which one; 0 attention, 1 qkv-linear, 2 fc.
        tables: of any design points.
    """
    capacity_check = tables.hbm[first]
    n = np.arange(capacity_check.shape[-1])
    fits = (capacity_check <= tables.hbm_room[..., None]) & (n <= tables.units[..., None])
    return mapping.exact(pin(tables, first, np.where(fits, n, 0).max(-1)))


def pin(tables: HeadTables, which: int, units: Any) -> HeadTables:
    """Tables that leave one sub-layer no choice.

    Args:
        tables: of any design points.
        which: 0 attention, 1 qkv-linear, 2 fc.
        units: what it must have on HBM [1].
    """
    n = np.arange(tables.seconds[which].shape[-1])
    seconds = list(tables.seconds)
    seconds[which] = np.where(n == np.asarray(units)[..., None], seconds[which], np.inf)
    return replace(tables, seconds=(seconds[0], seconds[1], seconds[2]))


POLICIES: dict[str, tuple[Tabulate, Method]] = {
    "mapping-greedy": (head_tables, mapping.greedy),
    "mapping-exact": (head_tables, mapping.exact),
    "mapping-a-major": (head_tables, partial(major, 0)),
    "mapping-q-major": (head_tables, partial(major, 1)),
    "mapping-f-major": (head_tables, partial(major, 2)),
    "mapping-layers": (layer_tables, mapping.exact),
}
"""Solver name of a knob -> tables it chooses from, how it chooses."""


def solve_mapping(
    policy: str, hw: Machine, llm: LLM, work: Workload, requested: Mapping[str, Real | str]
) -> dict[str, Real]:
    """Units of all three sub-layers by a policy; those the user stated stay.

    Args:
        policy: a key of POLICIES.
        hw, llm, work: broadcast over design points.
        said: knob -> number or `auto`, in the order attention, qkv, fc.
    """
    tabulate, choose = POLICIES[policy]
    tables = tabulate(hw, llm, work)
    stated = {name: units for name, units in requested.items() if not isinstance(units, str)}
    for which, name in enumerate(requested):
        if name in stated:
            tables = pin(tables, which, stated[name])
    return {**dict(zip(requested, choose(tables).units, strict=True)), **stated}

"""Two checks of the optimal mapping: an integer program, and trying all mappings.

They check `nearkv.solvers.mapping.exact`, with which they share no code that searches.

Symbols: x_in = 1 where sub-layer i has n units on HBM, N units.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pulp

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, Three
from nearkv.hardware.errors import InputError
from nearkv.solvers.mapping.tables import (
    Array,
    FlatTables,
    HeadMapping,
    Units,
    evaluate,
    flatten,
    mapping_of,
)


def milp(tables: HeadTables) -> HeadMapping:
    """Minimise sum x_in T_i(n) with one n a sub-layer and both capacities, by HiGHS.

    Times and bytes are scaled to about one, since solver tolerances are absolute.

    Args:
        tables: of one design point.

    Returns:
        The optimum; where nothing fits both memories, that with the fewest bytes missing, not `ok`.

    Raises:
        InputError: more than one design point.
    """
    count = math.prod(tables.points)
    if count != 1:
        raise InputError(
            f"method milp: solves one point at a time, not {count:g}; use --method exact"
        )
    flat = flatten(tables)
    n = _solved(flat, fits=True)
    if n is None:
        n = _solved(flat, fits=False)
    if n is None:
        raise RuntimeError("HiGHS found no mapping although bytes may be missing")
    return mapping_of(tables, flat, n)


def _solved(flat: FlatTables, fits: bool) -> Units | None:
    """Units that are fastest within both memories, None if none; else those that lack least."""
    lp = pulp.LpProblem("head_mapping", pulp.LpMinimize)
    seconds = flat.seconds[:, 0]
    x = {}
    for i, n in np.argwhere(np.isfinite(seconds)).tolist():
        x[i, n] = lp.add_variable(f"x_{i}_{n}", cat="Binary")

    def total(table: Array, size: float) -> Any:
        entries = table[:, 0] / size
        return pulp.lpSum(float(entries[place]) * chosen for place, chosen in x.items())

    hbm, lpddr = float(flat.hbm_headroom[0]), float(flat.lpddr_headroom[0])
    slowest = np.max(seconds, axis=1, where=np.isfinite(seconds), initial=0.0)
    size = max(hbm, lpddr, 1.0)
    missing = 0.0 if fits else lp.add_variable("missing", lowBound=0.0)
    lp += total(flat.seconds, float(slowest.sum()) or 1.0) if fits else missing
    for sublayer in range(len(seconds)):
        lp += pulp.lpSum(chosen for (i, _), chosen in x.items() if i == sublayer) == 1
    on_hbm, on_lpddr = total(flat.hbm, size), total(flat.lpddr, size)
    lp += on_hbm <= hbm / size + missing
    lp += on_lpddr <= lpddr / size + missing
    lp += on_hbm + on_lpddr <= (hbm + lpddr) / size + missing
    lp.solve(pulp.HiGHS(msg=False, threads=1, gapRel=0.0, gapAbs=0.0))
    status = pulp.LpStatus[lp.status]
    if status == "Infeasible":
        return None
    if status != "Optimal":
        raise RuntimeError(f"HiGHS gave up: {status}")
    taken = np.zeros(seconds.shape)
    for place, chosen in x.items():
        taken[place] = chosen.value()
    units: Units = taken.argmax(axis=1)[:, np.newaxis]
    return units


def brute(tables: HeadTables) -> HeadMapping:
    """The fastest mapping that fits both memories, in O(N^3), for one design point.

    Where nothing fits both, the one with the fewest bytes missing: of HBM, of LPDDR or of both.

    Raises:
        ValueError: more than one design point.
    """
    if math.prod(tables.points) != 1:
        raise ValueError("brute force takes one design point")
    seconds = _cube(tables.seconds)
    # a capacity may still have an axis for every number that was set
    missing_hbm = _cube(tables.hbm) - np.reshape(tables.hbm_headroom, ())
    missing_lpddr = _cube(tables.lpddr) - np.reshape(tables.lpddr_headroom, ())
    missing = np.maximum(missing_hbm, missing_lpddr)
    missing = np.maximum(missing, missing_hbm + missing_lpddr)
    exists = np.isfinite(seconds)
    ok = exists & (missing <= 0)
    allowed = (
        np.where(ok, seconds, np.inf) if ok.any() else np.where(exists, missing, np.inf)
    )
    attention, qkv, fc = np.unravel_index(allowed.argmin(), allowed.shape)
    return evaluate(tables, attention, qkv, fc)


def _cube(three: Three) -> Numbers:
    """Sum of three tables for every mapping, attention along the first axis, then qkv, then fc."""
    attention, qkv, fc = (table.reshape(table.shape[-1]) for table in three)
    pairs = attention[:, None] + qkv
    return pairs[:, :, None] + fc

"""Two checks of the optimal mapping: an integer program, and trying all mappings.

They check `nearkv.solvers.mapping.exact`, with which they share no code that searches.

Symbols: x_in = 1 where sub-layer i has n units on HBM, N units.
"""

from __future__ import annotations

import math

import numpy as np
import pulp

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, Three
from nearkv.hardware.errors import InputError
from nearkv.solvers.mapping.tables import HeadMapping, evaluate


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
    fastest = _MappingProgram(tables).solve(fits=True)
    mapping = fastest or _MappingProgram(tables).solve(fits=False)
    if mapping is None:
        raise RuntimeError("HiGHS found no mapping although bytes may be missing")
    return mapping


def _flat(three: Three) -> list[Numbers]:
    return [np.ravel(table) for table in three]


class _MappingProgram:
    """The integer program over the tables of one design point."""

    def __init__(self, tables: HeadTables) -> None:
        self.tables = tables
        self.seconds = _flat(tables.seconds)
        self.lp = pulp.LpProblem("head_mapping", pulp.LpMinimize)
        self.x = [self._choices(i, table) for i, table in enumerate(self.seconds)]

    def _choices(self, i: int, table: Numbers) -> dict[int, pulp.LpVariable]:
        """One binary for every number of units that sub-layer i can have."""
        choices = {}
        for n in np.flatnonzero(np.isfinite(table)).tolist():
            choices[n] = self.lp.add_variable(f"x_{i}_{n}", cat="Binary")
        return choices

    def _total(self, tables: list[Numbers], size: float) -> pulp.LpAffineExpression:
        """Sum of three tables at the choice, in units of a size."""
        terms = []
        for table, row in zip(tables, self.x, strict=True):
            for n, chosen in row.items():
                weight = float(table[n]) / size
                terms.append(weight * chosen)
        return pulp.lpSum(terms)

    def solve(self, fits: bool) -> HeadMapping | None:
        """The fastest that both memories hold, None if nothing; else that which lacks least."""
        tables = self.tables
        hbm, lpddr = (
            float(np.ravel(headroom)[0])
            for headroom in (tables.hbm_headroom, tables.lpddr_headroom)
        )
        finite = [table[np.isfinite(table)] for table in self.seconds]
        scale = sum(float(table.max()) for table in finite)
        size = max(hbm, lpddr, 1.0)
        missing = 0.0 if fits else self.lp.add_variable("missing", lowBound=0.0)
        self.lp += self._total(self.seconds, scale or 1.0) if fits else missing
        for row in self.x:
            self.lp += pulp.lpSum(row.values()) == 1
        on_hbm = self._total(_flat(tables.hbm), size)
        on_lpddr = self._total(_flat(tables.lpddr), size)
        self.lp += on_hbm <= hbm / size + missing
        self.lp += on_lpddr <= lpddr / size + missing
        self.lp += on_hbm + on_lpddr <= (hbm + lpddr) / size + missing
        self.lp.solve(pulp.HiGHS(msg=False, threads=1, gapRel=0.0, gapAbs=0.0))
        status = pulp.LpStatus[self.lp.status]
        if status == "Infeasible":
            return None
        if status != "Optimal":
            raise RuntimeError(f"HiGHS gave up: {status}")
        return self._answer(fits)

    def _answer(self, ok: bool) -> HeadMapping:
        chosen = []
        for row in self.x:
            taken = {n: variable.value() for n, variable in row.items()}
            chosen.append(max(taken, key=taken.__getitem__))
        seconds = 0.0
        for table, n in zip(self.seconds, chosen, strict=True):
            seconds = seconds + float(table[n])
        attention, qkv, fc = map(float, chosen)
        return HeadMapping((attention, qkv, fc), seconds, ok)


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
    """Sum of three tables for every mapping, in the order of `Choice.total`."""
    attention, qkv, fc = (table.reshape(table.shape[-1]) for table in three)
    pairs = attention[:, None] + qkv
    cube: Numbers = pairs[:, :, None] + fc
    return cube

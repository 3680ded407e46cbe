"""The same mapping as an integer program: a check on `nearkv.solvers.mapping.exact` that shares none of its code.

Symbols: x_in = 1 where sub-layer i has n units on HBM, N units.
"""

from __future__ import annotations

import numpy as np
import pulp

from nearkv.costmodel.mechanisms.head_tables import HeadTables
from nearkv.hardware.errors import InputError
from nearkv.solvers.mapping.exact import Mapping


def milp(tables: HeadTables) -> Mapping:
    """Minimise sum x_in T_i(n) with one n a sub-layer and both capacities, by HiGHS.

    Times and bytes are scaled to about one, since solver tolerances are absolute.

    Args:
        tables: of one design point.

    Returns:
        The optimum; where nothing fits both memories, that under HBM's capacity alone, not `ok`.

    Raises:
        InputError: more than one design point.
    """
    if np.prod(tables.points) != 1:
        raise InputError(
            f"method milp: solves one point at a time, not {np.prod(tables.points):g}; use --method exact"
        )
    found = _solve(tables, both=True)
    return found if found is not None else _required(_solve(tables, both=False))


def _required(found: Mapping | None) -> Mapping:
    if found is None:
        raise RuntimeError("HiGHS found no mapping although the empty one fits")
    return found


def _solve(tables: HeadTables, both: bool) -> Mapping | None:
    seconds, hbm, lpddr = (
        [np.ravel(table) for table in three] for three in (tables.seconds, tables.hbm, tables.lpddr)
    )
    scale = sum(float(table[np.isfinite(table)].max()) for table in seconds) or 1.0
    problem = pulp.LpProblem("head_mapping", pulp.LpMinimize)
    x = [
        [
            problem.add_variable(f"x_{i}_{n}", cat="Binary")
            for n in range(len(table))
            if np.isfinite(table[n])
        ]
        for i, table in enumerate(seconds)
    ]

    def total(tables_: list[np.ndarray], size: float) -> pulp.LpAffineExpression:
        return pulp.lpSum(
            float(t[n]) / size * v
            for t, row in zip(tables_, x, strict=True)
            for n, v in enumerate(row)
        )

    problem += total(seconds, scale)
    for row in x:
        problem += pulp.lpSum(row) == 1
    for capacity_check, room in ((hbm, tables.hbm_room), (lpddr, tables.lpddr_room))[: 1 + both]:
        size = max(float(np.ravel(room)[0]), 1.0)
        problem += total(capacity_check, size) <= float(np.ravel(room)[0]) / size
    problem.solve(pulp.HiGHS(msg=False, threads=1, gapRel=0.0, gapAbs=0.0))
    if (status := pulp.LpStatus[problem.status]) == "Infeasible":
        return None
    if status != "Optimal":
        raise RuntimeError(f"HiGHS gave up: {status}")
    a, q, f = (int(np.argmax([v.value() for v in row])) for row in x)
    took = seconds[0][a] + seconds[1][q] + seconds[2][f]
    return Mapping(float(a), float(q), float(f), float(took), ok=both)

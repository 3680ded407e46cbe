"""A linear program written out row by row, for another solver than the product's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pulp

from nearkv.costmodel.algebra.span import Numbers
from nearkv.solvers.placement.linear import Optimum, Program


def reference(program: Program, solver: Any = None) -> Optimum | None:
    """Solve a program written out row by row in PuLP.

    Args:
        program: any.
        solver: a PuLP solver; by default HiGHS in process.

    Returns:
        The optimum, or None where no point satisfies the program.
    """
    problem = pulp.LpProblem("program", pulp.LpMinimize)
    bounds = enumerate(zip(program.low, program.high, strict=True))
    x = [problem.add_variable(f"x{column}", low, high) for column, (low, high) in bounds]
    problem += _form(x, program.cost)
    for entries, limit, equal in zip(program.matrix, program.limit, program.equal, strict=True):
        form = _form(x, entries)
        problem += form == limit if equal else form <= limit
    if problem.solve(solver or pulp.HiGHS(msg=False, threads=1)) != pulp.LpStatusOptimal:
        return None
    values = np.array([column.value() or 0.0 for column in x])
    prices = np.array(
        [row.pi or 0.0 for row in problem.constraints()]
    )  # in the order they were added
    return Optimum(float(program.cost @ values), program.bound(prices), values, prices)


def _form(x: Sequence[Any], entries: Numbers) -> Any:
    """A linear form in PuLP's variables, those with an entry."""
    pairs = zip(x, entries.tolist(), strict=True)
    return pulp.LpAffineExpression([(column, entry) for column, entry in pairs if entry])

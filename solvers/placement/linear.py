"""Linear programs, each answer with a proven bound: many small ones in process (HiGHS)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers
from nearkv.hardware.errors import InputError

_SIMPLEX_TOLERANCE = 1e-9
"""Tolerance of HiGHS, below its own 1e-7: bounds must meet values up to a relative 1e-9."""
_SMALLEST_ENTRY = 1e-12
"""HiGHS drops smaller entries; its own 1e-9 is coarse for rows that are scaled to about one."""


@dataclass(frozen=True)
class Program:
    """Minimise cost . x subject to matrix x <= limit (= where `equal`) and low <= x <= high.

    Attributes:
        cost: of each column.
        matrix: rows by columns.
        limit: of each row.
        equal: True for rows that must meet their limit.
        low, high: finite bounds of each column.
    """

    cost: Numbers
    matrix: Numbers
    limit: Numbers
    equal: Booleans
    low: Numbers
    high: Numbers

    def bound(self, prices: Numbers) -> float:
        """Lower bound of the optimum, proven by any prices of the rows (weak duality).

        Args:
            prices: what one unit more of each row's limit adds to the optimum.
        """
        prices = np.where(self.equal, prices, np.minimum(prices, 0.0))
        left = self.cost - prices @ self.matrix
        corner = np.where(left > 0, self.low, self.high)
        return float(prices @ self.limit + left @ corner)

    def with_row(self, entries: Numbers, limit: float) -> Program:
        """The program with one constraint more: entries . x <= limit."""
        return replace(
            self,
            matrix=np.vstack([self.matrix, entries]),
            limit=np.append(self.limit, limit),
            equal=np.append(self.equal, False),
        )


@dataclass(frozen=True)
class Optimum:
    """The best point of a program.

    Attributes:
        value: what it costs.
        bound: no feasible point costs less.
        x: value of each column.
        prices: what one unit more of each row's limit adds to `value`.
    """

    value: float
    bound: float
    x: Numbers
    prices: Numbers


class Simplex:
    """HiGHS in process.

    Attributes:
        solved: programs solved so far.
    """

    def __init__(self) -> None:
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, Any] = {
            "output_flag": False,
            "presolve": "off",
            "threads": 1,
            "primal_feasibility_tolerance": _SIMPLEX_TOLERANCE,
            "dual_feasibility_tolerance": _SIMPLEX_TOLERANCE,
            "small_matrix_value": _SMALLEST_ENTRY,
        }
        for option, value in options.items():
            self._highs.setOptionValue(option, value)
        self.solved = 0

    def __call__(self, program: Program) -> Optimum | None:
        """Solve a program; None where no point satisfies it.

        Raises:
            InputError: the solver says neither.
        """
        self._pass(program)
        self._highs.run()
        self.solved += 1
        statuses = highspy.HighsModelStatus
        decided = (statuses.kOptimal, statuses.kInfeasible)
        if self._highs.getModelStatus() not in decided:  # begin anew, and with a presolve
            self._highs.clearSolver()
            self._highs.setOptionValue("presolve", "on")
            self._highs.run()
            self._highs.setOptionValue("presolve", "off")
        status = self._highs.getModelStatus()
        if status == statuses.kInfeasible:
            return None
        if status != statuses.kOptimal:
            raise InputError(
                f"the placement's linear program was not solved ({status.name})"
            )
        solution = self._highs.getSolution()
        x, prices = np.array(solution.col_value), np.array(solution.row_dual)
        value, bound = float(program.cost @ x), program.bound(prices)
        return Optimum(value, bound, x, prices)

    def _pass(self, program: Program) -> None:
        rows, columns = program.matrix.shape
        index = np.tile(np.arange(columns, dtype=np.int32), rows)
        self._highs.passModel(
            columns,
            rows,
            len(index),
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),
            0.0,
            program.cost,
            program.low,
            program.high,
            np.where(program.equal, program.limit, -np.inf),
            program.limit,
            columns * np.arange(rows + 1, dtype=np.int32),
            index,
            program.matrix.ravel(),
            np.zeros(columns, np.int32),
        )

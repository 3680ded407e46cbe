"""Demands on a machine: columns to make best, limits, and budgets told apart by their units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, once
from nearkv.hardware.units import measure
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.jobs.search import Best, candidates_at
from nearkv.sweeps.study.grid import NO_NUMBERS, Block

PRICE_COLUMN = "cost_usd"
"""The column that a budget in USD limits."""
BUDGETS = {
    "USD": (PRICE_COLUMN, 1.0),
    "USD/s": ("usd_hour", 3600.0),
    "W": ("power_cap_w", 1.0),
}
"""Dimension of a budget -> the column that it limits, and what turns SI into its unit."""
_RACK_UNITS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*U\s*")
_EXAMPLES = "100kUSD, 30USD/h, 10kW or 8U"
TIES = ("cost_usd", "parts", "row", "total_s", "split")
"""Columns that decide between machines that tie: the lower cost, fewer parts, the alphabet, which
`row` follows, and between values of the knobs of one machine the seconds of its batch."""


@dataclass(frozen=True)
class Goal:
    """Demands on a machine.

    Attributes:
        objectives: columns to make best.
        highest: of each, whether more is better.
        limits: all must hold.
    """

    objectives: tuple[str, ...]
    highest: tuple[bool, ...]
    limits: tuple[Target, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are asked about."""
        return (*self.objectives, *(limit.quantity for limit in self.limits))

    @property
    def budget(self) -> Target | None:
        """The limit of the price."""
        return next((each for each in self.limits if each.quantity == PRICE_COLUMN), None)

    @property
    def best(self) -> Best:
        """The best machine of each system, or the front of all, or the nearest to all limits."""
        per = ("system",) if len(self.objectives) == 1 else ()
        return Best(self.objectives, self.highest, per, self.limits, TIES, nearest=True)

    def loss(
        self,
        block: Block,
        numbers: Mapping[str, Numbers],
        count: int,
        axes: Mapping[str, Numbers] = NO_NUMBERS,
    ) -> Numbers:
        """The objective of a machine with other numbers, to be made small; inf: a limit is missed.

        Args:
            block: the workload on the machine.
            numbers: number of the machine, `role.key` -> its values [SI].
            count: of values.
            axes: axis of the workload -> its values in place of the block's.
        """
        candidates = candidates_at(block, axes, numbers)
        best = replace(self.best, per=(), ties=())
        excess, cost = best.costs(candidates.evaluate(best.columns), candidates.shape)
        met = (excess == 0) & ~np.isnan(cost)
        return np.broadcast_to(np.where(met, cost, np.inf), (count,))


def budget_limits(texts: Sequence[str]) -> tuple[Target, ...]:
    """Limits of price, hourly price, power and rack space, told apart by their units.

    Several prices are several questions, from the lowest on.

    Raises:
        InputError: a text that is no amount with one of these units, or two of another unit.

    >>> [(limit.quantity, limit.value) for limit in budget_limits(["100kUSD", "8U"])]
    [('cost_usd', 100000.0), ('rack_units', 8.0)]
    """
    limits = sorted(map(_budget, texts), key=lambda limit: limit.value)
    once([each.quantity for each in limits if each.quantity != PRICE_COLUMN], "--budget")
    once([each.text for each in limits], "--budget")
    return tuple(limits)


def served_at_once(users: float) -> Target:
    """The limit that all users of a batch are served at once."""
    return Target("batch_run", "", True, users, "--users")


def _budget(text: str) -> Target:
    where = f"--budget {text!r}"
    if height := _RACK_UNITS.fullmatch(text):
        return Target("rack_units", "", False, float(height[1]), "--budget")
    try:
        value, dimension = measure(text, where, _EXAMPLES)
    except InputError:
        value, dimension = 0.0, ""
    if dimension not in BUDGETS or not value:
        raise InputError(f"{where} is no amount of a budget above zero; write {_EXAMPLES}")
    column, size = BUDGETS[dimension]
    return Target(column, "", False, value * size, "--budget")

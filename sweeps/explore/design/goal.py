"""Demands on a machine: columns to make best, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.jobs.search import Best, candidates_at
from nearkv.sweeps.study.grid import NO_NUMBERS, Block

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
        return next((each for each in self.limits if each.quantity == "cost_usd"), None)

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

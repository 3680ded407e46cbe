"""Machines at drawn numbers, one draw of one machine at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.bands import RATIO_ERROR, Band, draws_of
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.uncertainty.model_error import RATIO, drawn_error
from nearkv.sweeps.uncertainty.sampled import drawn_numbers


class DrawnMachine:
    """A machine, its uncertain numbers at every draw, and the error of its rate beside another's.

    Args:
        block: the workload on it.
        band: the draws.
    """

    def __init__(self, block: Block, band: Band) -> None:
        self.block = block
        self.numbers = drawn_numbers(block, band)
        estimate = block.resolved(block.grid.whole).estimate
        shape = (1,) * len(block.grid.axes)
        self.errors = drawn_error(block, band, estimate, shape, RATIO).ravel()

    def rate_and_cost(self, draw: int, changed: Mapping[str, float]) -> tuple[float, float]:
        """Tokens per second and USD at one draw, with other numbers besides; 0 where it is short.

        Args:
            draw: which.
            changed: number, `role.key` -> its value [SI].
        """
        one = {name: values[draw : draw + 1] for name, values in self.numbers.items()}
        one |= {name: np.array([value]) for name, value in changed.items()}
        block = self.block
        hw, llm, work, knobs = block.at(block.grid.mesh(block.grid.whole), one)
        estimate = resolve_knobs(block.system, hw, llm, work, knobs).estimate
        answer = Evaluated(estimate, hw, block.system.owns)
        rate, cost = (
            float(np.ravel(COLUMNS[name].compute(answer))[0])
            for name in ("throughput_tok_s", "cost_usd")
        )
        return rate if np.all(estimate.fits.ok) else 0.0, cost


def band_over(rivals: Sequence[Block], samples: int) -> Band:
    """The draws of all uncertain numbers of some machines."""
    drawn = [draws_of(block.platform).values() for block in rivals]
    return Band(90.0, samples, 0, tuple(sorted({RATIO_ERROR}.union(*drawn))))


def counted_shares(rivals: Sequence[Block], samples: int, budget: float) -> Numbers:
    """Share of the draws in which each machine is the best, its rate per dollar beyond the budget.

    Those in which none serves are left out.
    """
    band = band_over(rivals, samples)
    machines = [DrawnMachine(block, band) for block in rivals]
    wins = np.zeros(len(rivals))
    for draw in range(samples):
        rates = []
        for place, machine in enumerate(machines):
            rate, cost = machine.rate_and_cost(draw, {})
            rate /= max(cost / budget, 1.0)
            rates.append(rate * np.exp(-machine.errors[draw]) if place else rate)
        if max(rates) > 0:
            wins[int(np.argmax(rates))] += 1
    shares: Numbers = wins / wins.sum()
    return shares

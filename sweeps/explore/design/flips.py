"""Changes that reverse a ranking: the number at which the runner-up wins, and how often it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.platform import Part
from nearkv.hardware.schema import keys_of
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.study.bands import RATIO_ERROR, Band, draws_of
from nearkv.sweeps.study.grid import Block, shape_of
from nearkv.sweeps.uncertainty.model_error import RATIO, drawn_error, error_power
from nearkv.sweeps.uncertainty.sampled import drawn_numbers

ROUNDS, PARTS = 3, 64
"""Times that a range is divided, into how many parts: to 4e-6 of it."""
PRICE_REACH = 4.0
"""A price without a range is looked at down to this share of it, and up to as many times."""
FLIP_SAMPLES = 1024
"""Draws of a band."""


@dataclass(frozen=True)
class Uncertain:
    """A number of a part that may have another value.

    Attributes:
        role, part, key: where it is stated.
        low, high: between which it lies [SI].
    """

    role: str
    part: Part
    key: str
    low: float
    high: float

    @property
    def name(self) -> str:
        """The number, and the part that states it."""
        return f"{self.role}.{self.key} of {self.part.name}"

    @property
    def stated(self) -> float:
        """Its value as stated [SI]."""
        return self.part.si[self.key]

    def text(self, value: float) -> str:
        """The number at another value, in words."""
        key = keys_of(self.part.type, [self.key])[self.key]
        return f"{self.name} at {key.text(value)} ({key.text(self.stated)} now)"


def flips_of(
    goal: Goal, first: Block, second: Block | None = None
) -> list[tuple[str, bool]]:
    """Numbers that alone, within their ranges, let the second of two machines win.

    Without a second one: that let the first miss a limit.

    Both machines stay as they are. A part that both have is changed in both.

    Args:
        goal: what ranks them.
        first, second: the best machine, and the best of another system.

    Returns:
        The numbers at the value that turns the ranking, those that need the smallest change first,
        and whether the first machine then misses a limit.
    """
    machines = [first] if second is None else [second, first]
    by_name = {each.name: each for block in machines for each in _uncertain(block)}
    numbers = list(by_name.values())
    trials = [*numbers, *numbers]
    ends = np.array([each.low for each in numbers] + [each.high for each in numbers])
    turned = np.flatnonzero((_lead(goal, first, second, trials, ends) < 0) & (ends > 0))
    trials, after = [trials[row] for row in turned], ends[turned]
    stated, rows = np.array([each.stated for each in trials]), np.arange(len(turned))
    # the ranking stands at the values before, and is turned at those after
    before = stated
    for _ in range(ROUNDS if trials else 0):
        edges = np.linspace(before, after, PARTS + 1)
        lead = _lead(goal, first, second, trials * PARTS, edges[1:].reshape(-1))
        turning = np.argmax(lead.reshape(PARTS, -1) < 0, axis=0)
        before, after = edges[turning, rows], edges[turning + 1, rows]
    change = np.abs(np.log(after / stated))
    misses = np.isinf(_loss(goal, first, trials, after))
    return [
        (trials[row].text(float(after[row])), bool(misses[row]))
        for row in np.argsort(change)
    ]


def best_shares(goal: Goal, rivals: Sequence[Block], samples: int) -> Numbers:
    """Share of draws of all uncertain numbers, prices too, in which each machine is the best [1].

    Machines stay as they are: one that drawn prices put beyond the budget counts by what it does
    per dollar. Predictions beside that of the first machine have a ratio's model error.
    """
    band = band_of(rivals, samples)
    losses = np.array(
        [
            at_equal_cost(goal, block, drawn_numbers(block, band), samples)
            for block in rivals
        ]
    )
    for place, block in enumerate(rivals[1:], 1):
        losses[place] *= ratio_errors(goal, block, band)
    serves = np.isfinite(losses).any(axis=0)
    best = np.argmin(losses, axis=0)[serves]
    return np.bincount(best, minlength=len(rivals)) / max(len(best), 1)


def band_of(rivals: Sequence[Block], samples: int, level: float = 90.0) -> Band:
    """The draws that machines share, those of the model error of a ratio among them."""
    drawn = [draws_of(block.platform).values() for block in rivals]
    return Band(level, samples, 0, tuple(sorted({RATIO_ERROR}.union(*drawn))))


def ratio_errors(goal: Goal, block: Block, band: Band) -> Numbers:
    """Factor at every draw by which the objective errs beside that of another machine [1]."""
    box = block.grid.whole
    estimate = block.resolved(box).estimate
    error = drawn_error(block, band, estimate, shape_of(box), RATIO)
    factors: Numbers = np.exp(error_power(goal.objectives[0]) * error.ravel())
    return factors


def at_equal_cost(
    goal: Goal, block: Block, numbers: Mapping[str, Numbers], count: int
) -> Numbers:
    """The objective of a machine with other numbers; per dollar where it exceeds the budget.

    Args:
        goal, block, numbers, count: as `Goal.loss` takes them.
    """
    limits = tuple(limit for limit in goal.limits if limit != goal.budget)
    loss = replace(goal, limits=limits).loss(block, numbers, count)
    if goal.budget is None:
        return loss
    price = Goal((goal.budget.quantity,), (False,), ())
    cost = price.loss(block, numbers, count)
    dearer = np.maximum(cost / goal.budget.value, 1.0)
    per_dollar: Numbers = loss * dearer ** np.where(loss < 0, -1.0, 1.0)
    return per_dollar


def _uncertain(block: Block) -> Iterator[Uncertain]:
    """The numbers of a machine that have a range and are not chosen, and its prices."""
    chosen = set(block.sets.values())
    for role, part in block.platform.roles.items():
        for key, number in part.numbers.items():
            ends = number.range_si
            if key == "price":
                ends = ends or (number.si / PRICE_REACH, number.si * PRICE_REACH)
            is_chosen = key == "count" or f"{role}.{key}" in chosen
            if ends and number.si and not is_chosen:
                yield Uncertain(role, part, key, *ends)


def _loss(
    goal: Goal, block: Block, numbers: Sequence[Uncertain], values: Numbers
) -> Numbers:
    """The objective of a machine where each number is another, to be made small."""
    changed: dict[str, Numbers] = {}
    for row, number in enumerate(numbers):
        own = block.platform.roles.get(number.role)
        if own and own.name == number.part.name and number.key in own.si:
            address, stated = f"{number.role}.{number.key}", own.si[number.key]
            column = changed.setdefault(address, np.full(len(numbers), stated))
            column[row] = values[row]
    return goal.loss(block, changed, len(numbers))


def _lead(
    goal: Goal,
    first: Block,
    second: Block | None,
    numbers: Sequence[Uncertain],
    values: Numbers,
) -> Numbers:
    """The lead of the first machine where each number is another; below 0 where it is worse."""
    of_first = _loss(goal, first, numbers, values)
    if second is None:
        return np.where(np.isinf(of_first), -1.0, 1.0)
    of_second = _loss(goal, second, numbers, values)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(of_second - of_first, nan=0.0)

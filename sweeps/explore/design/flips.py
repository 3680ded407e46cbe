"""What would change a ranking: the number at which the runner-up wins, and how often it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.model.metrics import Answer
from nearkv.solvers.boxes import Integers, Numbers
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.explore.design.measures import Space
from nearkv.sweeps.study.bands import Band, draws_of
from nearkv.sweeps.study.study import NONE, Block
from nearkv.sweeps.uncertainty.sampled import drawn_numbers

ROUNDS, PARTS = 5, 16
"""Times that a range is divided, into how many parts: to 1e-6 of it."""
PRICE_REACH = 4.0
"""A price without a range is looked at down to this share of it, and up to as many times."""
SAMPLES = 1024
"""Draws of a band."""


@dataclass(frozen=True)
class Flip:
    """A number at which another machine is the best.

    Attributes:
        number: `role.key`, with the part that states it.
        stated, flips: its value, and the one at which the ranking turns [SI].
        text: both, as people read them.
    """

    number: str
    stated: float
    flips: float
    text: str

    @property
    def factor(self) -> float:
        """By which factor it must change, over 1."""
        ratio = self.flips / self.stated
        return max(ratio, 1 / ratio)


def flips_of(space: Space, first: Block, second: Block) -> list[Flip]:
    """Numbers that alone, within their ranges, let the second of two machines win.

    Both machines stay as they are. A part that both have is changed in both.

    Args:
        space: whose goal ranks them.
        first, second: the best machine, and the best of another system.

    Returns:
        The numbers that need the smallest change first.
    """
    ranges = {**_ranges(second), **_ranges(first)}
    numbers = sorted(ranges)
    ends = np.array([ranges[number] for number in numbers]).T  # low, stated, high
    which = np.tile(np.arange(len(numbers)), 2)
    far, stated = np.append(ends[0], ends[2]), ends[1][which]
    turned = (_wins(space, first, second, numbers, which, far) < 0) & (far > 0)
    rows, still, over = which[turned], stated[turned], far[turned]
    places, asked = np.arange(len(rows)), np.tile(rows, PARTS)
    for _ in range(ROUNDS if len(rows) else 0):
        edges = np.linspace(still, over, PARTS + 1)
        beyond = edges[1:].reshape(-1)
        wins = _wins(space, first, second, numbers, asked, beyond) < 0
        turning = np.argmax(wins.reshape(PARTS, -1), axis=0)
        still, over = edges[turning, places], edges[turning + 1, places]
    flips = [
        _flip(numbers[row], (first, second), float(ends[1][row]), float(value))
        for row, value in zip(rows, over, strict=True)
    ]
    return sorted(flips, key=lambda flip: flip.factor)


def winning_share(
    space: Space, first: Block, second: Block, samples: int = SAMPLES
) -> float:
    """Share of draws of all uncertain numbers in which the first machine is no worse [1]."""
    names = {*draws_of(first.platform).values(), *draws_of(second.platform).values()}
    band = Band(90.0, samples, 0, tuple(sorted(names)))
    worth = [
        _worth(space, block, drawn_numbers(block, band), samples)
        for block in (first, second)
    ]
    return float(np.mean(worth[0] <= worth[1]))


def _ranges(block: Block) -> dict[str, tuple[float, float, float]]:
    """Number, with its part -> low end, stated value and high end [SI]."""
    ranges = {}
    for role, part in block.platform.roles.items():
        for key, number in part.numbers.items():
            span = number.range_si
            if key == "price" and not span and number.si:
                span = number.si / PRICE_REACH, number.si * PRICE_REACH
            if span and key != "count" and number.si:
                ranges[f"{role}.{key} of {part.name}"] = (span[0], number.si, span[1])
    return ranges


def _wins(
    space: Space,
    first: Block,
    second: Block,
    numbers: Sequence[str],
    which: Integers,
    values: Numbers,
) -> Numbers:
    """By how much the first machine is better where a number has another value; below 0: worse."""
    worth = []
    for block in (first, second):
        changed: dict[str, Numbers] = {}
        for row, place in enumerate(which):
            address, _, part = numbers[place].partition(" of ")
            role, _, key = address.partition(".")
            stated = block.platform.roles.get(role)
            if stated is None or stated.name != part or key not in stated.numbers:
                continue
            column = changed.setdefault(address, np.full(len(which), stated.si[key]))
            column[row] = values[row]
        worth.append(_worth(space, block, changed, len(which)))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(worth[1] - worth[0], nan=0.0)


def _worth(
    space: Space, block: Block, numbers: Mapping[str, Numbers], count: int
) -> Numbers:
    """The objective of a machine with other numbers, to be made small; inf: a limit is missed."""
    mesh = {
        name: values.reshape(-1)
        for name, values in block.grid.mesh(block.grid.whole).items()
    }
    hw, llm, work, requested = block.at(mesh, numbers or NONE)
    estimate = resolve_knobs(block.system, hw, llm, work, requested).estimate
    return space.worth(Answer(estimate, hw, block.system.owns), count)[:, 0]


def _flip(number: str, blocks: Sequence[Block], stated: float, value: float) -> Flip:
    """A number that turns the ranking, with its values as people read them."""
    address, _, part = number.partition(" of ")
    role, _, _ = address.partition(".")
    platform = next(
        block.platform
        for block in blocks
        if role in block.platform.roles and block.platform.roles[role].name == part
    )
    key = platform.key(address)
    return Flip(number, stated, value, f"{key.text(value)} ({key.text(stated)} now)")

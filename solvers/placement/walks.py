"""Two searches for the best block of FlexGen's placement: a proven one over all blocks, and FlexGen's own.

Symbols: gbs GPU batch, nb number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import numpy as np

from nearkv.solvers.placement.blocks import BlockProblem, Box, one
from nearkv.solvers.placement.linear import Optimum, Simplex

GAP = 1e-9
"""Relative differences below this are ties."""
_LEAST_Y = 1e-300


@dataclass(frozen=True)
class Found:
    """The best block of a search.

    Attributes:
        block: it.
        value: what it takes [s/sequence].
        bound: no block of the search's space takes less [s/sequence].
    """

    block: Box
    value: float
    bound: float


def full(problem: BlockProblem, solve: Simplex, space: Box) -> Found | None:
    """The best of all blocks in a box, by branch and bound.

    Returns:
        It, with a bound that meets its value up to `GAP`; None where no block fits.
    """
    smallest = one(space.gbs_low, space.nb_low)
    first = solve(problem.program(smallest))
    if first is None:
        return None
    best, value = smallest, first.value
    order, open_ = count(), [(0.0, 0, space)]
    closed = np.inf
    next(order)
    while open_ and open_[0][0] < value * (1 - GAP):
        for part in _parts(heappop(open_)[2]):
            relaxed = solve(problem.program(part)) if part.sequences <= problem.most else None
            if relaxed is None:
                continue
            tried = part.block(part.sequences / max(relaxed.x[9], _LEAST_Y))
            exact = relaxed if tried == part else solve(problem.program(tried))
            if exact is not None and exact.value < value * (1 - GAP):
                best, value = tried, exact.value
            if part.single:
                closed = min(closed, relaxed.bound)
            else:
                heappush(open_, (relaxed.bound, next(order), part))
    left = open_[0][0] if open_ else np.inf
    return Found(best, value, min(value, closed, left))


def _parts(box: Box) -> tuple[Box, ...]:
    return (box,) if box.single else box.halves()


def paper(problem: BlockProblem, solve: Simplex, space: Box) -> Found | None:
    """The best of the blocks FlexGen's own search walks.

    For each GPU batch 1, 2, 3, 4, 8, 16, ... it bisects for the most batches that fit, then tries
    1, 2, 3, ... up to there, stops at the first drop and takes the last before it.

    Returns:
        It; its bound is its own LP's, nothing is proven of other blocks. None where no block fits.
    """
    found: Found | None = None
    for gbs in _coarse(space):
        ceiling = _most_batches(problem, solve, gbs, space)
        last: Found | None = None
        for nb in range(space.nb_low, ceiling + 1):
            optimum = solve(problem.program(one(gbs, nb)))
            if optimum is None or (last and optimum.value > last.value * (1 + GAP)):
                break
            last = Found(one(gbs, nb), optimum.value, optimum.bound)
        if last is None:
            break
        if found is None or last.value < found.value * (1 - GAP):
            found = last
    return found


def _coarse(space: Box) -> Iterator[int]:
    gbs = space.gbs_low
    while gbs <= space.gbs_high:
        yield gbs
        gbs += 1 if gbs < 4 else gbs


def _most_batches(problem: BlockProblem, solve: Simplex, gbs: int, space: Box) -> int:
    """Largest number of batches that fits: doubling, then bisection; all that fits below it fits too."""
    if space.nb_low == space.nb_high:
        return space.nb_high

    def fit(nb: int) -> Optimum | None:
        return solve(problem.program(one(gbs, nb)))

    above = 1
    while fit(above) is not None:
        above *= 2
    low, high = max(above // 2, 1), above
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fit(middle) is not None else (low, middle)
    return low - 1

"""Two searches for the best block of FlexGen's placement: a proven one of all blocks, its own walk.

Symbols: gbs GPU batch, nb number of batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np

from nearkv.solvers.placement.blocks import (
    OF_BLOCK,
    BlockBox,
    BlockProblem,
    Y,
    single_block,
)
from nearkv.solvers.placement.linear import Optimum, Simplex

SMALLEST_GAP = 1e-9
"""Relative differences below this are ties."""
WALK_STEPS = 256
"""Numbers of batches that the walk tries one by one, many times those of any published run."""
_LEAST_Y = 1e-300
"""Keeps a division by the smallest block's share finite where a relaxation wants none of it."""


@dataclass(frozen=True)
class BestBlock:
    """The best block of a search.

    Attributes:
        block: a box of this block alone.
        value: what it takes [s/sequence].
        bound: no block of the search's space takes less [s/sequence].
    """

    block: BlockBox
    value: float
    bound: float


# --- every block ------------------------------------------------------------------------------


class _Open(NamedTuple):
    """A box to be halved, the lowest bound first.

    Attributes:
        bound: no block in it takes less [s/sequence].
        order: of boxes with equal bounds.
        box: all its blocks.
        relaxed: what proves the bound.
    """

    bound: float
    order: int
    box: BlockBox
    relaxed: Optimum


def full(problem: BlockProblem, solve: Simplex, space: BlockBox) -> BestBlock | None:
    """The best of all blocks in a box, by branch and bound.

    Returns:
        The block, its bound meeting its value up to `SMALLEST_GAP`; None where no block fits.
    """
    block = single_block(space.gbs_low, space.nb_low)
    smallest = solve(problem.program(block))
    if smallest is None:
        return None
    best = BestBlock(block, smallest.value, smallest.bound)
    order = count()
    boxes = [_Open(0.0, next(order), space, smallest)]
    closed = np.inf
    while boxes and boxes[0].bound < best.value * (1 - SMALLEST_GAP):
        parent = heappop(boxes)
        parts = _relaxed_parts(problem, solve, parent)
        # a bound that halving does not raise may be that of a block, which then ends the search
        ceiling = parent.bound * (1 + SMALLEST_GAP)
        level = all(relaxed.bound <= ceiling for _, relaxed in parts)
        for part, relaxed in parts:
            if part.single or level:
                best = _better_of_box(problem, solve, part, relaxed, best)
            if part.single:
                closed = min(closed, relaxed.bound)
            else:
                heappush(boxes, _Open(relaxed.bound, next(order), part, relaxed))
    bound_of_open = boxes[0].bound if boxes else np.inf
    return BestBlock(best.block, best.value, min(best.value, closed, bound_of_open))


def _relaxed_parts(
    problem: BlockProblem, solve: Simplex, parent: _Open
) -> list[tuple[BlockBox, Optimum]]:
    """The parts of a box in which blocks fit, each with a bound of all its blocks."""
    box, fitting = parent.box, []
    sequences = _sequences(box, parent.relaxed)
    for part in (box,) if box.single else box.halves(sequences):
        if part.sequences > problem.most:
            continue
        relaxed = _inherited(parent, part)
        relaxed = relaxed or solve(problem.program(part), parent.relaxed.basis)
        if relaxed is not None:
            fitting.append((part, relaxed))
    return fitting


def _inherited(parent: _Open, part: BlockBox) -> Optimum | None:
    """The optimum of a box, as that of a part whose program differs in the scale of y alone.

    That is a part with the box's GPU batches and its largest number of batches; None for any
    other, and where the optimum lies outside the part.
    """
    box, x = parent.box, parent.relaxed.x.copy()
    if part != box._replace(nb_low=part.nb_low):
        return None
    x[OF_BLOCK] *= part.nb_low / box.nb_low
    return replace(parent.relaxed, x=x) if x[Y] <= 1 else None


def _sequences(box: BlockBox, relaxed: Optimum) -> float:
    """Sequences that the relaxation of a box points to [1]."""
    share = max(relaxed.x[Y], _LEAST_Y)
    return float(box.sequences / share)


def _better_of_box(
    problem: BlockProblem, solve: Simplex, box: BlockBox, relaxed: Optimum, best: BestBlock
) -> BestBlock:
    """The block that the relaxation of a box points to, where it beats the best so far."""
    if relaxed.bound >= best.value * (1 - SMALLEST_GAP):
        return best
    block = box.block(_sequences(box, relaxed))
    exact = relaxed if block == box else solve(problem.program(block))
    if exact is None or exact.value >= best.value * (1 - SMALLEST_GAP):
        return best
    return BestBlock(block, exact.value, exact.bound)


# --- FlexGen's walk ---------------------------------------------------------------------------


def paper(problem: BlockProblem, solve: Simplex, space: BlockBox) -> BestBlock | None:
    """The best of the blocks FlexGen's own search walks.

    For each GPU batch 1, 2, 3, 4, 8, 16, ... it bisects for the most batches that fit, then tries
    1, 2, 3, ... up to there (from `WALK_STEPS` on by bisection), stops at the first drop and takes
    the last before it.

    Returns:
        The block; its bound is its own LP's, nothing is proven of others. None where no block fits.
    """
    best: BestBlock | None = None
    for gbs in _gpu_batches(space):
        ceiling = _most_batches(problem, solve, gbs, space)
        last = _before_first_drop(problem, solve, gbs, range(space.nb_low, ceiling + 1))
        if last is None:
            break
        if best is None or last.value < best.value * (1 - SMALLEST_GAP):
            best = last
    return best


def _gpu_batches(space: BlockBox) -> Iterator[int]:
    """GPU batches that FlexGen's search tries."""
    gbs = space.gbs_low
    while gbs <= space.gbs_high:
        yield gbs
        gbs += 1 if gbs < 4 else gbs


def _most_batches(problem: BlockProblem, solve: Simplex, gbs: int, space: BlockBox) -> int:
    """Largest number of batches that fits: doubling, then bisection; all below it fit too."""
    if space.nb_low == space.nb_high:
        return space.nb_high

    def is_too_many(nb: int) -> bool:
        return solve(problem.program(single_block(gbs, nb))) is None

    above = 1
    while not is_too_many(above):
        above *= 2
    return bisect_left(range(above), True, lo=max(above // 2, 1), key=is_too_many) - 1


def _before_first_drop(
    problem: BlockProblem, solve: Simplex, gbs: int, batches: range
) -> BestBlock | None:
    """The block with the last number of batches before throughput drops; None where none fits.

    Beyond `WALK_STEPS` numbers, bisection takes the place of FlexGen's steps of one: the weights'
    seconds per sequence fall ever more slowly and what binds instead rises, so one drop parts the
    numbers that gain from those that lose.
    """
    last: BestBlock | None = None
    for nb in batches[:WALK_STEPS]:
        block = _block(problem, solve, gbs, nb)
        if block is None or _drops(last, block):
            return last
        last = block
    low, high = batches.start + WALK_STEPS - 1, batches.stop - 1
    while low < high:
        middle = (low + high) // 2
        before, after = (_block(problem, solve, gbs, nb) for nb in (middle, middle + 1))
        if after is None or _drops(before, after):
            high = middle
        else:
            low, last = middle + 1, after
    return last


def _block(problem: BlockProblem, solve: Simplex, gbs: int, nb: int) -> BestBlock | None:
    """A block at its best shares; None where it does not fit."""
    block = single_block(gbs, nb)
    optimum = solve(problem.program(block))
    if optimum is None:
        return None
    return BestBlock(block, optimum.value, optimum.bound)


def _drops(last: BestBlock | None, block: BestBlock) -> bool:
    """True if a block takes longer than the one before, by more than a tie."""
    return last is not None and block.value > last.value * (1 + SMALLEST_GAP)

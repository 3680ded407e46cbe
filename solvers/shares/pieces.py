"""Exact minimum over a share whose amounts jump or bend: every affine piece is minimised alone.

Where a system moves its KV cache to another memory once it fits beside the weights, its amounts are
affine in the weights' share on either side of that share only. The knob names such shares
(`Knob.breaks`); between two of them the span is minimised as in `nearkv.solvers.shares.balance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.solvers.shares.balance import Choice, Mask, minimise
from nearkv.solvers.shares.room import feasible_share

Evaluate = Callable[[Real], Estimate]
"""A share -> the system's answer there."""

_INSIDE = 1e-9
"""How far inside a piece its ends are evaluated: at a break, rounding decides the side [1]."""


@dataclass(frozen=True)
class _Candidate:
    """The best share of one piece.

    Attributes:
        choice: share, seconds and bound in the piece; both infinite where it has no width.
        ok: where it fits all memories.
        short: bytes missing in the memory that is shortest; infinite where it has no width [B].
    """

    choice: Choice
    ok: Mask
    short: Real


def minimise_pieces(
    evaluate: Evaluate, low: Real, high: Real, breaks: Sequence[Real]
) -> Choice:
    """Find the share with the fewest seconds among those that fit, for every design point at once.

    Args:
        evaluate: the system's answer at a share; amounts affine between two neighbouring breaks.
        low, high: the interval to choose from [1].
        breaks: shares where amounts may jump or bend [1]; outside the interval they mean nothing.

    Returns:
        The choice; where no share fits, that which misses the fewest bytes.
    """
    edges = np.broadcast_arrays(-np.inf, *breaks, np.inf)
    ordered = np.sort(np.stack(edges), axis=0)
    candidates = []
    for before, after in pairwise(ordered):
        start = np.maximum(before + _INSIDE, low)
        end = np.minimum(after - _INSIDE, high)
        exists = np.less_equal(start, end)
        start = np.clip(start, low, high)
        candidate = _candidate(evaluate, start, np.maximum(end, start), exists)
        candidates.append(candidate)
    best = reduce(_better, candidates)
    return best.choice


def _candidate(evaluate: Evaluate, start: Real, end: Real, exists: Mask) -> _Candidate:
    """Minimise one piece; shares are measured along it, from 0 to 1."""
    at_start = evaluate(start)
    at_end = evaluate(end)
    first, last = feasible_share(at_start.fits, at_end.fits)
    along = minimise(at_start.step, at_end.step, first, last)
    width = end - start
    value = start + along.value * width
    choice = Choice(
        value=value,
        seconds=np.where(exists, along.seconds, np.inf),
        bound=np.where(exists, along.bound, np.inf),
        low=start + first * width,
        high=start + last * width,
        start=start,
        end=end,
    )
    fits = evaluate(value).fits
    short = np.where(exists, fits.short_bytes, np.inf)
    return _Candidate(choice, exists & fits.ok, short)


def _better(best: _Candidate, other: _Candidate) -> _Candidate:
    """The better of two pieces, design point by design point."""
    alike = best.ok == other.ok
    faster = np.less(other.choice.seconds, best.choice.seconds)
    level = np.equal(other.short, best.short)
    preferred = np.where(level, faster, np.less(other.short, best.short))
    taken = np.where(alike, preferred, other.ok)
    lowest = np.minimum(best.choice.bound, other.choice.bound)
    values = {}
    for name, value in vars(best.choice).items():
        replacement = getattr(other.choice, name)
        values[name] = np.where(taken, replacement, value)[()]
    values["bound"] = np.where(alike, lowest, values["bound"])[()]
    short = np.where(taken, other.short, best.short)
    return _Candidate(Choice(**values), best.ok | other.ok, short)

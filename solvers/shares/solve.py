"""The best value of a knob in whose share a system's amounts are affine, or affine by pieces.

Where a system moves its KV cache to another memory once it fits beside the weights, its amounts are
affine in the weights' share on either side of that share only. The knob names such values
(`Knob.breaks`); between two of them the span is minimised exactly, and the best piece is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.blend import blend
from nearkv.costmodel.algebra.span import Booleans, Numbers, Real, Span, choose, is_same
from nearkv.costmodel.model.estimate import Estimate, Fits
from nearkv.solvers.objective import TOTAL, Timed
from nearkv.solvers.shares.minimum import Minimum, minimise

# --- shares at which every memory holds what it must; where there are none, the least short ------
#
# Symbols: x share.

_RISEN = 1e-13
"""Share of a need that it may rise by from rounding alone [1]."""
_FULL = 1e-12
"""Share of a need by which it may exceed a capacity from rounding alone [1]."""


@dataclass(frozen=True)
class _Need:
    """Bytes that a memory must hold, by share, beside those it can hold.

    Attributes:
        start: needed at share 0 [B].
        rise: of the need beyond the capacity, from share 0 to share 1 [B].
        capacity: bytes available at share 0 [B].
    """

    start: Real
    rise: Real
    capacity: Real

    @property
    def excess(self) -> Real:
        """Bytes needed beyond the capacity at share 0 [B]."""
        return np.subtract(self.start, self.capacity)

    def short(self, x: Real) -> Real:
        """Bytes missing at a share, more than rounding makes [B]."""
        risen = self.start + np.multiply(x, self.rise)
        excess = np.subtract(risen, self.capacity)
        rounding = _FULL * (np.abs(self.start) + np.abs(self.rise))
        return np.where(excess > rounding, excess, 0.0)

    def interval(self, spare: Real) -> tuple[Numbers, Numbers]:
        """Lowest and highest share whose need exceeds the capacity by no more than a spare [1].

        A need that rises no faster than the capacity, and no slower, bounds nothing.
        """
        headroom = np.subtract(spare, self.excess)
        # a need that hardly rises reaches the capacity at no share: its edge is infinite
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            edge = np.divide(headroom, self.rise)
        falls, rises = self.rise < 0, self.rise > 0
        low = np.where(falls, edge, -np.inf)
        high = np.where(rises, edge, np.inf)
        return low, high


def feasible_share(start: Fits, end: Fits) -> tuple[Numbers, Numbers, Numbers]:
    """The shares from 0 to 1 at which every memory holds what it must.

    Args:
        start, end: needs and capacities at share 0 and at share 1; affine in between.

    Returns:
        Lowest and highest share [1], and the bytes missing there [B]; where none fits, those at
        which the memory that is shortest misses the fewest. A memory that misses or spares the same
        bytes at every share bounds nothing.
    """
    needs = []
    for name, (need, capacity) in start.tiers.items():
        need_at_end, capacity_at_end = end.tiers[name]
        rise = np.subtract(need_at_end, need) - _growth(capacity, capacity_at_end)
        # a memory that is full at every share would be short by rounding at some of them
        is_rise = np.abs(rise) > _RISEN * np.abs(need)
        needs.append(_Need(need, np.where(is_rise, rise, 0.0), capacity))
    low, high = _interval(needs, 0.0)
    empty = low > high
    if not np.any(empty):
        return low, high, _shortest(needs, low)
    x, missing = _least_short(needs)
    first, last = _interval(needs, missing)
    low = np.where(empty, np.minimum(first, x), low)
    high = np.where(empty, np.maximum(last, x), high)
    return low, high, np.where(empty, missing, _shortest(needs, low))


def _growth(start: Real, end: Real) -> Numbers:
    """Bytes that a capacity grows by; none where it stays the same, even without a limit [B]."""
    with np.errstate(invalid="ignore"):
        growth = np.subtract(end, start)
    return np.where(start == end, 0.0, growth)


def _interval(needs: Sequence[_Need], spare: Real) -> tuple[Numbers, Numbers]:
    """Lowest and highest share from 0 to 1 that every need allows [1]."""
    low, high = np.asarray(0.0), np.asarray(1.0)
    for need in needs:
        first, last = need.interval(spare)
        low = np.maximum(low, first)
        high = np.minimum(high, last)
    return low, high


def _least_short(needs: Sequence[_Need]) -> tuple[Numbers, Numbers]:
    """The share at which the shortest memory misses the fewest bytes, and how many [1, B].

    The most that any memory misses is convex and piecewise linear in the share: it is least at an
    end, or where the shortages of two memories cross.
    """
    best: Numbers = np.asarray(0.0)
    missing = _shortest(needs, best)
    for candidate in (np.asarray(1.0), *_crossings(needs)):
        x = np.clip(candidate, 0.0, 1.0)
        short = _shortest(needs, x)
        better = short < missing
        best = np.where(better, x, best)
        missing = np.where(better, short, missing)
    return best, missing


def _crossings(needs: Sequence[_Need]) -> Iterator[Numbers]:
    """Numbers where two memories miss equally many bytes, or one just fits."""
    for one, other in combinations(needs, 2):
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            apart = np.subtract(other.excess, one.excess)
            closing = np.subtract(one.rise, other.rise)
            crossing = np.divide(apart, closing)
        yield np.nan_to_num(crossing)


def _shortest(needs: Sequence[_Need], x: Real) -> Numbers:
    """Bytes missing in the memory that is shortest [B]."""
    missing = (need.short(x) for need in needs)
    return reduce(np.maximum, missing, np.zeros(()))


# --- the fastest of them -------------------------------------------------------------------------

EstimateOfShare = Callable[[Real], Estimate]
"""A value -> the system's answer there."""

_INSIDE = 1e-9
"""Distance of evaluated ends from those of a piece: at a break, rounding decides the side."""
_PROBE = 0.382
"""The share of the range at which amounts are checked to be affine [1]."""
_OFF_LINE = 1e-9
"""Distance of an affine amount from its line that is rounding, as a share of it [1]."""
MOST_PROBED = 4096
"""Design points up to which they are; for more, tests of the system must do."""


class NotAffineError(ValueError):
    """A system's amounts are not affine in a knob."""


@dataclass(frozen=True)
class Solved:
    """A solved knob.

    Attributes:
        choice: its value and bound.
        bound_by: resources that meet at the value, where they are asked for.
    """

    choice: Minimum
    bound_by: NDArray[np.str_] | None = None


def solve(
    evaluate: EstimateOfShare,
    low: Real,
    high: Real,
    breaks: Sequence[Real] = (),
    explained: bool = False,
    most_probed: float = MOST_PROBED,
    timed: Timed = TOTAL,
) -> Solved:
    """Find the value with the fewest seconds among those that fit, for every design point at once.

    Args:
        evaluate: the system's answer at a value; amounts affine between two neighbouring breaks.
        low, high: the interval to choose from.
        breaks: values where amounts may jump or bend; outside the interval they mean nothing.
        explained: whether to say what binds.
        most_probed: design points up to which amounts without breaks are checked to be affine.
        timed: the span of an answer whose seconds count.

    Returns:
        The choice; where no value fits, that which misses the fewest bytes.

    Raises:
        NotAffineError: amounts are not affine, as far as that is checked.
    """
    edges = [-np.inf, *_inside(breaks, low, high), np.inf]
    pieces = [_piece(evaluate, timed, low, high, *ends) for ends in pairwise(edges)]
    if len(pieces) == 1:
        (piece,) = pieces
        if np.size(piece.choice.seconds) <= most_probed:
            _check_affine(piece, evaluate(low + _PROBE * (high - low)), timed)
        first, last = piece.at_start, piece.at_end
    else:
        piece = reduce(_better, pieces)
        first, last = piece.at_start, piece.at_end
        if explained:
            # the pieces that are best at different design points were evaluated apart
            first, last = evaluate(piece.choice.start), evaluate(piece.choice.end)
    if not explained:
        return Solved(piece.choice)
    bound_by = binding(timed(first), timed(last), piece.choice, low, high)
    return Solved(piece.choice, bound_by)


def _inside(breaks: Sequence[Real], low: Real, high: Real) -> list[Real]:
    """Breaks between the ends in rising order, as many as one design point has; then infinity."""
    inside = [np.where((edge > low) & (edge < high), edge, np.inf) for edge in breaks]
    rising = np.sort(np.stack(np.broadcast_arrays(np.inf, *inside)), axis=0)
    return [edge for edge in rising if np.any(np.isfinite(edge))]


@dataclass(frozen=True)
class _Piece:
    """The best value between two breaks.

    Attributes:
        choice: value, seconds and bound; the last two infinite where the piece has no width.
        at_start, at_end: the system's answers at the ends of the piece.
        short: bytes missing in the memory that is shortest; infinite where there is no width [B].
    """

    choice: Minimum
    at_start: Estimate
    at_end: Estimate
    short: Real

    @property
    def ok(self) -> Booleans:
        """True where every memory holds what it must."""
        return np.equal(self.short, 0)


def _piece(
    evaluate: EstimateOfShare,
    timed: Timed,
    low: Real,
    high: Real,
    before: Real,
    after: Real,
) -> _Piece:
    """Minimise between two breaks; the share is measured along the piece, from 0 to 1."""
    start = np.maximum(before + _INSIDE, low)
    end = np.minimum(after - _INSIDE, high)
    exists = start <= end
    start = np.clip(start, low, high)
    end = np.maximum(end, start)
    at_start, at_end = evaluate(start), evaluate(end)
    first, last, short = feasible_share(at_start.fits, at_end.fits)
    try:
        along = minimise(timed(at_start), timed(at_end), first, last)
    except ValueError as problem:  # the trees differ in more than their amounts
        raise NotAffineError(f" ({problem})") from problem
    width = end - start
    choice = Minimum(
        value=start + along.value * width,
        seconds=choose(exists, along.seconds, np.inf),
        bound=choose(exists, along.bound, np.inf),
        low=start + first * width,
        high=start + last * width,
        start=start,
        end=end,
    )
    return _Piece(choice, at_start, at_end, np.where(exists, short, np.inf))


def _better(best: _Piece, other: _Piece) -> _Piece:
    """The better of two pieces, design point by design point."""
    alike = best.ok == other.ok
    faster = other.choice.seconds < best.choice.seconds
    level = other.short == best.short
    preferred = np.where(level, faster, other.short < best.short)
    taken = np.where(alike, preferred, other.ok)
    lowest = np.minimum(best.choice.bound, other.choice.bound)
    values = {}
    for name, value in vars(best.choice).items():
        replacement = getattr(other.choice, name)
        values[name] = choose(taken, replacement, value)
    values["bound"] = choose(alike, lowest, values["bound"])
    return replace(
        best,
        choice=Minimum(**values),
        short=np.where(taken, other.short, best.short),
    )


def _check_affine(piece: _Piece, between: Estimate, timed: Timed) -> None:
    """Compare every amount, every need of memory and every capacity with a line through both ends.

    Raises:
        NotAffineError: one is not on it.
    """
    evaluations = (piece.at_start, piece.at_end, between)
    amounts = [_amounts(estimate, timed) for estimate in evaluations]
    for start, end, actual in zip(*amounts, strict=True):
        on_line = (1 - _PROBE) * start + _PROBE * end
        size = np.maximum(np.abs(start), np.abs(end))
        # a capacity without a limit is on its line, though infinity less infinity is no number
        with np.errstate(invalid="ignore"):
            off = np.abs(actual - on_line)
        if np.any(off > _OFF_LINE * size):
            raise NotAffineError


def _amounts(estimate: Estimate, timed: Timed) -> Iterator[Real]:
    """Amounts of the span's leaves, then bytes needed of each memory and bytes available there."""
    for _, leaf, times in timed(estimate).leaves():
        yield times * leaf.amount
    for tier in estimate.fits.tiers.values():
        yield from tier


# --- what binds at the share ---------------------------------------------------------------------


_ASIDE = 1e-6
"""Distance from the choice to look at, as a share of the range [1]."""

ResourceNames = NDArray[np.str_]


def binding(
    start: Span, end: Span, choice: Minimum, low: Real = 0.0, high: Real = 1.0
) -> ResourceNames:
    """Resources that meet at the choice: the one that binds below it and the one that binds above.

    Args:
        start, end: the span at the choice's `start` and `end`.
        choice: a solved value.
        low, high: the range of the knob.

    Returns:
        `a = b` where two balance, one name at an end of the range, with `memory` where capacity
        ends it.
    """
    aside = _ASIDE * (high - low)
    below = _slowest(start, end, choice, -aside)
    above = _slowest(start, end, choice, aside)
    equals = np.char.add(below, " = ")
    balance = np.char.add(equals, above)
    names = np.where(below == above, above, balance)
    at_low = choice.value <= choice.low
    at_high = choice.value >= choice.high
    names = np.where(at_high, below, names)
    names = np.where(at_low, above, names)
    # an end of the interval that is none of the range is where a memory is full
    limited = np.char.add("memory, ", names)
    cut_above = at_high & (choice.high < high)
    cut_below = at_low & (choice.low > low)
    return np.where(cut_above | cut_below, limited, names)


def _slowest(start: Span, end: Span, choice: Minimum, aside: Real) -> ResourceNames:
    """The resource whose moving leaves take most of the time a step aside from the choice."""
    share = choice.value + aside
    share = np.clip(share, choice.low, choice.high)
    width = np.subtract(choice.end, choice.start)
    along = (share - choice.start) / np.where(width > 0, width, 1.0)
    near = blend(start, end, along)
    moving = _moving(start, end)
    resources = sorted(start.resources)
    seconds: dict[str, Real] = dict.fromkeys(resources, np.zeros(()))
    for path, leaf, attributed in near.attributed_leaves():
        works = np.any(leaf.amount)
        if path in moving and works:
            name = leaf.resource
            seconds[name] = seconds[name] + attributed
    columns = np.broadcast_arrays(*seconds.values())
    worst = np.argmax(np.stack(columns), axis=0)
    names = np.array(list(seconds))
    slowest: ResourceNames = names[worst]
    return slowest


def _moving(start: Span, end: Span) -> set[str]:
    """Paths of the leaves whose amount changes with the share."""
    moving = set()
    pairs = zip(start.leaves(), end.leaves(), strict=True)
    for at_start, at_end in pairs:
        path, before, _ = at_start
        _, after, _ = at_end
        if not is_same(before.amount, after.amount):
            moving.add(path)
    return moving

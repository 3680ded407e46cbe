"""Hits of an LRU cache over its capacity, read off the footprint curve of a trace.

Time counts accesses to blocks, and a capacity counts blocks. A trace of megabytes becomes a table
of a few kilobytes, from which the hit ratio at every capacity is read (HOTL: Xiang et al., ASPLOS
2013). Popularity alone (Che's approximation) errs on conversations, whose blocks are asked again
soon or never.

Symbols: n accesses, m distinct blocks, w a window of accesses, fp(w) its mean footprint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Integers, Numbers

WINDOWS = 256
"""Windows at which a curve is stored, in equal ratios: the hits between them are interpolated."""
BAND = 1.5
"""Half a band over the drift: what comes may differ from the second half by as much again as that
does from the first, so from their mean by one and a half times."""
STATIONARY = 0.1
"""Largest drift of the hits of a trace that is called stationary [1]."""


def previous_access(blocks: Integers) -> Integers:
    """Place of the access before to each block's; -1 at its first: (accesses,)."""
    order = np.argsort(blocks, kind="stable")
    is_again = blocks[order[1:]] == blocks[order[:-1]]
    previous = np.full(len(blocks), -1, np.int64)
    previous[order[1:][is_again]] = order[:-1][is_again]
    return previous


@dataclass(frozen=True)
class ReuseCurve:
    """What a trace says of every LRU cache, in a few hundred numbers.

    Attributes:
        windows: accesses, rising: (windows,).
        footprint: mean distinct blocks in a window: (windows,).
        hits: share of all accesses whose block was accessed at most that long before: (windows,).
        drift: `hits` of the second half of the accesses less those of the first: (windows,).
        accesses: of the trace [1].
        distinct: blocks of the trace [1].
    """

    windows: Numbers
    footprint: Numbers
    hits: Numbers
    drift: Numbers
    accesses: float
    distinct: float

    def hit_ratio(self, capacity: Numbers) -> Numbers:
        """Share of the accesses that an LRU cache of a capacity [blocks] hits [1].

        The window whose footprint fills the cache is how long a block stays in it. No block lies
        in less than one.
        """
        ratio = np.interp(capacity, self.footprint, self.hits)
        return np.where(np.less(capacity, 1), 0.0, ratio)

    def half_band(self, capacity: Numbers) -> Numbers:
        """How far hits of what comes may be from `hit_ratio` if reuse drifts on as it did [1]."""
        drift: Numbers = np.interp(capacity, self.footprint, np.abs(self.drift))
        return BAND * drift

    @property
    def is_stationary(self) -> bool:
        """Whether the second half of the trace hits about as much as the first."""
        return bool(np.max(np.abs(self.drift)) <= STATIONARY)

    @property
    def ceiling(self) -> float:
        """Share of the accesses to a block that was accessed before: no cache hits more [1]."""
        return 1 - self.distinct / self.accesses


def reuse_curve(blocks: Integers) -> ReuseCurve:
    """Footprint and reuse times of a trace at windows of equal ratios.

    fp(w) = m - (sum max(f - w, 0) + sum max(l - w, 0) + sum_t max(t - w, 0) r(t)) / (n - w + 1)
    with f the first and l the last access of each block, counted from either end, and r(t) the
    number of accesses t after the one before (Xiang et al. 2011, eq. 5). At w = n it is m.

    Args:
        blocks: accessed blocks in order: (accesses,).
    """
    n = len(blocks)
    previous = previous_access(blocks)
    gaps = np.where(previous >= 0, np.arange(n) - previous, np.inf)
    _, first = np.unique(blocks, return_index=True)
    _, last = np.unique(blocks[::-1], return_index=True)
    m = len(first)
    windows = np.unique(np.round(np.geomspace(1, n, WINDOWS)))
    beyond = (
        _sum_beyond(np.sort(first + 1.0), windows)
        + _sum_beyond(np.sort(last + 1.0), windows)
        + _sum_beyond(np.sort(gaps[previous >= 0]), windows)
    )
    first_half, second_half = (
        _share_within(half, windows) for half in np.array_split(gaps, 2)
    )
    return ReuseCurve(
        windows=windows,
        footprint=m - beyond / (n - windows + 1),
        hits=_share_within(gaps, windows),
        drift=second_half - first_half,
        accesses=float(n),
        distinct=float(m),
    )


def _share_within(gaps: Numbers, windows: Numbers) -> Numbers:
    """Share of the accesses at most a window after the one before to their block: (windows,)."""
    within = np.searchsorted(np.sort(gaps), windows, side="right")
    share: Numbers = within / max(len(gaps), 1)
    return share


def _sum_beyond(rising: Numbers, windows: Numbers) -> Numbers:
    """Sum of max(value - window, 0) over rising values: (windows,)."""
    total = np.concatenate([[0.0], np.cumsum(rising)])
    at_most = np.searchsorted(rising, windows, side="right")
    beyond: Numbers = total[-1] - total[at_most] - windows * (len(rising) - at_most)
    return beyond

"""The Pareto frontier: the rows that no other row dominates."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers

_SAMPLE = 512
"""Rows that are compared each with each to find strong ones."""
_STRONG = 8
"""Strong rows that all rows are compared with; the first few drop nearly all there is to drop."""


def frontier(costs: Numbers) -> Booleans:
    """Mark the rows that no other row dominates.

    A row dominates another when it is no larger in any column and smaller in one. Equal rows stand
    or fall together; a row with a NaN is never on the frontier and dominates nothing.

    Args:
        costs: rows by columns, smaller is better; infinities are allowed.

    Returns:
        True where a row is on the frontier.
    """
    known = np.flatnonzero(~np.isnan(costs.T).any(axis=0))
    # a column in which all are equal decides nothing
    columns = np.zeros((max(costs.shape[1], 3), len(known)))
    columns[: costs.shape[1]] = costs[known].T
    promising = np.flatnonzero(_promising(columns[: costs.shape[1]]))
    order = promising[np.lexsort(columns[::-1, promising])]
    compare = _non_dominated if costs.shape[1] <= 3 else _by_comparing
    marked = np.zeros(len(costs), bool)
    marked[known[order]] = compare(columns[:, order])
    return marked


def _by_comparing(columns: Numbers) -> Booleans:
    """Rows that none dominates, of more columns: each row against all that are kept before it."""
    distinct, which = np.unique(columns.T, axis=0, return_inverse=True)
    kept = np.zeros(len(distinct), bool)
    for place, row in enumerate(distinct):
        before = distinct[:place][kept[:place]]
        kept[place] = not np.any(np.all(before <= row, axis=1))
    return kept[which]


def _non_dominated(columns: Numbers) -> list[bool]:
    """Rows, in lexicographic order, with no other before them as small in all three columns.

    The least last column of all rows before is kept as a staircase over the middle one.
    """
    # a step below all that beats nothing
    middles, lasts = [-np.inf], [np.nan]
    marked: list[bool] = []
    before = None
    for row in zip(*columns.tolist(), strict=True):
        _, middle, last = row
        if row == before:
            marked.append(marked[-1])
            continue
        before = row
        step = bisect_right(middles, middle)
        marked.append(not lasts[step - 1] <= last)
        if marked[-1]:
            end = step
            while end < len(lasts) and lasts[end] >= last:
                end += 1
            middles[step:end] = [middle]
            lasts[step:end] = [last]
    return marked


def _promising(columns: Numbers) -> Booleans:
    """Drop what a few strong rows dominate: those that dominate most of a sample."""
    count = columns.shape[1]
    kept = np.ones(count, bool)
    if count <= _SAMPLE:
        return kept
    places = np.linspace(0, count - 1, _SAMPLE).astype(int)
    sample = columns[:, places]
    beaten = np.ones((_SAMPLE, _SAMPLE), bool)
    for column in sample:
        beaten &= column[:, np.newaxis] < column
    strength = beaten.sum(axis=1)
    for strong in np.argsort(strength)[-_STRONG:]:
        kept &= np.any(columns <= sample[:, strong, np.newaxis], axis=0)
    return kept

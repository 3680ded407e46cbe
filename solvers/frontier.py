"""The Pareto frontier: the rows that no other row dominates."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers

_SAMPLE = 512
"""Rows among which strong ones are looked for."""
_STRONG = 8
"""Strong rows that all rows are compared with; the first few drop nearly all there is to drop."""
_PAIRWISE = 64
"""Rows that are compared each with each to find those that none of them dominates."""


def frontier(costs: Numbers) -> Booleans:
    """Mark the rows that no other row dominates.

    A row dominates another when it is no larger in any column and smaller in one. Equal rows stand
    or fall together; a row with a NaN is never on the frontier and dominates nothing.

    Args:
        costs: rows by columns, smaller is better; infinities are allowed.

    Returns:
        True where a row is on the frontier.
    """
    known = np.flatnonzero(~np.isnan(costs).any(axis=1))
    promising = known[_promising(costs[known].T)]
    # as halves are compared in all columns but the first, there are three or more
    columns = np.pad(costs[promising], ((0, 0), (max(3 - costs.shape[1], 0), 0)))
    distinct, place = np.unique(columns, axis=0, return_inverse=True)
    marked = np.zeros(len(costs), bool)
    marked[promising] = _non_dominated(distinct)[place]
    return marked


def _non_dominated(rows: Numbers) -> Booleans:
    """Rows that none dominates, of different ones in lexicographic order: none before them."""
    if len(rows) <= _PAIRWISE:
        no_larger = np.all(rows <= rows[:, np.newaxis], axis=-1)
        # a row is no larger than itself
        is_alone: Booleans = no_larger.sum(axis=1) == 1
        return is_alone
    half = len(rows) // 2
    before, after = _non_dominated(rows[:half]), _non_dominated(rows[half:])
    is_beaten = _is_beaten(rows[half:, 1:], rows[:half][before, 1:])
    return np.concatenate([before, after & ~is_beaten])


def _is_beaten(rows: Numbers, rivals: Numbers) -> Booleans:
    """Mark rows to which a rival is no larger in any column.

    Two columns are compared with the staircase of the rivals, in n log n; more each with each.
    """
    if rows.shape[1] > 2:
        blocks = np.array_split(rows, len(rows) // _PAIRWISE + 1)
        no_larger = (np.all(rivals <= block[:, np.newaxis], axis=-1) for block in blocks)
        return np.concatenate([of_block.any(axis=1) for of_block in no_larger])
    first, second = rivals.T
    order = np.argsort(first)
    least = np.append(np.nan, np.minimum.accumulate(second[order]))
    count = np.searchsorted(first[order], rows[:, 0], side="right")
    beaten: Booleans = least[count] <= rows[:, 1]
    return beaten


def _promising(columns: Numbers) -> Booleans:
    """Drop what a few strong rows dominate: those of a sample with the least sum of ranks."""
    count = columns.shape[1]
    kept = np.ones(count, bool)
    if count <= _SAMPLE:
        return kept
    places = np.linspace(0, count - 1, _SAMPLE).astype(int)
    sample = columns[:, places]
    ranks = np.argsort(np.argsort(sample)).sum(axis=0)
    for strong in np.argsort(ranks)[:_STRONG]:
        kept &= np.any(columns <= sample[:, strong, np.newaxis], axis=0)
    return kept

"""The Pareto frontier: the rows that no other row dominates."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers

_SAMPLE = 512
"""Rows that are compared each with each to find strong ones."""
_STRONG = 8
"""Strong rows that all rows are compared with; the first few drop nearly all there is to drop."""
_COMPARED_AT_ONCE = 512
"""Rows that are compared together with those that are kept before them."""


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
    distinct, place = np.unique(costs[promising], axis=0, return_inverse=True)
    marked = np.zeros(len(costs), bool)
    marked[promising] = _non_dominated(distinct)[place]
    return marked


def _non_dominated(rows: Numbers) -> Booleans:
    """Rows that none dominates, of different ones in lexicographic order: none before them."""
    marked = np.zeros(len(rows), bool)
    for start in range(0, len(rows), _COMPARED_AT_ONCE):
        chunk = rows[start : start + _COMPARED_AT_ONCE]
        rivals = np.concatenate([rows[:start][marked[:start]], chunk])
        no_larger = np.ones((len(chunk), len(rivals)), bool)
        for rival, own in zip(rivals.T, chunk.T, strict=True):
            no_larger &= rival <= own[:, np.newaxis]
        # a row is no larger than itself
        marked[start : start + _COMPARED_AT_ONCE] = no_larger.sum(axis=1) == 1
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

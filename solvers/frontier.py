"""The Pareto frontier: the rows that no other row dominates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError

Costs = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PIECE = 256
"""Rows that are compared each with each at once; their table fits a core's cache."""
_SAMPLE = 512
"""Rows that are compared each with each to find strong ones."""
_STRONG = 8
"""Strong rows that all rows are compared with; the first few drop nearly all there is to drop."""


def frontier(costs: Costs) -> Mask:
    """Mark the rows that no other row dominates.

    A row dominates another when it is no larger in any column and smaller in one. Equal rows stand
    or fall together; a row with a NaN is never on the frontier and dominates nothing.

    Args:
        costs: rows by one, two or three columns, smaller is better; infinities are allowed.

    Returns:
        True where a row is on the frontier.

    Raises:
        InputError: more than three columns, or none.
    """
    if costs.ndim != 2 or not 1 <= costs.shape[1] <= 3:
        raise InputError("a frontier has two or three columns to compare by")
    # column by column, in which NumPy compares many times faster than row by row
    columns = np.ascontiguousarray(costs.T)
    unknown = np.isnan(columns).any(axis=0)
    rows = np.flatnonzero(~unknown)
    promising = _promising(columns.take(rows, axis=1))
    rows = rows[promising]
    columns = columns.take(rows, axis=1)
    order = np.lexsort(columns[::-1])
    columns = columns.take(order, axis=1)
    distinct = _first_of_equals(columns)
    kept = _non_dominated(columns.compress(distinct, axis=1))
    which = np.cumsum(distinct) - 1
    marked = np.zeros(len(costs), bool)
    marked[rows[order]] = kept[which]
    return marked


def _first_of_equals(columns: Costs) -> Mask:
    """Mark the first of equal rows in an ordered table."""
    earlier, later = columns[:, :-1], columns[:, 1:]
    differs = np.any(later != earlier, axis=0)
    return np.append(True, differs)[: columns.shape[1]]


def _promising(columns: Costs) -> Mask:
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


def _non_dominated(columns: Costs) -> Mask:
    """Of distinct rows in lexicographic order, those on the frontier."""
    later = columns[1:]
    if len(later) == 2:
        return _in_three(later)
    if len(later) == 1:
        return _in_two(later[0])
    first: Mask = np.arange(columns.shape[1]) == 0
    return first


def _in_two(last: Costs) -> Mask:
    """Those smaller in the last column than all rows before."""
    least = np.minimum.accumulate(last)
    lower = last[1:] < least[:-1]
    return np.append(True, lower)[: len(last)]


def _in_three(later: Costs) -> Mask:
    """Those with no earlier row as small in the last two columns.

    Earlier rows are no larger in the first column. Piece by piece, rows are compared with a
    staircase of the best before (the second column rising, the third falling), then with one
    another.
    """
    count = later.shape[1]
    marked = np.zeros(count, bool)
    # a step below all that beats nothing
    stairs = np.array([[-np.inf], [np.nan]])
    for start in range(0, count, _PIECE):
        end = min(start + _PIECE, count)
        piece = np.arange(start, end)
        beaten = _beaten_before(later.take(piece, axis=1), stairs)
        piece = piece[~beaten]
        beaten = _beaten_within(later.take(piece, axis=1))
        piece = piece[~beaten]
        marked[piece] = True
        stairs = _with_steps(stairs, later.take(piece, axis=1))
    return marked


def _beaten_before(later: Costs, stairs: Costs) -> Mask:
    """Mark the rows that a step of a staircase equals or beats in the last two columns."""
    (y, z), (step_y, step_z) = later, stairs
    step = np.searchsorted(step_y, y, side="right") - 1
    beaten: Mask = step_z[step] <= z
    return beaten


def _beaten_within(later: Costs) -> Mask:
    """Mark the rows that an earlier row equals or beats in the last two columns."""
    beats = np.tri(later.shape[1], k=-1, dtype=bool)
    for values in later:
        beats &= values <= values[:, np.newaxis]
    beaten: Mask = np.any(beats, axis=1)
    return beaten


def _with_steps(stairs: Costs, later: Costs) -> Costs:
    """The staircase with the steps of rows."""
    steps = np.append(stairs, later, axis=1)
    order = np.lexsort(steps[::-1])
    y, z = steps.take(order, axis=1)
    z = np.fmin.accumulate(z)
    falls = ~(z[1:] >= z[:-1])
    step = np.append(True, falls)
    return np.array([y[step], z[step]])

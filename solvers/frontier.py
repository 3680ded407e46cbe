"""The designs that no other design beats in everything: the Pareto frontier."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError

Costs = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PIECE = 256
_SAMPLE = 512
_STRONG = 8


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
    known = np.flatnonzero(~np.isnan(costs).any(axis=1))
    promising = known[_promising(costs[known])]
    order = promising[np.lexsort(costs[promising].T[::-1])]
    rows = costs[order]
    distinct = _first_of_equals(rows)
    kept = _undominated(rows[distinct])
    which = np.cumsum(distinct) - 1
    marked = np.zeros(len(costs), bool)
    marked[order] = kept[which]
    return marked


def _first_of_equals(rows: Costs) -> Mask:
    """Mark the first of equal rows in an ordered table."""
    differs = np.any(rows[1:] != rows[:-1], axis=1)
    return np.append(True, differs)[: len(rows)]


def _promising(rows: Costs) -> Mask:
    """Drop what a few strong rows dominate: those that dominate most of a sample."""
    kept = np.ones(len(rows), bool)
    if len(rows) <= _SAMPLE:
        return kept
    places = np.linspace(0, len(rows) - 1, _SAMPLE).astype(int)
    sample = rows[places]
    beaten = np.ones((_SAMPLE, _SAMPLE), bool)
    for column in sample.T:
        beaten &= column[:, np.newaxis] < column
    strength = beaten.sum(axis=1)
    strongest = np.argsort(strength)[-_STRONG:]
    for strong in sample[strongest]:
        alive = np.flatnonzero(kept)
        kept[alive] = np.any(rows[alive] <= strong, axis=1)
    return kept


def _undominated(rows: Costs) -> Mask:
    """Of distinct rows in lexicographic order, those on the frontier."""
    columns = rows.shape[1]
    if columns == 3:
        return _in_three(rows)
    if columns == 2:
        return _in_two(rows)
    first: Mask = np.arange(len(rows)) == 0
    return first


def _in_two(rows: Costs) -> Mask:
    """Those smaller in the last column than all rows before."""
    if not len(rows):
        return np.zeros(0, bool)
    last = rows[:, -1]
    least = np.minimum.accumulate(last)
    return np.append(True, last[1:] < least[:-1])


def _in_three(rows: Costs) -> Mask:
    """Those with no earlier row as small in the last two columns.

    Earlier rows are no larger in the first column. Piece by piece, rows are compared with a
    staircase of the best before (the second column rising, the third falling), then with one
    another.
    """
    marked = np.zeros(len(rows), bool)
    # a step below all that beats nothing
    y, z = np.array([-np.inf]), np.array([np.nan])
    for start in range(0, len(rows), _PIECE):
        end = min(start + _PIECE, len(rows))
        piece = np.arange(start, end)
        step = np.searchsorted(y, rows[piece, 1], side="right") - 1
        beaten = z[step] <= rows[piece, 2]
        piece = piece[~beaten]
        piece = piece[~_beaten_within(rows[piece])]
        marked[piece] = True
        y = np.append(y, rows[piece, 1])
        z = np.append(z, rows[piece, 2])
        y, z = _staircase(y, z)
    return marked


def _beaten_within(rows: Costs) -> Mask:
    """Mark the rows that an earlier row equals or beats in the last two columns."""
    beats = np.tri(len(rows), k=-1, dtype=bool)
    for column in (1, 2):
        values = rows[:, column]
        beats &= values <= values[:, np.newaxis]
    beaten: Mask = np.any(beats, axis=1)
    return beaten


def _staircase(y: Costs, z: Costs) -> tuple[Costs, Costs]:
    order = np.lexsort((z, y))
    y = y[order]
    z = np.fmin.accumulate(z[order])
    falls = ~(z[1:] >= z[:-1])
    step = np.append(True, falls)
    return y[step], z[step]

"""The designs that no other design beats in everything: the Pareto frontier."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError

_PIECE, _SAMPLE, _STRONG = 256, 512, 8


def frontier(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
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
    known = known[_promising(costs[known])]
    order = known[np.lexsort(costs[known].T[::-1])]
    rows = costs[order]
    new = np.append(True, np.any(rows[1:] != rows[:-1], axis=1))[: len(rows)]
    kept = (_in_three if costs.shape[1] == 3 else _in_two)(rows[new])
    marked = np.zeros(len(costs), bool)
    marked[order] = kept[np.cumsum(new) - 1]
    return marked


def _promising(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Drop what a few strong rows dominate: those that dominate most of a sample."""
    left = np.ones(len(rows), bool)
    sample = (
        np.linspace(0, len(rows) - 1, _SAMPLE).astype(int) if len(rows) > _SAMPLE else np.arange(0)
    )
    drawn = rows[sample]
    beaten = np.ones((len(sample), len(sample)), bool)
    for column in drawn.T:
        beaten &= column[:, np.newaxis] < column
    for strong in drawn[np.argsort(beaten.sum(axis=1))[-_STRONG:]]:
        alive = np.flatnonzero(left)
        left[alive] = np.any(rows[alive] <= strong, axis=1)
    return left


def _in_two(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of distinct rows in lexicographic order, those smaller in the last column than all before."""
    if not len(rows):
        return np.zeros(0, bool)
    least = np.minimum.accumulate(rows[:, -1])
    return (
        np.append(True, rows[1:, -1] < least[:-1])
        if rows.shape[1] == 2
        else np.arange(len(rows)) == 0
    )


def _in_three(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of distinct rows in lexicographic order, those with no earlier row as small in the last two columns.

    Earlier rows are no larger in the first column. Piece by piece, rows are compared with a staircase
    of the best before (the second column rising, the third falling), then with one another.
    """
    marked = np.zeros(len(rows), bool)
    y, z = np.array([-np.inf]), np.array([np.nan])  # a step below all that beats nothing
    for start in range(0, len(rows), _PIECE):
        piece = np.arange(start, min(start + _PIECE, len(rows)))
        step = np.searchsorted(y, rows[piece, 1], side="right") - 1
        piece = piece[~(z[step] <= rows[piece, 2])]
        before = np.tri(len(piece), k=-1, dtype=bool)
        for column in (1, 2):
            before &= rows[piece, column] <= rows[piece, column][:, np.newaxis]
        piece = piece[~before.any(axis=1)]
        marked[piece] = True
        y, z = _staircase(np.append(y, rows[piece, 1]), np.append(z, rows[piece, 2]))
    return marked


def _staircase(
    y: NDArray[np.float64], z: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = np.lexsort((z, y))
    y, z = y[order], np.fmin.accumulate(z[order])
    step = np.append(True, ~(z[1:] >= z[:-1]))
    return y[step], z[step]

"""Heads that go to HBM: the exact optimum (H2M2 sec. 3, 4.3).

The step is a sum of three tables, one a sub-layer, under two capacities. Where all three fit at
their fastest, that is the optimum; what is left is solved by pairs of units of attention and qkv.
Where nothing fits, HBM, LPDDR and both together lack as few bytes as can be.

Symbols: n heads on HBM, N heads.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.tables import (
    Array,
    FlatTables,
    HeadMapping,
    Units,
    entries,
    fits,
    flatten,
    mapping_of,
)

_PAIRS_AT_ONCE = 1 << 17
"""Entries of one temporary; 1 MiB of float64, which a core's cache holds."""


def exact(tables: HeadTables) -> HeadMapping:
    """The fastest mapping that fits both memories, in O(N^2) a design point at most.

    Where nothing fits both, the one with the fewest bytes missing.
    """
    flat = flatten(tables)
    n = flat.seconds.argmin(2)
    unproven = np.flatnonzero(~fits(flat, n))
    step = max(_PAIRS_AT_ONCE // flat.seconds.shape[2] ** 2, 1)
    for start in range(0, len(unproven), step):
        rows = unproven[start : start + step]
        n[:, rows] = _best_of_pairs(flat.of_points(rows))
    return mapping_of(tables, flat, n)


# --- pairs of units of attention and qkv, design point by design point -------------------------
#
# For every pair (n_attention, n_qkv) the capacities leave an interval of n_fc, whose best value is
# a range minimum of fc's table. So N^2 look-ups find the optimum over N^3.


def _best_of_pairs(flat: FlatTables) -> Units:
    """The fastest units; where none fit, those with the fewest bytes missing."""
    most, least = _most_fc(flat), _least_fc(flat)
    fc = flat.seconds[2]
    seconds = _pairs(flat.seconds) + _range_minimum(fc, least, most)
    attention, qkv, first, last = _of_fastest(seconds, least, most)
    units = np.arange(fc.shape[1])
    inside = (first[:, None] <= units) & (units <= last[:, None])
    n = np.stack([attention, qkv, np.where(inside, fc, np.inf).argmin(1)])
    nothing = np.flatnonzero(np.isinf(seconds.min((1, 2))))
    if len(nothing):
        n[:, nothing] = _least_missing(flat.of_points(nothing))
    return n


def _least_missing(flat: FlatTables) -> Units:
    """Units with the fewest bytes missing: of HBM, of LPDDR or of both, whatever is the most.

    A further unit of fc moves its bytes from LPDDR to HBM, so beside each pair the best number is
    one of the two around that with which both lack the same.
    """
    exists = np.isfinite(flat.seconds[2])
    first = exists.argmax(1)
    last = exists.shape[1] - 1 - exists[:, ::-1].argmax(1)
    unit = _bytes_of_fc(flat)
    on_hbm = _pairs(flat.hbm) - _before_pairs(flat.hbm_headroom)
    on_lpddr = _pairs(flat.lpddr) - _before_pairs(flat.lpddr_headroom)
    on_lpddr = on_lpddr + _before_pairs(flat.units) * unit
    level = np.floor((on_lpddr - on_hbm) / (2 * unit))
    fewer = np.clip(level, _before_pairs(first), _before_pairs(last))
    more = np.minimum(fewer + 1, _before_pairs(last))
    missing = [np.maximum(on_hbm + n * unit, on_lpddr - n * unit) for n in (fewer, more)]
    n_fc = np.where(missing[1] < missing[0], more, fewer).astype(int)
    least = np.maximum(np.minimum(*missing), on_hbm + on_lpddr)
    possible = np.isfinite(_pairs(flat.seconds))
    return _of_fastest(np.where(possible, least, np.inf), n_fc)


def _most_fc(flat: FlatTables) -> Units:
    """Most units of fc that HBM still holds beside each pair; -1 where none [1]."""
    held = _before_pairs(flat.hbm_headroom) - _pairs(flat.hbm)
    held /= _bytes_of_fc(flat)
    np.clip(np.floor(held, out=held), -1.0, _before_pairs(flat.units), out=held)
    return held.astype(int)


def _least_fc(flat: FlatTables) -> Units:
    """Fewest units of fc on HBM so that LPDDR holds the rest beside each pair [1]."""
    units = _before_pairs(flat.units)
    left = _before_pairs(flat.lpddr_headroom) - _pairs(flat.lpddr)
    held = np.floor(left / _bytes_of_fc(flat))
    least: Units = np.clip(units - held, 0, units + 1).astype(int)
    return least


def _bytes_of_fc(flat: FlatTables) -> Array:
    """Bytes of one unit of fc [B]."""
    return _before_pairs(flat.hbm[2, :, 1])


def _pairs(tables: Array) -> Array:
    """Sums of a table of attention and one of qkv: (points, attention, qkv)."""
    attention, qkv, _ = tables
    pairs: Array = attention[:, :, None] + qkv[:, None]
    return pairs


def _of_fastest(cost: Array, *n_fc: Units) -> Units:
    """The pair of the least cost at each point, and units of fc beside it."""
    points, _, counts = cost.shape
    pair = cost.reshape(points, -1).argmin(1)
    beside = [entries(n.reshape(points, -1), pair) for n in n_fc]
    return np.stack([*np.divmod(pair, counts), *beside])


def _before_pairs(values: Array) -> Array:
    """One value a point, to broadcast with tables of pairs."""
    return values[:, None, None]


def _range_minimum(table: Array, low: Array, top: Array) -> Array:
    """Least of table[low..top] at each point; infinite where that is empty.

    Every range is covered by two ranges of 2^level units, whose minima are tabulated.

    Args:
        table: (points, units).
        low, top: (points, ...), first and last unit that count [1].
    """
    if not np.any(low):
        none = np.full((len(table), 1), np.inf)
        prefixes = np.append(none, np.minimum.accumulate(table, 1), axis=1)
        # one index into all rows, which takes a third of the time of two
        row = prefixes.shape[1] * np.arange(len(table))
        return prefixes.ravel().take(_before_pairs(row) + top + 1)
    levels = [table]
    while 2 ** len(levels) <= table.shape[1]:
        half = 2 ** (len(levels) - 1)
        beyond = np.full((len(table), half), np.inf)
        shifted = np.append(levels[-1][:, half:], beyond, axis=1)
        levels.append(np.minimum(levels[-1], shifted))
    minima = np.stack(levels, 1)
    empty = low > top
    width = np.where(empty, 1, top - low + 1)
    level = np.frexp(width.astype(float))[1] - 1
    point = _before_pairs(np.arange(len(table)))
    first = np.where(empty, 0, low)
    last = np.where(empty, 0, top - 2**level + 1)
    least = np.minimum(minima[point, level, first], minima[point, level, last])
    return np.where(empty, np.inf, least)

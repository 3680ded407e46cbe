"""The optimal mapping by every pair of units of attention and qkv, design point by design point.

For every pair (n_attention, n_qkv) the capacities leave an interval of n_fc, whose best value is a
prefix minimum of fc's table, or a range minimum once LPDDR's capacity cuts the interval from below.
So N^2 look-ups find the optimum over N^3.

Symbols: n heads on HBM, N heads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.flat import Array, Chosen
from nearkv.solvers.mapping.minima import prefix_minimum, range_minimum

Units = NDArray[np.int64]


def best_of_pairs(tables: HeadTables) -> Chosen:
    """Units for tables of one axis of design points."""
    low = _least_fc(tables)
    if low is None:
        tables = _undominated(tables)
    attention, qkv, fc = tables.seconds
    pairs = attention[:, :, None] + qkv[:, None, :]
    top = most_fc(tables)
    if low is None:
        total = prefix_minimum(fc, top)
        total += pairs
    else:
        total = pairs + range_minimum(fc, low, top)
        # where nothing fits both, HBM's capacity alone counts
        possible = np.any(np.isfinite(total), axis=(1, 2))
        nothing = _before_pairs(np.logical_not(possible))
        total = np.where(nothing, pairs + prefix_minimum(fc, top), total)
        low = np.where(nothing, 0, low)
    flat_total = total.reshape(len(total), -1)
    flat_pair = flat_total.argmin(1)
    n_attention, n_qkv = np.divmod(flat_pair, total.shape[2])
    n = np.arange(fc.shape[1])
    inside = n <= _of_pair(top, n_attention, n_qkv)
    if low is not None:
        inside &= n >= _of_pair(low, n_attention, n_qkv)
    allowed = np.where(inside, fc, np.inf)
    n_fc = allowed.argmin(1)
    return Chosen(n_attention, n_qkv, n_fc)


def _undominated(tables: HeadTables) -> HeadTables:
    """The tables without units of attention and qkv that HBM alone bounds and that only cost.

    Beyond its fastest number a sub-layer takes more bytes of HBM and no less time.
    """
    seconds, hbm = list(tables.seconds), list(tables.hbm)
    for sublayer in (0, 1):
        fastest = seconds[sublayer].argmin(1)
        kept = slice(0, 1 + int(fastest.max()))
        seconds[sublayer] = seconds[sublayer][:, kept]
        hbm[sublayer] = hbm[sublayer][:, kept]
    attention, qkv, fc = seconds
    on_attention, on_qkv, on_fc = hbm
    on_hbm = (on_attention, on_qkv, on_fc)
    return replace(tables, seconds=(attention, qkv, fc), hbm=on_hbm)


def _of_pair(table: Array, n_attention: Array, n_qkv: Array) -> Array:
    """One value a point, as a column; one row of the table serves all points."""
    point = np.arange(len(n_attention)) if len(table) > 1 else 0
    values: Array = table[point, n_attention, n_qkv]
    return values[:, None]


def _room_beside(tables: tuple[Array, Array, Array], room: Array) -> Array:
    """Bytes a memory has left beside each pair of attention and qkv [B]."""
    attention, qkv, _ = tables
    beside_attention = room[:, None] - attention
    left: Array = beside_attention[:, :, None] - qkv[:, None, :]
    return left


def most_fc(tables: HeadTables) -> Units:
    """Most units of fc that HBM still holds beside each pair; -1 where none [1]."""
    room = _room_beside(tables.hbm, tables.hbm_room)
    room /= _bytes_of_unit(tables)
    np.floor(room, out=room)
    np.clip(room, -1.0, _before_pairs(tables.units), out=room)
    return room.astype(np.int64)


def _least_fc(tables: HeadTables) -> Units | None:
    """Fewest units of fc on HBM so that LPDDR holds the rest [1].

    None where LPDDR holds all of everything.
    """
    most = sum(table.max(1) for table in tables.lpddr)
    if np.all(most <= tables.lpddr_room):
        return None
    room = _room_beside(tables.lpddr, tables.lpddr_room)
    on_lpddr = np.floor(room / _bytes_of_unit(tables))
    units = _before_pairs(tables.units)
    on_hbm = np.clip(units - on_lpddr, 0, units + 1)
    least: Units = on_hbm.astype(np.int64)
    return least


def _bytes_of_unit(tables: HeadTables) -> Array:
    """Bytes of one unit of fc [B]."""
    _, _, fc = tables.hbm
    return _before_pairs(fc[:, 1])


def _before_pairs(values: Array) -> Array:
    """One value a point, to broadcast with tables of pairs."""
    return values[:, None, None]

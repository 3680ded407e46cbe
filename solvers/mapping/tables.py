"""A mapping of heads to HBM and LPDDR, and head tables with all design points along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Booleans, Indices, Real
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, Three

Array = NDArray[Any]
Units = NDArray[np.intp]
"""Units of attention, qkv and fc on HBM: (3, points) [1]."""


@dataclass(frozen=True)
class HeadMapping:
    """Units on HBM, design point by design point.

    Attributes:
        units: of attention, qkv and fc on HBM [1].
        seconds: of one step [s].
        ok: whether both memories hold what they must; if not, the mapping is the best one that HBM
            holds, and LPDDR is short.
    """

    units: tuple[Real, Real, Real]
    seconds: Real
    ok: Any


def bytes_used(tables: HeadTables, mapping: HeadMapping) -> tuple[Real, Real]:
    """Bytes on HBM and on LPDDR of a mapping [B]."""
    flat, n = flatten(tables), _units_of(tables, *mapping.units)
    hbm, lpddr = total(flat.hbm, n), total(flat.lpddr, n)
    return hbm.reshape(tables.points)[()], lpddr.reshape(tables.points)[()]


def evaluate(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> HeadMapping:
    """Seconds and feasibility of given units on HBM [1]."""
    return mapping_of(tables, flatten(tables), _units_of(tables, attention, qkv, fc))


def _units_of(tables: HeadTables, *units: Any) -> Units:
    """Units in the shape of the design points, along one axis."""
    return np.stack([np.broadcast_to(n, tables.points).ravel() for n in units]).astype(int)


# --- tables with one axis of design points ------------------------------------------------------


class FlatTables(NamedTuple):
    """Head tables of design points along one axis.

    Attributes:
        seconds, hbm, lpddr: (attention, qkv and fc; points; units) [s, B, B].
        hbm_headroom, lpddr_headroom: (points,) [B].
        units: that each design point has (points,) [1].
    """

    seconds: Array
    hbm: Array
    lpddr: Array
    hbm_headroom: Array
    lpddr_headroom: Array
    units: Array

    def of_points(self, rows: Indices) -> FlatTables:
        """The tables of some design points, in the order of their rows."""
        return FlatTables(
            self.seconds[:, rows],
            self.hbm[:, rows],
            self.lpddr[:, rows],
            self.hbm_headroom[rows],
            self.lpddr_headroom[rows],
            self.units[rows],
        )


def flatten(tables: HeadTables) -> FlatTables:
    """All sub-layers in one array, all design points along one axis."""

    def sublayers(three: Three) -> Array:
        shape = (*tables.points, three[0].shape[-1])
        return np.stack(
            [np.broadcast_to(table, shape).reshape(-1, shape[-1]) for table in three]
        )

    def of_points(values: Array) -> Array:
        return np.broadcast_to(values, tables.points).ravel()

    return FlatTables(
        seconds=sublayers(tables.seconds),
        hbm=sublayers(tables.hbm),
        lpddr=sublayers(tables.lpddr),
        hbm_headroom=of_points(tables.hbm_headroom),
        lpddr_headroom=of_points(tables.lpddr_headroom),
        units=of_points(tables.units),
    )


def entries(table: Array, n: Array) -> Array:
    """Entries of a table (..., points, units), one for each design point."""
    column = np.take_along_axis(table, n[..., None], axis=-1)
    return column[..., 0]


def total(tables: Array, n: Units) -> Array:
    """Sum over the sub-layers of their tables at these units.

    All sums are taken in this order, so that equal mappings have equal sums to the last bit.
    """
    attention, qkv, fc = entries(tables, n)
    sums: Array = attention + qkv + fc
    return sums


def fits(flat: FlatTables, n: Units) -> Booleans:
    """True if HBM and LPDDR hold their bytes."""
    hbm_holds = total(flat.hbm, n) <= flat.hbm_headroom
    return hbm_holds & (total(flat.lpddr, n) <= flat.lpddr_headroom)


def mapping_of(tables: HeadTables, flat: FlatTables, n: Units) -> HeadMapping:
    """The mapping of some units, in the shape of the design points."""

    def shaped(values: Array) -> Any:
        return values.reshape(tables.points)[()]

    attention, qkv, fc = map(shaped, n.astype(float))
    seconds, ok = total(flat.seconds, n), fits(flat, n)
    return HeadMapping((attention, qkv, fc), shaped(seconds), shaped(ok))

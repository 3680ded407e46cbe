"""A mapping of heads to HBM and LPDDR, and head tables with all design points along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables

Array = NDArray[Any]
Rows = NDArray[np.intp]
"""Indices of design points."""


@dataclass(frozen=True)
class Mapping:
    """Units on HBM, design point by design point.

    Attributes:
        attention, qkv, fc: units of each sub-layer on HBM [1].
        seconds: of one step [s].
        ok: whether both memories hold what they must; if not, the mapping is the best one that HBM
            holds, and LPDDR is short.
    """

    attention: Real
    qkv: Real
    fc: Real
    seconds: Real
    ok: Any

    @property
    def units(self) -> tuple[Real, Real, Real]:
        """Attention, qkv, fc [1]."""
        return self.attention, self.qkv, self.fc


def bytes_used(tables: HeadTables, mapping: Mapping) -> tuple[Real, Real]:
    """Bytes on HBM and on LPDDR of a mapping [B]."""
    flat = flatten(tables)
    choice = choice_of(tables, *mapping.units)
    hbm = choice.total(flat.hbm)
    lpddr = choice.total(flat.lpddr)
    points = tables.points
    return hbm.reshape(points)[()], lpddr.reshape(points)[()]


def evaluate(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> Mapping:
    """Seconds and feasibility of given units on HBM [1]."""
    choice = choice_of(tables, attention, qkv, fc)
    return mapping_of(tables.points, flatten(tables), choice)


# --- tables with one axis of design points ------------------------------------------------------


def flatten(tables: HeadTables) -> HeadTables:
    """One axis of design points, of length 1 where a table is that of all points."""
    points = tables.points

    def rows(table: Array, own_axes: int) -> Array:
        if table.ndim == own_axes:
            return table[None]
        own_shape = table.shape[table.ndim - own_axes :]
        if table.size == math.prod(own_shape):
            return table.reshape((1, *own_shape))
        return np.broadcast_to(table, points + own_shape).reshape((-1, *own_shape))

    return _changed(tables, rows)


def points_at(flat: HeadTables, rows: Rows, count: int) -> HeadTables:
    """The design points at some rows, in that order, of flat tables that have `count` of them."""
    if len(rows) == count:
        return flat

    def select(table: Array, _: int) -> Array:
        return table[rows] if len(table) == count else table

    return _changed(flat, select)


def _changed(tables: HeadTables, change: Callable[[Array, int], Array]) -> HeadTables:
    """Apply a change to every array; its second argument is how many axes are the array's own."""

    def sublayers(of: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        attention, qkv, fc = of
        return change(attention, 1), change(qkv, 1), change(fc, 1)

    return HeadTables(
        seconds=sublayers(tables.seconds),
        hbm=sublayers(tables.hbm),
        lpddr=sublayers(tables.lpddr),
        hbm_headroom=change(tables.hbm_headroom, 0),
        lpddr_headroom=change(tables.lpddr_headroom, 0),
        units=change(tables.units, 0),
    )


@dataclass(frozen=True)
class Choice:
    """Units of each sub-layer on HBM, along one axis of design points [1]."""

    attention: Array
    qkv: Array
    fc: Array

    def apply(self, change: Callable[[Array], Array]) -> Choice:
        """Apply a change to all three sub-layers."""
        return Choice(change(self.attention), change(self.qkv), change(self.fc))

    def set_rows(self, rows: Rows, other: Choice) -> None:
        """Replace the units at some design points."""
        self.attention[rows] = other.attention
        self.qkv[rows] = other.qkv
        self.fc[rows] = other.fc

    def total(self, tables: tuple[Array, Array, Array]) -> Any:
        """Sum over the sub-layers of their tables at these units.

        All sums are taken in this order, so that equal mappings have equal sums to the last bit.
        """
        attention, qkv, fc = tables
        pair = entries(attention, self.attention) + entries(qkv, self.qkv)
        return pair + entries(fc, self.fc)


def choice_of(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> Choice:
    """Units in the shape of the design points, along one axis."""

    def flat(units: Any) -> Array:
        return np.broadcast_to(units, tables.points).ravel().astype(int)

    return Choice(attention, qkv, fc).apply(flat)


def entries(table: Array, units: Array) -> Any:
    """Entries of a table (points or 1, units), one for each design point."""
    if len(table) == 1:
        return table[0][units]
    point = np.arange(len(table))
    return table[point, units if len(units) > 1 else units[0]]


def fits(flat: HeadTables, choice: Choice) -> tuple[Array, Array]:
    """Whether HBM and LPDDR hold their bytes."""
    on_hbm = choice.total(flat.hbm) <= flat.hbm_headroom
    on_lpddr = choice.total(flat.lpddr) <= flat.lpddr_headroom
    return on_hbm, on_lpddr


def mapping_of(points: tuple[int, ...], flat: HeadTables, choice: Choice) -> Mapping:
    """The mapping of a choice, in the shape of the design points."""
    on_hbm, on_lpddr = fits(flat, choice)

    def shaped(values: Array) -> Any:
        return values.reshape(points)[()]

    units = choice.apply(lambda n: shaped(n.astype(float)))
    return Mapping(
        attention=units.attention,
        qkv=units.qkv,
        fc=units.fc,
        seconds=shaped(choice.total(flat.seconds)),
        ok=shaped(on_hbm & on_lpddr),
    )

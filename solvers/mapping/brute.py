"""Every mapping of heads tried: the check on `nearkv.solvers.mapping.exact`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.exact import Mapping, evaluate

Array = NDArray[Any]


def brute(tables: HeadTables) -> Mapping:
    """The fastest mapping that fits both memories, in O(N^3), for one design point.

    Raises:
        ValueError: more than one design point.
    """
    if math.prod(tables.points) != 1:
        raise ValueError("brute force takes one design point")
    seconds = _cube(tables.seconds)
    # a room may still have an axis for every number that was set
    hbm_room, lpddr_room = (
        np.reshape(tables.hbm_room, ()),
        np.reshape(tables.lpddr_room, ()),
    )
    on_hbm = _cube(tables.hbm) <= hbm_room
    on_both = on_hbm & (_cube(tables.lpddr) <= lpddr_room)
    possible = on_both & np.isfinite(seconds)
    ok = on_both if possible.any() else on_hbm
    allowed = np.where(ok, seconds, np.inf)
    attention, qkv, fc = np.unravel_index(allowed.argmin(), allowed.shape)
    return evaluate(tables, attention, qkv, fc)


def _cube(three: tuple[Array, Array, Array]) -> Array:
    """Sum of three tables for every mapping, in the order of every other sum."""
    attention, qkv, fc = (table.reshape(table.shape[-1]) for table in three)
    pairs = attention[:, None] + qkv
    cube: Array = pairs[:, :, None] + fc
    return cube

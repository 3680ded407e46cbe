"""Sub-layer times and bytes for every number of heads on HBM, from which mappings are chosen.

Symbols: n heads on HBM, N heads, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real, serial
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    MOST_UNITS,
    Asymmetric,
    asymmetric_memory,
    check_heads,
    footprint,
    sublayers,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

Three = tuple[Numbers, Numbers, Numbers]


@dataclass(frozen=True)
class HeadTables:
    """Three sub-layers (attention, qkv, fc) by units on HBM.

    Units are the last axis, design points the others.

    Attributes:
        seconds: of a decode step; infinite where a model has fewer units [s].
        hbm: bytes on HBM, which never fall with n; those of fc are n x one unit's [B].
        lpddr: bytes on LPDDR, which never rise with n; those of fc are (N - n) x one unit's [B].
        hbm_headroom, lpddr_headroom: bytes there; no unit axis [B].
        units: N, how many units can be mapped; no unit axis [1].
    """

    seconds: Three
    hbm: Three
    lpddr: Three
    hbm_headroom: Numbers
    lpddr_headroom: Numbers
    units: Numbers

    @cached_property
    def points(self) -> tuple[int, ...]:
        """Shape of the design points."""
        shapes = {self.hbm_headroom.shape, self.lpddr_headroom.shape, self.units.shape}
        for tables in (self.seconds, self.hbm, self.lpddr):
            shapes.update(table.shape[:-1] for table in tables)
        if len(shapes) == 1:
            return shapes.pop()
        return np.broadcast_shapes(*shapes)


def head_tables(hw: Machine, llm: LLM, work: Workload) -> HeadTables:
    """Tabulate one decode step of the asymmetric memory over 0..N heads on HBM, paging apart.

    Args:
        hw, llm, work: broadcast over design points.

    Raises:
        InputError: queries that do not divide into KV groups.
    """
    check_heads(llm)
    two = asymmetric_memory(hw)
    n = units_first("heads", llm.heads, two, llm, work)
    seconds = step_seconds(two, llm, work, n)

    def stored(heads: Real) -> Iterable[Real]:
        return footprint(llm, work, heads, heads, heads).values()

    return _tables(two, llm.heads, n, seconds, stored)


def step_seconds(two: Asymmetric, llm: LLM, work: Workload, n: Real) -> list[Real]:
    """Attention, qkv, and fc with the output head, of a decode step with n heads on HBM [s]."""
    spans = sublayers(two, llm, work, n, n, n)
    fc = serial(fc=spans["fc"], head=spans["head"])
    return [spans["attention"].seconds, spans["qkv"].seconds, fc.seconds]


def layer_tables(hw: Machine, llm: LLM, work: Workload) -> HeadTables:
    """Tabulate a decode step whose sub-layers are mapped undivided: n of L layers on HBM (fig. 5a).

    While one side works, the other waits.
    """
    check_heads(llm)
    two = asymmetric_memory(hw)
    n = units_first("layers", llm.layers, two, llm, work)
    none = np.zeros(np.shape(llm.heads))

    on_hbm = step_seconds(two, llm, work, llm.heads)
    on_lpddr = step_seconds(two, llm, work, none)
    # where layers take as long on either side, equal sums have the fewest of them on HBM
    in_turn = [
        lpddr + n / llm.layers * (hbm - lpddr)
        for hbm, lpddr in zip(on_hbm, on_lpddr, strict=True)
    ]
    whole = footprint(llm, work, llm.heads, llm.heads, llm.heads).values()

    def stored(layers: Real) -> Iterable[Real]:
        return [layers * (size / llm.layers) for size in whole]

    return _tables(two, llm.layers, n, in_turn, stored)


def _tables(
    two: Asymmetric,
    units: Real,
    n: Real,
    seconds: Iterable[Real],
    stored: Callable[[Real], Iterable[Real]],
) -> HeadTables:
    """Tables over n of some units on HBM, of which a side stores bytes."""
    return HeadTables(
        seconds=units_last(np.where(n <= units, each, np.inf) for each in seconds),
        hbm=units_last(stored(n)),
        lpddr=units_last(stored(np.maximum(units - n, 0))),
        hbm_headroom=np.asarray(two.hbm.capacity, float),
        lpddr_headroom=np.asarray(two.lpddr.capacity, float),
        units=np.asarray(units, float),
    )


def units_first(
    name: str, units: Real, two: Asymmetric, llm: LLM, work: Workload
) -> Numbers:
    """Count 0..N along a new first axis, in front of all axes that design points have [1].

    Args:
        name: of what is counted.
        units: N of each model [1].
        two, llm, work: as in `head_tables`, for the axes.

    Raises:
        InputError: a model with more units than tables are made for.
    """
    most = float(np.max(units))
    if most > MOST_UNITS:
        raise InputError(
            f"model: {most:,.0f} {name} are more than the {MOST_UNITS:,} that a mapping is solved "
            f"for; correct {name}, or use lpddr-only, which maps nothing"
        )
    axes = _axes(two, llm, work.batch, work.context)
    n = np.arange(most + 1)
    return n.reshape(n.shape + (1,) * axes)


def _axes(*parts: Any) -> int:
    """Most axes of some numbers, or of the numbers of some parts [1]."""
    most = 0
    for part in parts:
        if hasattr(part, "ndim"):
            most = max(most, part.ndim)
        elif hasattr(part, "__dict__"):
            numbers = vars(part).values()
            most = max(most, _axes(*numbers))
    return most


def units_last(tables: Iterable[Real]) -> Three:
    """Move the units' axis of attention, qkv and fc last, where solvers look for it."""
    numbers = (np.asarray(table, float) for table in tables)
    attention, qkv, fc = (np.rollaxis(table, 0, table.ndim) for table in numbers)
    return attention, qkv, fc

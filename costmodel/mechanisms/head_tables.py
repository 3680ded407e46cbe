"""Sub-layer times and bytes for every number of heads on HBM: what a mapping is chosen from.

Symbols: n heads on HBM, N heads, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.compose import serial
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.head_mapping import (
    Asymmetric,
    asymmetric_memory,
    attention,
    attention_bytes,
    check_heads,
    fc,
    fc_bytes,
    qkv,
    qkv_bytes,
)
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

Array = NDArray[np.float64]
Three = tuple[Array, Array, Array]


@dataclass(frozen=True)
class HeadTables:
    """Three sub-layers (attention, qkv, fc) by units on HBM; units are the last axis, design points the others.

    Attributes:
        seconds: of a whole step; infinite where a model has fewer units [s].
        hbm: bytes on HBM, which never fall with n; those of fc are n x one unit's [B].
        lpddr: bytes on LPDDR, which never rise with n; those of fc are (N - n) x one unit's [B].
        hbm_room, lpddr_room: bytes there; no unit axis [B].
        units: N, how many units can be mapped; no unit axis [1].
    """

    seconds: Three
    hbm: Three
    lpddr: Three
    hbm_room: Array
    lpddr_room: Array
    units: Array

    @property
    def points(self) -> tuple[int, ...]:
        """Shape of the design points."""
        shapes = {
            table.shape[:-1] for three in (self.seconds, self.hbm, self.lpddr) for table in three
        }
        shapes |= {self.hbm_room.shape, self.lpddr_room.shape, self.units.shape}
        return next(iter(shapes)) if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def head_tables(hw: Machine, llm: LLM, work: Workload) -> HeadTables:
    """Tabulate one decode step of the asymmetric memory over 0..N heads on HBM, paging apart.

    Args:
        hw, llm, work: broadcast over design points.

    Raises:
        InputError: queries that do not divide into KV groups.
    """
    check_heads(llm)
    two = asymmetric_memory(hw)
    n = _units_first(np.max(llm.heads), two, llm, work)
    rest = np.maximum(llm.heads - n, 0)
    spans = (
        attention(two, llm, work.batch, work.context, n),
        qkv(two, llm, work.batch, n),
        fc(two, llm, work.batch, n),
    )
    return HeadTables(
        seconds=_three(
            *(np.where(n <= llm.heads, llm.layers * span.seconds, np.inf) for span in spans)
        ),
        hbm=_three(
            attention_bytes(llm, work.batch, work.context, n), qkv_bytes(llm, n), fc_bytes(llm, n)
        ),
        lpddr=_three(
            attention_bytes(llm, work.batch, work.context, rest),
            qkv_bytes(llm, rest),
            fc_bytes(llm, rest),
        ),
        hbm_room=np.asarray(two.hbm.capacity, float),
        lpddr_room=np.asarray(two.lpddr.capacity, float),
        units=np.asarray(llm.heads, float),
    )


def layer_tables(hw: Machine, llm: LLM, work: Workload) -> HeadTables:
    """Tabulate the same step for mapping whole sub-layers: n of L layers on HBM (fig. 5a).

    While one side works, the other waits.
    """
    check_heads(llm)
    two = asymmetric_memory(hw)
    n = _units_first(np.max(llm.layers), two, llm, work)
    rest = np.maximum(llm.layers - n, 0)

    def seconds(on_hbm: Span, on_lpddr: Span) -> Array:
        return np.where(n <= llm.layers, n * on_hbm.seconds + rest * on_lpddr.seconds, np.inf)

    whole = (
        attention_bytes(llm, work.batch, work.context, llm.heads) / llm.layers,
        qkv_bytes(llm, llm.heads) / llm.layers,
        fc_bytes(llm, llm.heads) / llm.layers,
    )
    all_, none = llm.heads, np.zeros(np.shape(llm.heads))
    return HeadTables(
        seconds=_three(
            seconds(
                *(attention(two, llm, work.batch, work.context, heads) for heads in (all_, none))
            ),
            seconds(*(qkv(two, llm, work.batch, heads) for heads in (all_, none))),
            seconds(*(fc(two, llm, work.batch, heads) for heads in (all_, none))),
        ),
        hbm=_three(*(n * each for each in whole)),
        lpddr=_three(*(rest * each for each in whole)),
        hbm_room=np.asarray(two.hbm.capacity, float),
        lpddr_room=np.asarray(two.lpddr.capacity, float),
        units=np.asarray(llm.layers, float),
    )


def _units_first(most: Real, two: Asymmetric, llm: LLM, work: Workload) -> Array:
    """0..N along a new first axis, in front of all axes that design points have."""
    whole = serial(
        a=attention(two, llm, work.batch, work.context, llm.heads),
        f=fc(two, llm, work.batch, llm.heads),
    )
    n = np.arange(float(most) + 1)
    return n.reshape(
        n.shape + (1,) * np.ndim(whole.seconds + two.hbm.capacity + two.lpddr.capacity)
    )


def _three(attention: Real, qkv: Real, fc: Real) -> Three:
    """Move the units' axis last, where solvers look for it."""
    a, q, f = (np.moveaxis(np.asarray(table, float), 0, -1) for table in (attention, qkv, fc))
    return a, q, f

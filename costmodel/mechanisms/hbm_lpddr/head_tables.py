"""Sub-layer times and bytes for every number of heads on HBM, from which mappings are chosen.

Symbols: n heads on HBM, N heads, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real, Span, serial, shapes
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    MOST_UNITS,
    SUBLAYERS,
    Asymmetric,
    asymmetric_memory,
    check_heads,
    footprint,
    of_each,
    prompts_of,
    step_of,
    sublayers,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.mapped_step import (
    ORDERS,
    Order,
    change_mapping,
    holds,
    prompt_heads,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

Three = tuple[Numbers, Numbers, Numbers]
Seconds = Callable[[Asymmetric, LLM, Workload, Real], list[Real]]
"""Both sides, model, work, heads on HBM -> seconds of attention, qkv and fc [s]."""


@dataclass(frozen=True)
class HeadTables:
    """Three sub-layers (attention, qkv, fc) by units on HBM.

    Units are the last axis, design points the others.

    Attributes:
        seconds: of a decode step or of a request; infinite where a model has fewer units [s].
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


def head_tables(
    hw: Machine, llm: LLM, work: Workload, seconds: Seconds | None = None
) -> HeadTables:
    """Tabulate the asymmetric memory over 0..N heads on HBM, paging apart.

    Args:
        hw, llm, work: broadcast over design points.
        seconds: of each sub-layer; those of a decode step where none are given.

    Raises:
        InputError: queries that do not divide into KV groups.
    """
    check_heads(llm)
    two = asymmetric_memory(hw)
    n = units_first("heads", llm.heads, two, llm, work)

    def stored(heads: Real) -> Iterable[Real]:
        return footprint(llm, work.batch, work.context, of_each(heads))

    times = (seconds or step_seconds)(two, llm, work, n)
    return _tables(two, llm.heads, n, times, stored)


def step_seconds(two: Asymmetric, llm: LLM, work: Workload, n: Real) -> list[Real]:
    """Attention, qkv, and fc with the output head, of a decode step with n heads on HBM [s]."""
    return _in_three(sublayers(two, llm, step_of(work), of_each(n)))


def _in_three(spans: Mapping[str, Span]) -> list[Real]:
    """Seconds of attention, qkv, and fc with the output head [s]."""
    fc = serial(fc=spans["fc"], head=spans["head"])
    return [spans["attention"].seconds, spans["qkv"].seconds, fc.seconds]


def request_seconds(two: Asymmetric, llm: LLM, work: Workload, n: Real) -> list[Real]:
    """Sub-layers of a request whose prompts and steps have the same n heads on HBM [s]."""
    prompts = sublayers(two, llm, prompts_of(work), of_each(n))
    return _with_steps(two, llm, work, n, _in_three(prompts))


def moved_seconds(
    order: Order, two: Asymmetric, llm: LLM, work: Workload, n: Real
) -> list[Real]:
    """Sub-layers of a request whose prompts have a mapping of their own, and steps n heads [s].

    The prompts' time does not depend on n, what then moves between the sides does. Infinite where
    the sides do not hold that mapping.

    Args:
        order: as `prompt_heads` takes it.
        two, llm, work: what runs where.
        n: heads on HBM in decode [1].
    """
    heads = prompt_heads(two, llm, work, order)
    changes = [heads._replace(**{name: n}) for name in SUBLAYERS]
    moves = [change_mapping(two, llm, work, heads, after).seconds for after in changes]
    all_prompts = serial(**sublayers(two, llm, prompts_of(work), heads)).seconds
    moves[0] = moves[0] + np.where(holds(two, llm, work, heads), all_prompts, np.inf)
    return _with_steps(two, llm, work, n, moves)


def _with_steps(
    two: Asymmetric, llm: LLM, work: Workload, n: Real, prompts: Sequence[Real]
) -> list[Real]:
    """Sub-layers of all steps and of the prompts [s].

    An answer of one token has no step. It asks for the mapping of the step that would follow, as
    the paper's figures do.
    """
    steps = work.output - 1
    step = step_seconds(two, llm, work, n)
    each = zip(step, prompts, strict=True)
    return [
        np.where(steps > 0, steps * of_step + of_prompts, of_step)
        for of_step, of_prompts in each
    ]


Tabulate = Callable[[Machine, LLM, Workload], HeadTables]
OF_REQUEST: tuple[Tabulate, ...] = (
    partial(head_tables, seconds=request_seconds),
    *(partial(head_tables, seconds=partial(moved_seconds, order)) for order in ORDERS),
)
"""Tables of a whole request, one for each mapping of prompts.

Prompts take the fastest of these (`mapped_step.fastest_heads`), so the least that any of the
tables gives is the least of the request.
"""


def layer_tables(hw: Machine, llm: LLM, work: Workload) -> HeadTables:
    """Tabulate a request whose sub-layers are mapped undivided: n of L layers on HBM (fig. 5a).

    While one side works, the other waits.
    """
    check_heads(llm)
    two = asymmetric_memory(hw)
    n = units_first("layers", llm.layers, two, llm, work)
    none = np.zeros(np.shape(llm.heads))

    on_hbm = request_seconds(two, llm, work, llm.heads)
    on_lpddr = request_seconds(two, llm, work, none)
    # where layers take as long on either side, equal sums have the fewest of them on HBM
    in_turn = [
        lpddr + n / llm.layers * (hbm - lpddr)
        for hbm, lpddr in zip(on_hbm, on_lpddr, strict=True)
    ]
    whole = footprint(llm, work.batch, work.context, of_each(llm.heads))

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
    axes = max(map(len, shapes(two, llm, work)), default=0)
    n = np.arange(most + 1)
    return n.reshape(n.shape + (1,) * axes)


def units_last(tables: Iterable[Real]) -> Three:
    """Move the units' axis of attention, qkv and fc last, where solvers look for it."""
    numbers = (np.asarray(table, float) for table in tables)
    attention, qkv, fc = (np.rollaxis(table, 0, table.ndim) for table in numbers)
    return attention, qkv, fc

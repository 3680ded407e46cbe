"""The columns of a box of design points, each only as large as the axes it depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.capacity import STATUSES, Fits
from nearkv.costmodel.model.metrics import COLUMNS, Answer, without_idle_power
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.sweeps.evaluate.notes import PARTLY, Names, lengthened, note
from nearkv.sweeps.evaluate.requested import TIMES, footprint, is_usual, on_request
from nearkv.sweeps.evaluate.times import Cell, Offered, Times, Where
from nearkv.sweeps.study.grid import Box
from nearkv.sweeps.study.study import Block

Shown = Mapping[str, tuple[str, NDArray[np.float64]]]
"""Axis -> the column that shows it, and its values there."""


@dataclass(frozen=True)
class Points:
    """Values of the axes of some design points, of shapes that broadcast.

    Attributes:
        mesh: in SI, by axis.
        shown: as columns show them, by column, in the same order.
    """

    mesh: Mapping[str, NDArray[np.float64]]
    shown: Mapping[str, NDArray[np.float64]]


Values = NDArray[np.generic]
Shape = tuple[int, ...]


def cells(
    block: Block,
    box: Box,
    wanted: Collection[str] = (),
    extra: Collection[str] = (),
    resolved: Resolved | None = None,
) -> dict[str, Cell]:
    """The columns of a box, each only as large as the axes it depends on.

    Args:
        block, box: the design points.
        wanted: names of the columns to compute; where empty, all but those on request.
        extra: of `ON_REQUEST`: what to compute besides.
        resolved: what the system answered there, where the caller has asked it already.
    """
    mesh = block.grid.mesh(box)
    shown = block.display_grid.mesh(box)
    points = Points(mesh, shown)
    asked = on_request([*wanted, *extra])
    offered, resolved = _offered(block, points, asked, resolved)
    if block.method == "simulate":
        from nearkv.sweeps.evaluate.simulated_columns import simulated

        for name, value in simulated(block, box, resolved).items():
            offered[name] = partial(np.asarray, value)
    if block.band is not None:
        from nearkv.sweeps.uncertainty.bands import band_columns

        offered |= band_columns(block, box, resolved.estimate, wanted)
        earlier = dict(offered)
        offered["note"] = partial(_note_of_draws, earlier)
    return _chosen(offered, wanted, extra)


def cells_at(
    block: Block, points: Points, wanted: Collection[str] = (), extra: Collection[str] = ()
) -> dict[str, Cell]:
    """The same of any values of the axes, of a block that is neither simulated nor has bands."""
    offered, _ = _offered(block, points, on_request([*wanted, *extra]))
    return _chosen(offered, wanted, extra)


def _chosen(
    offered: Offered, wanted: Collection[str], extra: Collection[str]
) -> dict[str, Cell]:
    chosen: dict[str, Cell] = {}
    for name, compute in offered.items():
        if name in wanted if wanted else is_usual(name, extra):
            chosen[name] = compute()
    return chosen


def at(cell: Cell, shape: Shape, rows: NDArray[np.int64]) -> Values:
    """A column at some rows of a box, by their place in row-major order."""
    if isinstance(cell, Names):
        places = np.broadcast_to(cell.places, shape).ravel()[rows]
        return np.array(cell.names)[places]
    return np.broadcast_to(cell, shape).ravel()[rows]


def spread(cell: Cell, shape: Shape) -> Values:
    """A column at all rows of a box; of one value everywhere, a view of that."""
    if not isinstance(cell, Names):
        return _repeated(np.asarray(cell), shape)
    text = np.array(cell.names)
    places = cell.places
    if np.min(places) == np.max(places):
        return _repeated(text[places.ravel()[:1]], shape)
    # copied as bytes, which is faster than as text
    block = f"V{text.itemsize}"
    packed = text.view(block)[places]
    rows = _repeated(packed, shape)
    return rows.view(text.dtype)


def _repeated(values: Values, shape: Shape) -> Values:
    if values.size > 1:
        return np.broadcast_to(values, shape).ravel()
    return np.broadcast_to(values.ravel(), math.prod(shape))


def _offered(
    block: Block,
    points: Points,
    asked: Collection[str],
    resolved: Resolved | None = None,
) -> tuple[Offered, Resolved]:
    """All columns, with those of `ON_REQUEST` that are asked for, and their estimate."""
    mesh = points.mesh
    hw, llm, work, requested = block.at(mesh)
    if resolved is None:
        resolved = resolve_knobs(block.system, hw, llm, work, requested)
    if block.method == "simulate":
        from nearkv.sweeps.evaluate.simulated_columns import simulable

        resolved = simulable(llm, resolved)
    estimate = resolved.estimate
    shown = dict(zip(mesh, points.shown.items(), strict=True))
    models = mesh["model"].astype(int)
    ok = estimate.fits.ok
    everywhere = bool(np.all(ok))
    offered: Offered = {
        "system": partial(_name, block.system.name),
        "model": partial(Names, models, block.grid.axes[0].labels),
        "platform": partial(_name, block.platform.name),
        **_swapped(block),
        **_question(block, shown, work),
    }
    for name in block.system.knobs:
        column, compute = _knob(block, shown, resolved, name)
        offered[column] = compute
    offered |= _FITTING if everywhere else _shortage(estimate.fits)
    where: Where = True if everywhere else ok
    answer = Answer(estimate, hw, block.system.owns)
    notes = {**estimate.notes, **block.overridden(models), **without_idle_power(answer)}
    offered["note"] = partial(note, notes)
    for name, metric in COLUMNS.items():
        offered[name] = partial(_where, where, metric.compute, answer)
    for name, value in estimate.also.items():
        offered[name] = partial(_where, where, _cell, value)
    if block.method != "simulate":
        times = Times(estimate, where)
        offered |= times.most() | (times.by_resource() if TIMES in asked else {})
    return offered | footprint(llm, work), resolved


def _note_of_draws(earlier: Offered) -> Names:
    """A note that also says where the design fits in some of the draws alone."""
    before = earlier["note"]()
    assert isinstance(before, Names)
    fits_share = earlier["fits_share"]()
    share = np.asarray(fits_share)
    never = share == 0
    always = share == 1
    partly = ~(never | always)
    return lengthened(before, PARTLY, partly)


def _shortage(fits: Fits) -> Offered:
    """Whether there is an answer, and why not."""
    return {
        "status": lambda: Names(fits.status, STATUSES),
        "reason": lambda: Names(fits.reason, fits.reasons),
        "short_of": lambda: Names(fits.limiting, ("", *fits.tiers)),
        "short_gb": lambda: fits.short_bytes / 1e9,
    }


def _swapped(block: Block) -> Offered:
    """A column for every role whose part is swapped: the name of its part."""
    parts = block.platform.part_columns
    return {column: partial(_name, name) for column, name in parts.items()}


def _question(block: Block, shown: Shown, work: Workload) -> Offered:
    """Columns of the axes, those of models and knobs apart."""
    apart = ("model", *block.system.knobs)
    axes = {column: value for name, (column, value) in shown.items() if name not in apart}
    if not block.traces:
        return {name: partial(_cell, value) for name, value in axes.items()}
    places = axes.pop("trace").astype(int)
    names = tuple(trace.name for trace in block.traces)
    columns: Offered = {
        "trace": partial(Names, places, names),
        "batch": partial(_cell, work.batch),
        "context_tok": partial(_cell, work.prompt),
        "output_tokens": partial(_cell, work.output),
    }
    for name, value in axes.items():
        columns[name] = partial(_cell, value)
    columns["method"] = partial(_name, block.method)
    return columns


def _where(ok: Where, compute: Callable[[Any], Real], subject: Any) -> Real:
    value = compute(subject)
    if ok is True:
        return value
    return np.where(ok, value, np.nan)


def _cell(value: Any) -> Any:
    """A number as an array."""
    if hasattr(value, "astype"):
        return value
    return np.asarray(value)


def _name(name: str) -> Names:
    return Names(np.zeros((), int), (name,))


_FITTING: Offered = {
    "status": partial(_name, "ok"),
    "reason": partial(_name, ""),
    "short_of": partial(_name, ""),
    "short_gb": lambda: 0.0,
}
"""The columns of `_shortage` where every design point has an answer."""


def _knob(
    block: Block, shown: Shown, resolved: Resolved, name: str
) -> tuple[str, Callable[[], Cell]]:
    """The column of a knob, and its value; of one that stands for a hardware number, that."""
    knob = block.system.knobs[name]
    if not knob.sets:
        value = _cell(resolved.knobs[name])
        if knob.choices:
            return name, lambda: Names(value.astype(int), knob.choices)
        return name, lambda: value
    key = block.platform.key(knob.sets)
    for axis, number in block.sets.items():
        if number == knob.sets:
            return name + key.suffix, partial(_cell, shown[axis][1])
    role, _, own = knob.sets.partition(".")
    part = block.platform.roles[role]
    stated = key.shown(part.numbers[own].si)
    return name + key.suffix, lambda: stated

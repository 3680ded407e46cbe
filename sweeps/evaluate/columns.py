"""The columns of design points: what is computed at them, and only as large as their axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.capacity import STATUSES, Fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.metrics import COLUMNS, Answer, without_idle_power
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.sweeps.study.grid import Box, shape_of
from nearkv.sweeps.study.study import Block
from nearkv.sweeps.tables.table import Columns

BOTTLENECK = "bottleneck"
"""What names of columns of the resource with most of the time begin with."""
TIMES = "time_s:"
"""What names of columns of seconds by resource begin with."""
FOOTPRINT = "footprint_gb:"
"""What names of columns of what a model keeps in memory begin with."""
ON_REQUEST = (BOTTLENECK, TIMES, FOOTPRINT)
"""Columns that begin so take longer than others, or say what no system decides."""


def on_request(names: Collection[str]) -> tuple[str, ...]:
    """Which of `ON_REQUEST` some names of columns ask for.

    >>> on_request(["step_ms", "time_s:csd.flash"])
    ('time_s:',)
    """
    if not names:
        return ()
    named = "\n".join(["", *names])
    return tuple(start for start in ON_REQUEST if f"\n{start}" in named)


def is_usual(name: str, extra: Collection[str]) -> bool:
    """Whether a table has a column where none is named, with what of `ON_REQUEST` is asked for."""
    if name.startswith(tuple(extra)):
        return True
    return not name.startswith(ON_REQUEST)


def footprint(llm: LLM, work: Workload) -> dict[str, Callable[[], Real]]:
    """What a batch needs on any system: weights, and K and V at the end [GB]."""
    return {
        f"{FOOTPRINT}weights": lambda: np.divide(llm.weight_bytes, 1e9),
        f"{FOOTPRINT}kv": lambda: np.divide(
            llm.kv_cache_bytes(work.batch, work.final), 1e9
        ),
    }


PARTLY = "fits in some draws alone (fits_share), and the band is of these"
"""The note of a design that does not fit in every draw of its band."""


@dataclass(frozen=True)
class Names:
    """Text at every design point, as places in a list of names.

    Attributes:
        places: broadcast over design points.
        names: the text of each place.
    """

    places: NDArray[np.intp]
    names: tuple[str, ...]


def note(notes: Mapping[str, NDArray[np.bool_]]) -> Names:
    """Sentences that hold at each design point, semicolons between them."""
    names = Names(np.zeros((), int), ("",))
    for sentence, where in notes.items():
        names = lengthened(names, sentence, where)
    return names


def lengthened(before: Names, sentence: str, where: NDArray[np.bool_]) -> Names:
    """Text with a sentence more at the points where it holds."""
    longer = [f"{text}; {sentence}" if text else sentence for text in before.names]
    shift = np.where(where, len(longer), 0)
    return Names(before.places + shift, (*before.names, *longer))


Cell = Real | NDArray[np.bool_] | Names
"""A column of a box of design points before it is spread over them: it broadcasts to the box."""
Where = Literal[True] | NDArray[np.bool_]
"""Where there is an answer; True is everywhere, and saves a look at every point."""
Offered = dict[str, Callable[[], Cell]]
"""Columns by name, each computed when called."""


@dataclass(frozen=True)
class Times:
    """Seconds of requests by the resource they are attributed to, computed once."""

    estimate: Estimate
    where: Where

    def most(self) -> Offered:
        """The resource with most of the time, and its share."""
        return {BOTTLENECK: self._bottleneck, f"{BOTTLENECK}_share": self._share}

    def by_resource(self) -> Offered:
        """Seconds of each resource."""
        names = sorted(self.estimate.total.resources)
        return {f"{TIMES}{name}": partial(self._seconds, name) for name in names}

    @cached_property
    def _attribution(self) -> dict[str, Real]:
        return self.estimate.total.attribution()

    @cached_property
    def _stacked(self) -> NDArray[np.float64]:
        return np.stack(np.broadcast_arrays(*self._attribution.values()))

    def _bottleneck(self) -> Names:
        most = np.argmax(self._stacked, axis=0) + 1
        places = np.where(self.where, most, 0)
        return Names(places, ("", *self._attribution))

    def _share(self) -> Real:
        most = np.max(self._stacked, axis=0)
        return np.where(self.where, most / self.estimate.total.seconds, np.nan)

    def _seconds(self, resource: str) -> Real:
        return np.where(self.where, self._attribution.get(resource, 0.0), np.nan)


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


def columns(
    block: Block,
    box: Box,
    wanted: Collection[str] = (),
    extra: Collection[str] = (),
    resolved: Resolved | None = None,
) -> Columns:
    """Evaluate one box of a block into columns, in row-major order of its grid.

    Numbers of design points without an answer are NaN; `status`, `reason`, `short_of` and
    `short_gb` say why.

    Args:
        block, box: the design points.
        wanted: columns to compute; where empty, all but those on request.
        extra: of `ON_REQUEST`: what to compute besides.
        resolved: what the system answered there, where the caller has asked it already.
    """
    shape = shape_of(box)
    computed = cells(block, box, wanted, extra, resolved)
    return {name: spread(cell, shape) for name, cell in computed.items()}


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
    """Cells at any values of the axes, of a block that is neither simulated nor has bands."""
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
    }
    for column, part in block.platform.part_columns.items():
        offered[column] = partial(_name, part)
    offered |= _question(block, shown, work)
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


def _question(block: Block, shown: Shown, work: Workload) -> Offered:
    """Columns of the axes, those of models and knobs apart."""
    columns: Offered = {}
    if block.traces:
        places = shown["trace"][1].astype(int)
        names = tuple(trace.name for trace in block.traces)
        columns["trace"] = partial(Names, places, names)
        columns["batch"] = partial(_cell, work.batch)
        columns["context_tok"] = partial(_cell, work.prompt)
        columns["output_tokens"] = partial(_cell, work.output)
    for name, (column, value) in shown.items():
        if name not in ("model", "trace", *block.system.knobs):
            columns[column] = partial(_cell, value)
    if block.traces:
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
    "short_gb": partial(float),
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
            return name, partial(Names, value.astype(int), knob.choices)
        return name, partial(_cell, value)
    key = block.platform.key(knob.sets)
    for axis, number in block.sets.items():
        if number == knob.sets:
            return name + key.suffix, partial(_cell, shown[axis][1])
    role, _, own = knob.sets.partition(".")
    part = block.platform.roles[role]
    stated = key.shown(part.numbers[own].si)
    return name + key.suffix, partial(_cell, stated)

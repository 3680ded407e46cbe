"""Evaluate a study and lay its results out as columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.capacity import STATUSES, Fits
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.metrics import COLUMNS, Answer
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.sweeps.evaluation.simulated_columns import simulated
from nearkv.sweeps.runtime.memory import keep_freed_memory
from nearkv.sweeps.space.grid import Box
from nearkv.sweeps.space.study import Block, Study, blocks

Columns = dict[str, NDArray[np.generic]]
"""Column name -> one value a design point, all of one length."""

Told = Mapping[str, tuple[str, NDArray[np.float64]]]
"""Axis -> the column it is, and its values there."""

POINTS_AT_ONCE = 1 << 17
"""Design points evaluated at once: a call of NumPy costs little beside its work, and a column stays in cache."""
MOST_ROWS = 2_000_000
"""More rows than this do not belong in one table in memory."""


@dataclass(frozen=True)
class Names:
    """Text at every design point, as places in a list of names.

    Attributes:
        places: broadcast over design points.
        names: what stands at each place.
    """

    places: NDArray[np.intp]
    names: tuple[str, ...]


Cell = Real | NDArray[np.bool_] | Names
"""A column of a box of design points before it is spread over them: it broadcasts to the box."""


def columns(block: Block, box: Box, wanted: Collection[str] = ()) -> Columns:
    """Evaluate one box of a block into columns, in row-major order of its grid.

    Numbers of design points that do not fit are NaN; `reason`, `short_of` and `short_gb` say why.

    Args:
        block, box: the design points.
        wanted: columns to compute; all where none is named.
    """
    shape = tuple(piece.stop - piece.start for piece in box)
    return {name: _spread(cell, shape) for name, cell in cells(block, box, wanted).items()}


def _spread(cell: Cell, shape: tuple[int, ...]) -> NDArray[np.generic]:
    if isinstance(cell, Names):
        return np.broadcast_to(np.array(cell.names)[cell.places], shape).ravel()
    return np.broadcast_to(cell, shape).ravel()


def at(cell: Cell, shape: tuple[int, ...], rows: NDArray[np.int64]) -> NDArray[np.generic]:
    """A column at some rows of a box, by their place in row-major order."""
    if isinstance(cell, Names):
        return np.array(cell.names)[np.broadcast_to(cell.places, shape).ravel()[rows]]
    return np.broadcast_to(cell, shape).ravel()[rows]


def cells(block: Block, box: Box, wanted: Collection[str] = ()) -> dict[str, Cell]:
    """The columns of a box, each only as large as the axes it depends on; see `columns`."""
    hw, llm, work, requested = block.inputs(box)
    solved = resolve_knobs(block.system, hw, llm, work, requested)
    offered = _offered(block, box, solved, hw, work)
    return {name: make() for name, make in offered.items() if not wanted or name in wanted}


def _offered(
    block: Block, box: Box, solved: Resolved, hw: Machine, work: Workload
) -> dict[str, Callable[[], Cell]]:
    """Every column by name, computed when called."""
    estimate, mesh = solved.estimate, block.grid.mesh(box)
    told = dict(zip(mesh, block.display_grid.mesh(box).items(), strict=True))
    ok, every = estimate.fits.ok, bool(np.all(estimate.fits.ok))
    answer = Answer(estimate, hw, block.system.owns)
    offered: dict[str, Callable[[], Cell]] = {
        "system": partial(_name, block.system.name),
        "model": lambda: Names(mesh["model"].astype(int), block.grid.axes[0].labels),
        "platform": partial(_name, block.platform.name),
        **_asked(block, told, work),
        **dict(_knob(block, told, solved, name) for name in block.system.knobs),
        **(_FITTING if every else _shortage(estimate.fits)),
        "note": partial(_note, estimate),
    }
    for name, column in COLUMNS.items():
        offered[name] = partial(_where, True if every else ok, column.compute, answer)
    for name, value in estimate.also.items():
        offered[name] = partial(_where, True if every else ok, np.asarray, value)
    if block.method == "simulate":
        offered |= {
            name: partial(np.asarray, value) for name, value in simulated(block, box).items()
        }
    return offered


def _shortage(fits: Fits) -> dict[str, Callable[[], Cell]]:
    """Whether there is an answer, and why not."""
    return {
        "status": lambda: Names(fits.status, STATUSES),
        "reason": lambda: Names(fits.reason, fits.reasons),
        "short_of": lambda: Names(fits.limiting, ("", *fits.tiers)),
        "short_gb": lambda: fits.short_bytes / 1e9,
    }


def _note(estimate: Estimate) -> Names:
    """Sentences that hold at each design point, semicolons between them."""
    place, sentences = np.zeros((), int), [""]
    for sentence, where in estimate.notes.items():
        sentences += [f"{before}; {sentence}" if before else sentence for before in sentences]
        place = place + np.where(where, len(sentences) // 2, 0)
    return Names(place, tuple(sentences))


def _asked(block: Block, told: Told, work: Workload) -> dict[str, Callable[[], Cell]]:
    apart = ("model", *block.system.knobs)
    asked = {column: value for name, (column, value) in told.items() if name not in apart}
    if not block.traces:
        return {name: partial(np.asarray, value) for name, value in asked.items()}
    trace = Names(asked.pop("trace").astype(int), tuple(trace.name for trace in block.traces))
    lengths = {"batch": work.batch, "context_tok": work.prompt, "output_tok": work.output}
    numbers: dict[str, Callable[[], Cell]] = {
        name: partial(np.asarray, v) for name, v in (lengths | asked).items()
    }
    return {"trace": lambda: trace, **numbers, "method": partial(_name, block.method)}


def _where(ok: NDArray[np.bool_] | Literal[True], compute: Callable[[Any], Real], of: Any) -> Real:
    value = compute(of)
    return value if ok is True else np.where(ok, value, np.nan)


def _name(name: str) -> Names:
    return Names(np.zeros((), int), (name,))


_FITTING: dict[str, Callable[[], Cell]] = {
    "status": partial(_name, "ok"),
    "reason": partial(_name, ""),
    "short_of": partial(_name, ""),
    "short_gb": lambda: 0.0,
}
"""The columns of `_shortage` where every design point has an answer."""


def _knob(block: Block, told: Told, solved: Resolved, name: str) -> tuple[str, Callable[[], Cell]]:
    """The column of a knob, and what it was settled to; of one that stands for a hardware number, that number."""
    knob = block.system.knobs[name]
    if not knob.sets:
        value = solved.knobs[name]
        return (
            name,
            lambda: Names(np.asarray(value).astype(int), knob.choices) if knob.choices else value,
        )
    key = block.platform.key(knob.sets)
    address = next((axis for axis, number in block.sets.items() if number == knob.sets), "")
    role, _, own = knob.sets.partition(".")
    stated: Real = (
        told[address][1] if address else key.shown(block.platform.roles[role].numbers[own].si)
    )
    return name + key.suffix, lambda: stated


def evaluate(laid: list[Block]) -> list[Columns]:
    """Evaluate blocks in memory, one table each.

    Raises:
        InputError: too many rows for a table.
    """
    size = sum(block.grid.size for block in laid)
    if size > MOST_ROWS:
        raise InputError(
            f"{size:,} design points are too many for one table (at most {MOST_ROWS:,}); "
            "write them to a file with `nearkv sweep ... -o FILE.csv`"
        )
    keep_freed_memory()
    return [
        stack([columns(block, box) for box in block.grid.boxes(POINTS_AT_ONCE)]) for block in laid
    ]


def table(study: Study) -> Columns:
    """Evaluate a whole study into one table.

    Raises:
        InputError: the study cannot be evaluated, or has too many rows for one table.
    """
    return stack(evaluate(blocks(study)))


def stack(tables: list[Columns]) -> Columns:
    """Put tables below one another; a column some lack is blank (NaN or empty) there."""
    order = merge(tables)
    kinds = {name: next(t[name].dtype for t in tables if name in t) for name in order}
    return {name: np.concatenate([_filled(t, name, kinds[name]) for t in tables]) for name in order}


def merge(tables: Sequence[Mapping[str, object]]) -> list[str]:
    """Names of all columns. Keep every table's own order: a name new to the others goes behind the one before it."""
    order: list[str] = []
    for one in tables:
        last = -1
        for name in one:
            if name in order:
                last = order.index(name)
            else:
                last += 1
                order.insert(last, name)
    return order


def _filled(one: Columns, name: str, kind: np.dtype[np.generic]) -> NDArray[np.generic]:
    if name in one:
        return one[name]
    rows = len(one["system"])
    return np.full(rows, np.nan) if kind.kind == "f" else np.full(rows, "", dtype=kind)


def compare(study: Study) -> Columns:
    """Evaluate a study and add speed-ups against its first system at the same point.

    Returns:
        All columns and `speedup` (decode_tok_s over the first system's) and `total_speedup`
        (throughput_tok_s over the first system's); NaN where either does not fit.

    Raises:
        InputError: the first system does not have exactly one row a point.
    """
    laid = blocks(study)
    tables = evaluate(laid)
    shared = study.workload_axes + len(study.sets)
    points = math.prod(laid[0].grid.shape[:shared])
    if (
        len(tables[0]["system"]) != points
        or sum(block.system.name == study.systems[0] for block in laid) > 1
    ):
        raise InputError(
            f"{study.systems[0]} is what the others are compared with; give its knobs and platform one value each"
        )
    for name, rate in (("speedup", "decode_tok_s"), ("total_speedup", "throughput_tok_s")):
        reference = tables[0][rate].astype(float)[:, np.newaxis]
        for one in tables:
            one[name] = (one[rate].astype(float).reshape(points, -1) / reference).ravel()
    return stack(tables)


def chunks(laid: list[Block]) -> Iterator[Columns]:
    """Evaluate blocks piece by piece, in order, all with the same columns."""
    empty = stack([columns(block, tuple(slice(0, 1) for _ in block.grid.axes)) for block in laid])
    keep_freed_memory()
    none = {name: values[:0] for name, values in empty.items()}
    for block in laid:
        for box in block.grid.boxes(POINTS_AT_ONCE):
            yield stack([none, columns(block, box)])

"""Evaluate design points and whole studies into columns.

A *cell* is a column before it is spread over the design points: a number that depends on the
context alone is computed once for each context, however many other axes there are. `cells` of a box
of a grid, `spread` over it, are its `columns`; each has a form `..._at` for other points.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    Integers,
    Numbers,
    Real,
    Span,
    first_longest,
    quotient,
)
from nearkv.costmodel.mechanisms.serving.arrivals import FULL, PUT_BACK
from nearkv.costmodel.model.estimate import STATUSES, Estimate, Fits
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated, without_idle_power
from nearkv.costmodel.model.registry import Knob
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import LackingError, Resolved, resolve_knobs
from nearkv.sweeps.evaluate.freed_memory import keep_freed_memory
from nearkv.sweeps.evaluate.ground import GROUND, ground
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Grid, Mesh, Slices, shape_of
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import EVERYWHERE, Categories, CellArray, Columns

BOTTLENECK, STEP_BOTTLENECK = "bottleneck", "step_bottleneck"
"""Prefixes of columns of the resource with most of the time: of a whole request, of a step."""
TIME_PREFIX = "time_s:"
"""Prefix of columns of seconds by resource."""
FOOTPRINT = "footprint_gb:"
"""Prefix of columns of what a model keeps in memory."""
FIGURE_PREFIXES = ("hbm_", "rank_pu_area_pct", "pu_power_pct", "rack_units", "parts")
"""Prefixes of columns that one figure, or one question, asks for."""
ON_REQUEST = (
    BOTTLENECK,
    STEP_BOTTLENECK,
    TIME_PREFIX,
    FOOTPRINT,
    *GROUND,
    *FIGURE_PREFIXES,
)
"""Columns that begin so take longer than others, or say what few decide by."""
PARTLY = "fits in some draws alone (fits_share), and the band is of these"
"""The note of a design that does not fit in every draw of its band."""


def on_request(names: Collection[str]) -> tuple[str, ...]:
    """Members of `ON_REQUEST` that some names of columns ask for.

    >>> on_request(["step_ms", "time_s:csd.flash"])
    ('time_s:',)
    """
    return tuple(
        start for start in ON_REQUEST if any(name.startswith(start) for name in names)
    )


def is_asked(name: str, wanted: Collection[str], extra: Collection[str] = ()) -> bool:
    """True if a column is asked for; where none is named, all are but those on request.

    Args:
        name: of the column.
        wanted: names of columns.
        extra: of `ON_REQUEST`: what is asked for where none is named.
    """
    if wanted:
        return name in wanted
    return name.startswith(tuple(extra)) or not name.startswith(ON_REQUEST)


Cell = Real | Booleans | Categories
"""A column of a box of design points before it is spread over them: it broadcasts to the box."""
Shape = tuple[int, ...]


def noted(notes: Mapping[str, Booleans], before: Categories | None = None) -> Categories:
    """The sentences that hold at each design point, semicolons between them.

    Args:
        notes: sentence -> where it holds.
        before: text that they continue.
    """
    text = before or Categories(EVERYWHERE, ("",))
    for sentence, where in notes.items():
        # each text so far comes a second time, with the sentence behind it
        longer = [f"{name}; {sentence}" if name else sentence for name in text.names]
        shift = np.where(where, len(text.names), 0)
        text = Categories(text.places + shift, (*text.names, *longer))
    return text


def columns(
    block: Block,
    box: Slices,
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
    answers = cells(block, box, wanted, extra, resolved)
    return {name: spread(cell, shape_of(box)) for name, cell in answers.items()}


def cells(
    block: Block,
    box: Slices,
    wanted: Collection[str] = (),
    extra: Collection[str] = (),
    resolved: Resolved | None = None,
) -> dict[str, Cell]:
    """The columns of a box, each only as large as the axes it depends on; see `columns`."""
    mesh = block.grid.mesh(box)
    shown = block.display_grid.mesh(box)
    if block.is_closed_form:
        return cells_at(block, mesh, shown, wanted, extra, resolved)
    resolved = resolved or block.resolved(box)
    beside: dict[str, Numbers] = {}
    if block.method == "simulate":
        from nearkv.sweeps.simulate.play import simulated

        beside |= simulated(block, box, resolved)
    if block.band is not None:
        from nearkv.sweeps.uncertainty.sampled import FITS, band_columns

        beside |= band_columns(block, box, resolved.estimate, wanted)
    answers = cells_at(block, mesh, shown, wanted, extra, resolved)
    if block.band is not None and "note" in answers:
        before = answers["note"]
        assert isinstance(before, Categories)
        share = beside[FITS]
        answers["note"] = noted({PARTLY: (share > 0) & (share < 1)}, before)
    for name, values in beside.items():
        if is_asked(name, wanted, extra):
            answers[name] = values
    return answers


def cells_at(
    block: Block,
    mesh: Mesh,
    shown: Mesh,
    wanted: Collection[str] = (),
    extra: Collection[str] = (),
    resolved: Resolved | None = None,
    numbers: Mesh = NO_NUMBERS,
    read: set[str] | None = None,
) -> dict[str, Cell]:
    """Columns of the formulas at any values of the axes.

    Args:
        block: the design points; a simulation or a band is not computed here.
        mesh: values by axis [SI].
        shown: as columns show them, by column, in the same order.
        wanted, extra, resolved: as `columns` takes them.
        numbers, read: as `Block.at` takes them.
    """
    hw, llm, work, settings = block.at(mesh, numbers, read)
    if resolved is None:
        resolved = resolve_knobs(block.system, hw, llm, work, settings)
    estimate = resolved.estimate
    answer = Evaluated(estimate, hw, block.system.owns)
    special = {*on_request([*wanted, *extra])}
    answers = _point(block, mesh, shown, work, resolved.knobs)
    answers |= _shortage(estimate.fits)
    if is_asked("note", wanted):
        overridden = block.overridden(mesh["model"].astype(int))
        notes = {
            **estimate.notes,
            **overridden,
            **without_idle_power(answer),
            **block.of_siblings,
        }
        if block.method == "simulate":
            of_closed_form = (FULL, PUT_BACK)
            notes = {name: notes[name] for name in notes if name not in of_closed_form}
        answers["note"] = noted(notes)
    if not special.isdisjoint(GROUND):
        answers |= ground(answer, block, llm)
    answers |= _metrics(answer, wanted, extra)
    if block.method != "simulate":
        answers |= _times(estimate, special)
    if FOOTPRINT in special:
        answers |= _footprint(llm, work)
    for name in [*answers]:
        if not is_asked(name, wanted, extra):
            del answers[name]
    return answers


def _point(
    block: Block, mesh: Mesh, shown: Mesh, work: Workload, knobs: Mapping[str, Real]
) -> dict[str, Cell]:
    """Columns that identify a design point: system, model, machine, workload and its knobs."""
    cells: dict[str, Cell] = {
        "system": Categories(EVERYWHERE, (block.system.name,)),
        "model": Categories(mesh["model"].astype(int), block.grid.axes[0].labels),
        "platform": Categories(EVERYWHERE, (block.platform.name,)),
    }
    for column, part in block.platform.part_columns.items():
        cells[column] = Categories(EVERYWHERE, (part,))
    if block.traces:
        names = tuple(trace.name for trace in block.traces)
        cells["trace"] = Categories(mesh["trace"].astype(int), names)
        if work.arrivals is None:
            cells["batch"] = work.batch
        cells["context_tok"] = work.prompt
        cells["output_tokens"] = work.output
    for axis, (column, values) in zip(mesh, shown.items(), strict=True):
        if axis not in ("model", "trace", *block.system.knobs):
            cells[column] = values
    if block.traces or work.arrivals is not None:
        cells["method"] = Categories(EVERYWHERE, (block.method,))
    return cells | _knob_cells(block, mesh, shown, knobs)


def _knob_cells(
    block: Block, mesh: Mesh, shown: Mesh, knobs: Mapping[str, Real]
) -> dict[str, Cell]:
    """The knobs of a system, as columns; one without a value is left out.

    A machine that lacks what the system reads may lack the number that a knob stands for, too.
    """
    cells: dict[str, Cell] = {}
    axis_of = {number: axis for axis, number in block.sets.items()}
    for name, knob in block.system.knobs.items():
        if not knob.sets:
            if name in knobs:
                value = knobs[name]
                cells[name] = _named(knob, value, knobs) if knob.choices else value
            continue
        # a knob that stands for a hardware number shows that: as set, or as the platform states it
        role, _, own = knob.sets.partition(".")
        if role not in block.platform.roles:
            continue
        key = block.platform.key(knob.sets)
        column = name + key.suffix
        if knob.sets in axis_of:
            place = list(mesh).index(axis_of[knob.sets])
            cells[column] = list(shown.values())[place]
        elif stated := block.platform.roles[role].numbers.get(own):
            cells[column] = key.shown(stated.si)
    return cells


def _named(knob: Knob, value: Real, knobs: Mapping[str, Real]) -> Categories:
    """The value of a choice by its name; the first one beside an open share has another name."""
    place = np.asarray(value).astype(int)
    is_shared = (place == 0) & np.greater(knobs.get(knob.share, 0.0), 0)
    return Categories(np.where(is_shared, len(knob.choices), place), knob.names)


def without_answer(block: Block, reason: str) -> Columns:
    """The rows of a block whose machine lacks what its system reads: not modelled, and why."""
    box = block.grid.whole
    mesh, shown = block.grid.mesh(box), block.display_grid.mesh(box)
    _, _, work, settings = block.at(mesh)
    stated = {name: knob for name, knob in settings.items() if not isinstance(knob, str)}
    answers = _point(block, mesh, shown, work, stated)
    text = {"status": STATUSES[2], "reason": reason, "short_of": "", "note": ""}
    answers |= {name: Categories(EVERYWHERE, (value,)) for name, value in text.items()}
    return {name: spread(cell, shape_of(box)) for name, cell in answers.items()}


def _shortage(fits: Fits) -> dict[str, Cell]:
    """Status of each design point, and the reason where there is no answer."""
    if np.all(fits.ok):
        blank = Categories(EVERYWHERE, ("",))
        ok = Categories(EVERYWHERE, STATUSES[:1])
        return {"status": ok, "reason": blank, "short_of": blank, "short_gb": 0.0}
    return {
        "status": Categories(fits.status, STATUSES),
        "reason": Categories(fits.reason, fits.reasons),
        "short_of": Categories(fits.limiting, ("", *fits.tiers)),
        "short_gb": fits.short_bytes / 1e9,
    }


def _metrics(
    answer: Evaluated, wanted: Collection[str], extra: Collection[str]
) -> dict[str, Cell]:
    """The numbers that answer, NaN where there is none.

    They are most of the work, and a search for the best rows needs one or two of them.
    """
    estimate = answer.estimate
    values = dict(estimate.columns)
    if estimate.work.arrivals is not None:
        from nearkv.solvers.goodput import load_columns

        values |= load_columns(estimate)
    own = list(values)
    for name, metric in COLUMNS.items():
        if is_asked(name, wanted, extra):
            values[name] = metric.compute(answer)
    ok = estimate.fits.ok
    everywhere = np.all(ok)
    cells: dict[str, Cell] = {}
    for name in (*COLUMNS, *own):
        if name in values:
            cells[name] = values[name] if everywhere else np.where(ok, values[name], np.nan)
    return cells


def _times(estimate: Estimate, names: Collection[str]) -> dict[str, Cell]:
    """The resource with most of the time and its share, and the seconds attributed to each."""
    ok = estimate.fits.ok
    times: dict[str, Cell] = {}
    if STEP_BOTTLENECK in names:
        longest, _ = _longest(estimate.step, ok)
        times[STEP_BOTTLENECK] = longest
    if BOTTLENECK in names:
        longest, share = _longest(estimate.total, ok)
        times |= {BOTTLENECK: longest, f"{BOTTLENECK}_share": share}
    if TIME_PREFIX in names:
        seconds = estimate.total.attribution()
        for name in sorted(estimate.total.resources):
            own = seconds.get(name, 0.0)
            times[f"{TIME_PREFIX}{name}"] = np.where(ok, own, np.nan)
    return times


def _longest(span: Span, ok: Booleans) -> tuple[Categories, Numbers]:
    """The resource that most of a time is attributed to, where there is one, and its share [1]."""
    seconds = span.attribution()
    longest = first_longest(seconds.values()) + 1
    most = np.max(np.broadcast_arrays(*seconds.values()), axis=0)
    share = quotient(most, span.seconds)  # no step of one-token answers
    names = ("", *seconds)
    return Categories(np.where(ok, longest, 0), names), np.where(ok, share, np.nan)


def _footprint(llm: LLM, work: Workload) -> dict[str, Cell]:
    """Memory that a batch needs on any system: weights, and K and V at the end [GB]."""
    kv_bytes = llm.kv_cache_bytes(work.batch, work.final)
    return {
        f"{FOOTPRINT}weights": np.divide(llm.weight_bytes, 1e9),
        f"{FOOTPRINT}kv": np.divide(kv_bytes, 1e9),
    }


def spread_at(cell: Cell, shape: Shape, rows: Integers) -> CellArray:
    """A column at some rows of a box, by their place in row-major order."""
    if isinstance(cell, Categories):
        places = np.broadcast_to(cell.places, shape).ravel()[rows]
        return np.array(cell.names)[places]
    return np.broadcast_to(cell, shape).ravel()[rows]


def spread(cell: Cell, shape: Shape) -> CellArray:
    """A column at all rows of a box; of one value everywhere, a view of that."""
    dtype = None
    if isinstance(cell, Categories):
        text = np.array(cell.names)
        dtype = text.dtype
        places = cell.places
        if np.min(places) == np.max(places):
            places = places.ravel()[:1]
        # copied as bytes, which is faster than as text
        values = text.view(f"V{text.itemsize}")[places]
    else:
        values = np.asarray(cell)
    if values.size > 1:
        rows = np.broadcast_to(values, shape).ravel()
    else:
        rows = np.broadcast_to(values.ravel(), math.prod(shape))
    return rows if dtype is None else rows.view(dtype)


# --- whole studies --------------------------------------------------------------------------------

MOST_IN_MEMORY = 2_000_000
"""More rows than this do not belong in one table in memory."""


def columns_at(block: Block, places: Integers, extra: Collection[str] = ()) -> Columns:
    """Evaluate a list of points of a block that formulas alone answer.

    Args:
        block: the design points.
        places: of each point along each axis: (points, axes).
        extra: as in `columns`.
    """
    mesh = _at_places(block.grid, places)
    shown = _at_places(block.display_grid, places)
    computed = cells_at(block, mesh, shown, extra=extra)
    return {name: spread(cell, (len(places),)) for name, cell in computed.items()}


def _at_places(grid: Grid, places: Integers) -> dict[str, Numbers]:
    """Values of each axis at some points; one that all share is computed with once."""
    mesh: dict[str, Numbers] = {}
    for axis, indices in zip(grid.axes, places.T, strict=True):
        values = axis.values[indices]
        mesh[axis.name] = values[:1] if np.all(values == values[0]) else values
    return mesh


def evaluate(parts: Sequence[Block], extra: Collection[str] = ()) -> list[Columns]:
    """Evaluate blocks in memory, one table each.

    A machine that lacks what one of several systems reads has rows that are not modelled.

    Raises:
        InputError: too many rows for a table.
        LackingError: no system has a machine with all that it reads, or a band is asked for.
    """
    check_rows(parts)
    keep_freed_memory()
    tables: list[Columns] = []
    refusals: list[LackingError] = []
    for block in parts:
        try:
            pieces = block.grid.boxes(block.at_once)
            tables.append(stack([columns(block, box, extra=extra) for box in pieces]))
        except LackingError as refusal:
            refusals.append(refusal)
            tables.append(without_answer(block, refusal.reason))
            if len(refusals) == len(parts) or block.band is not None:
                raise
    return tables


def check_rows(parts: Sequence[Block]) -> None:
    """Refuse more design points than a table in memory holds.

    Raises:
        InputError: there are more.
    """
    size = sum(block.grid.size for block in parts)
    if size > MOST_IN_MEMORY:
        raise InputError(
            f"{size:,} design points are too many for one table (at most {MOST_IN_MEMORY:,}); "
            "write them to a file with `nearkv sweep ... -o FILE.csv`"
        )


def table(study: Study, extra: Collection[str] = ()) -> Columns:
    """Evaluate a study into one table.

    Raises:
        InputError: the study cannot be evaluated, or has too many rows for one table.
    """
    return stack(evaluate(blocks(study), extra))


def stack(tables: Sequence[Columns]) -> Columns:
    """Put tables below one another; a column that one lacks is blank (NaN or empty) there."""
    stacked: Columns = {}
    for name in merge(tables):
        kind = next(table[name].dtype for table in tables if name in table)
        stacked[name] = np.concatenate([_filled(table, name, kind) for table in tables])
    return stacked


def merge(tables: Sequence[Mapping[str, object]]) -> list[str]:
    """Names of all columns, each table's in its own order.

    A name that is new to the others goes behind the one before it.
    """
    order: list[str] = []
    for table in tables:
        last = -1
        for name in table:
            if name in order:
                last = order.index(name)
            else:
                last += 1
                order.insert(last, name)
    return order


def _filled(table: Columns, name: str, kind: np.dtype[np.generic]) -> CellArray:
    if name in table:
        return table[name]
    rows = len(table["system"])
    if kind.kind == "f":
        return np.full(rows, np.nan)
    return np.full(rows, "", dtype=kind)

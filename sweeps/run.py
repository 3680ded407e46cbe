"""Evaluate a study and lay its results out as columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from costmodel.metrics import COLUMNS, Answer
from costmodel.span import Real
from costmodel.workload import Workload
from hardware.errors import InputError
from solvers.knobs import Solved, settle
from sweeps.grid import Box
from sweeps.played import simulated
from sweeps.study import Block, Study, blocks

Columns = dict[str, NDArray[np.generic]]
"""Column name -> one value a design point, all of one length."""

CHUNK = 1 << 16
"""Design points evaluated at once; a column of this many numbers stays in cache."""
MOST_ROWS = 2_000_000
"""More rows than this do not belong in one table in memory."""


def columns(block: Block, box: Box, wanted: Iterable[str] = COLUMNS) -> Columns:
    """Evaluate one box of a block into columns, in row-major order of its grid.

    Numbers of design points that do not fit are NaN; `limited_by` and `short_gb` say why.
    """
    hw, llm, work, said = block.inputs(box)
    solved = settle(block.system, hw, llm, work, said)
    estimate = solved.estimate
    shape = tuple(piece.stop - piece.start for piece in box)
    ok = estimate.fits.ok
    found: dict[str, Real | NDArray[np.generic]] = {
        "system": np.array(block.system.name),
        "model": np.array(block.grid.axes[0].labels)[block.grid.mesh(box)["model"].astype(int)],
        "platform": np.array(block.platform.name),
        **_asked(block, box, work),
        **{name: _said(block, name, value) for name, value in _knobs(block, box, solved).items()},
        "ok": ok,
        "limited_by": estimate.fits.limited_by,
        "short_gb": estimate.fits.short_bytes / 1e9,
    }
    answer = Answer(estimate, hw, block.system.owns)
    for name in wanted:
        found[name] = np.where(ok, COLUMNS[name].compute(answer), np.nan)
    for name, value in estimate.also.items():
        found[name] = np.where(ok, value, np.nan)
    if block.method == "simulate":
        found |= simulated(block, box)
    return {name: np.broadcast_to(value, shape).ravel() for name, value in found.items()}


def _asked(block: Block, box: Box, work: Workload) -> dict[str, Real | NDArray[np.generic]]:
    mesh: dict[str, Real | NDArray[np.generic]] = {
        k: v for k, v in block.grid.mesh(box).items() if k != "model" and k not in block.system.knobs
    }
    if not block.traces:
        return mesh
    names = np.array([trace.name for trace in block.traces])[np.asarray(mesh.pop("trace")).astype(int)]
    lengths = {"batch": work.batch, "context_tok": work.prompt, "output_tok": work.output}
    return {"trace": names, **lengths, **mesh, "method": np.array(block.method)}


def _knobs(block: Block, box: Box, solved: Solved) -> Mapping[str, Real]:
    mesh = block.grid.mesh(box)
    machine = block.platform.machine()
    settled: dict[str, Real] = {}
    for name, knob in block.system.knobs.items():
        role, _, key = knob.sets.partition(".")
        address = next((axis for axis, number in block.sets.items() if number == knob.sets), "")
        settled[name] = (
            solved.knobs[name] if not knob.sets else mesh[address] if address else getattr(machine[role], key)
        )
    return settled


def _said(block: Block, name: str, value: Real) -> Real | NDArray[np.generic]:
    choices = block.system.knobs[name].choices
    return np.array(choices)[np.asarray(value).astype(int)] if choices else value


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
    return [stack([columns(block, box) for box in block.grid.boxes(CHUNK)]) for block in laid]


def table(study: Study) -> Columns:
    """Evaluate a whole study into one table.

    Raises:
        InputError: the study cannot be evaluated, or has too many rows for one table.
    """
    return stack(evaluate(blocks(study)))


def stack(tables: list[Columns]) -> Columns:
    """Put tables below one another; a column some lack is blank (NaN or empty) there."""
    order = _merge(tables)
    kinds = {name: next(t[name].dtype for t in tables if name in t) for name in order}
    return {name: np.concatenate([_filled(t, name, kinds[name]) for t in tables]) for name in order}


def _merge(tables: list[Columns]) -> list[str]:
    """Keep every table's own order: a name new to the others goes behind the one before it."""
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
    if len(tables[0]["system"]) != points or sum(block.system.name == study.systems[0] for block in laid) > 1:
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
    none = {name: values[:0] for name, values in empty.items()}
    for block in laid:
        for box in block.grid.boxes(CHUNK):
            yield stack([none, columns(block, box)])

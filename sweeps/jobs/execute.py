"""Run a sweep: into a file that survives a crash, or down to its best rows."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluation.evaluate import POINTS_AT_ONCE, Columns, at, cells, stack
from nearkv.sweeps.evaluation.provenance import (
    check_writable,
    place_of,
    provenance,
    replacing,
    text_of,
    write_text,
)
from nearkv.sweeps.jobs.encode import ENCODERS, encoded, table_of
from nearkv.sweeps.jobs.identity import identity
from nearkv.sweeps.jobs.plan import Piece, Plan, chosen, plan, size_of, unpacked
from nearkv.sweeps.jobs.reduce import Kept, Reducer, reduced
from nearkv.sweeps.jobs.sinks import check_free, form_of, origin_of
from nearkv.sweeps.jobs.store import growing_of, store
from nearkv.sweeps.runtime.interrupts import careful, listening
from nearkv.sweeps.runtime.progress import bytes_of, duration, progress
from nearkv.sweeps.runtime.workers import Workers
from nearkv.sweeps.space.study import Study, blocks

PIECE = {"csv": 1 << 16, "jsonl": 1 << 16, "parquet": 1 << 17}
"""Rows of a task that writes; of Parquet, of a part."""
REDUCED = 1 << 20
"""Rows of a task that keeps only the best."""
MANY = 10**9
"""More rows than this in a file are likely a mistake."""
SAMPLES, ENOUGH = (1, 1 << 7, 1 << 14, 1 << 14), 0.2
"""Design points that are tried to tell how long all will take, and how long is enough to tell [s]."""


@dataclass(frozen=True)
class SweepRun:
    """How a sweep is run.

    Attributes:
        workers: who evaluates.
        quiet: show no progress.
        resume: go on with an unfinished file.
        say: tells the user a line.
        confirm: asks the user a question.
    """

    workers: Workers
    quiet: bool
    resume: bool
    say: Callable[[str], None]
    confirm: Callable[[str], bool]


def to_file(study: Study, path: Path, only: Sequence[str], run: SweepRun) -> None:
    """Evaluate a study into a file, and put beside it where its numbers come from.

    Args:
        study: what to evaluate.
        path: its end says the form, see `sinks.FORMS`.
        only: columns to write, in that order; all where none is named.
        run: how.

    Raises:
        InputError: the study cannot be evaluated, or the file not written.
    """
    place, form, rows = place_of(path), form_of(path), plan(study, only)
    check_free(place, form == "parquet")
    task, most = partial(encoded, rows.packed(), form), PIECE[form]
    with careful(), store(place, form, identity(rows, only, f"{form} {most}"), run.resume) as out:
        if out.complete:
            run.say(
                f"{place} is complete already, with {rows_of(out.now.rows)}; nothing was left to do"
            )
            return
        with listening():
            size = announce(rows, task, run, "write", out.now.rows)
            if (
                rows.size > MANY
                and not out.now.rows
                and not run.confirm(f"Write {rows.size:,} rows?")
            ):
                raise InputError(
                    f"{path}: {rows.size:,} rows are very many; --yes writes them, --top, --pareto and --best-per "
                    "keep only the best"
                )
            check_room(place, size, run)
        with progress(rows.size, out.now.rows, run.quiet) as advance:
            pieces = islice(rows.pieces(most), out.now.pieces, None)
            with closing(run.workers.run(task, pieces)) as done:
                for piece, content in done:
                    out.add(piece.rows, content)
                    advance(piece.rows)
        out.finish(rows.size, provenance(rows.laid))
        run.say(written(rows.size, place))


def check_place(path: Path) -> Path:
    """See whether a table can be written to a place, before it is computed; where that is, see `place_of`.

    Raises:
        InputError: no form is known by that name, something is in the way, or a sweep writes there.
    """
    place = place_of(path)
    form_of(path)
    check_free(place, folder=False)
    check_writable(place)
    if (growing := growing_of(place)).exists():
        raise InputError(
            f"{place}: a sweep writes it, or was stopped; wait for it, or delete {growing}"
        )
    return place


def check_room(path: Path, size: float, run: SweepRun) -> None:
    """Refuse, or ask for, what a disk cannot hold even if a sample of rows is twice as large as the others.

    Raises:
        InputError: it is not to be tried.
    """
    free = shutil.disk_usage(path.parent).free
    told = f"about {bytes_of(size)} are to be written, {bytes_of(free)} are free"
    if size > 2 * free and not run.confirm(f"{told[0].upper()}{told[1:]}; begin?"):
        raise InputError(
            f"{path}: {told}; choose another place or fewer --columns, or begin all the same with --yes"
        )


def announce(
    rows: Plan, task: Callable[[Piece], object], run: SweepRun, verb: str, before: int = 0
) -> float:
    """Say how many design points there are, how long they will take and how much they will fill.

    Args:
        rows: all of them.
        task: what will be done with them.
        run: how.
        verb: what that is.
        before: how many are done [1].

    Returns:
        How much they will fill; 0 where nobody asks or it is no file [B].
    """
    if run.quiet:
        return 0.0
    seconds, found, seen = timed(task, rows)
    left = rows.size - before
    jobs = 1 if run.workers.scheduler else min(run.workers.jobs, os.cpu_count() or 1)
    where = " on one core" if run.workers.scheduler else ""
    fills = len(found) / seen * left if isinstance(found, bytes) else 0.0
    size = f", {bytes_of(fills)}" if fills else ""
    points = "design point" if left == 1 else "design points"
    run.say(f"{left:,} {points} to {verb}, {duration(seconds / seen * left / jobs)}{where}{size}")
    return fills


def timed(task: Callable[[Piece], object], rows: Plan) -> tuple[float, object, int]:
    """Time a task on more and more design points, until it takes long enough to tell [s]; its result; their number."""
    for most in SAMPLES:
        sample = rows.sample(most)
        start = time.perf_counter()
        found = task(sample)
        seconds = time.perf_counter() - start
        if seconds > ENOUGH:
            break
    return seconds, found, sample.rows


def best(study: Study, reducer: Reducer, run: SweepRun, only: Sequence[str] = ()) -> Columns:
    """Evaluate a study and return its best rows, in the order of the reducer.

    Args:
        study: what to evaluate.
        reducer: what is best.
        run: how.
        only: columns to return, in that order; all where none is named.

    Raises:
        InputError: the study cannot be evaluated, a column not compared by, or no design point fits.
    """
    rows = plan(study)
    shown = chosen(rows.kinds, only)
    reducer.check(rows.kinds)
    task = partial(reduced, rows.packed(), reducer)
    kept: Kept | None = None
    with careful():
        with listening():
            announce(rows, task, run, "compare")
        with (
            progress(rows.size, quiet=run.quiet) as advance,
            closing(run.workers.run(task, rows.pieces(REDUCED))) as done,
        ):
            for piece, some in done:
                kept = reducer.merge(kept, some)
                advance(piece.rows)
        if kept is None or not len(kept.rows):
            raise InputError(
                f"no design point fits and has {' and '.join(reducer.by)}; `reason` says why not"
            )
        found = whole_rows(rows, kept.rows, run.workers)
    return {name: found[name] for name in shown}


def whole_rows(rows: Plan, wanted: NDArray[np.int64], workers: Workers) -> Columns:
    """All columns of some rows, in the order asked; evaluates only the chunks they lie in."""
    order = np.argsort(wanted)
    with closing(workers.run(partial(_taken, rows.packed()), _where(rows, wanted[order]))) as done:
        found = stack([part for _, parts in done for part in parts])
    back = np.argsort(order)
    blank = {"text": np.full(len(back), ""), "number": np.full(len(back), np.nan)}
    return {
        name: found[name][back] if name in found else blank.get(kind, blank["number"])
        for name, kind in rows.kinds.items()
    }


def _where(rows: Plan, wanted: NDArray[np.int64]) -> Iterator[tuple[Piece, NDArray[np.int64]]]:
    """Chunks that hold some rows, each with their numbers; `wanted` is in order."""
    for piece in rows.pieces(POINTS_AT_ONCE):
        start, end = np.searchsorted(wanted, (piece.first, piece.first + piece.rows))
        if start < end:
            yield piece, wanted[start:end]


def _taken(packed: bytes, asked: tuple[Piece, NDArray[np.int64]]) -> list[Columns]:
    (piece, wanted), laid = asked, unpacked(packed).laid
    first, found = piece.first, []
    for place, box in piece.boxes:
        rows = wanted[(wanted >= first) & (wanted < first + size_of(box))] - first
        first += size_of(box)
        if len(rows):
            shape = tuple(part.stop - part.start for part in box)
            found.append(
                {name: at(cell, shape, rows) for name, cell in cells(laid[place], box).items()}
            )
    return found


def write_table(found: Columns, path: Path, study: Study) -> str:
    """Write a table in memory, and put beside it where its numbers come from.

    Returns:
        What was written, for the user.

    Raises:
        InputError: the file cannot be written.
    """
    place = check_place(path)  # once more: a sweep may have begun to write it meanwhile
    with replacing(place) as table:
        table.buffer.write(ENCODERS[form_of(path)](table_of(found), True))
        table.flush()
        os.fsync(table.fileno())  # both are on the disk before either takes its name
        write_text(origin_of(place), text_of(provenance(blocks(study))))
    return written(len(next(iter(found.values()))), place)


def written(rows: int, path: Path) -> str:
    """Tell the user what was written."""
    return f"{rows_of(rows)} in {path}; where its numbers come from in {origin_of(path)}"


def rows_of(number: int) -> str:
    """So many rows, in words."""
    return "1 row" if number == 1 else f"{number:,} rows"

"""Run a sweep into a file that survives a crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.evaluate.provenance import (
    check_writable,
    place_of,
    provenance,
    replacing,
    text_of,
    write_text,
)
from nearkv.sweeps.jobs.arrow import table_of
from nearkv.sweeps.jobs.encode import ENCODERS, encoded
from nearkv.sweeps.jobs.identity import identity
from nearkv.sweeps.jobs.interrupts import careful, listening
from nearkv.sweeps.jobs.outputs import (
    TEXTS,
    check_free,
    form_of,
    provenance_path,
    staging_path,
)
from nearkv.sweeps.jobs.parts import part_name, write_new
from nearkv.sweeps.jobs.plan import Piece, Plan, plan
from nearkv.sweeps.jobs.progress import bytes_of, progress
from nearkv.sweeps.jobs.running import SweepRun, announce
from nearkv.sweeps.jobs.staging import Staging, staged
from nearkv.sweeps.study.study import Study, blocks

PIECE = {"csv": 1 << 16, "jsonl": 1 << 16, "parquet": 1 << 17}
"""Rows of a task that writes, which is a part."""
MANY = 10**9
"""More rows than this in a file are likely a mistake."""


def to_file(study: Study, path: Path, only: Sequence[str], run: SweepRun) -> None:
    """Evaluate a study into a file, and put beside it where its numbers come from.

    Args:
        study: what to evaluate.
        path: its suffix says the form, see `outputs.FORMS`.
        only: columns to write, in that order; all where none is named.
        run: how.

    Raises:
        InputError: the study cannot be evaluated, or the file not written.
    """
    place = place_of(path)
    form = form_of(path)
    rows = plan(study, only)
    most = PIECE[form]
    check_free(place, form == "parquet")
    is_new = not (run.resume or staging_path(place).exists())
    if is_new:  # before work that grows with the sweep
        check_writable(place)
        _check_size(rows, path, form, 0, run)
    key = identity(rows, only, f"{form} {most}")
    pieces = partial(rows.pieces, most)
    with careful(), staged(place, form, key, pieces, run.resume) as staging:
        if staging.complete:
            done = f"{place} is complete already, with {rows_of(staging.rows)}"
            run.say(f"{done}; nothing was left to do")
            return
        if not is_new:
            with listening():
                _check_size(rows, path, form, staging.rows, run)
        _evaluate(rows, form, staging, run)
        staging.finish(provenance(rows.blocks))
        run.say(written(rows.size, place))


def _evaluate(rows: Plan, form: str, staging: Staging, run: SweepRun) -> None:
    """Evaluate the pieces that are not finished; other processes leave theirs in files."""
    packed = rows.packed()
    task: Callable[[Piece], bytes | None] = partial(encoded, packed, form)
    if run.workers.jobs > 1:
        task = partial(_write, packed, form, staging.parts)
    answers = run.workers.run(task, staging.remaining())
    with (
        progress(rows.size, staging.rows, run.quiet) as advance,
        closing(answers) as contents,
    ):
        for piece, content in contents:
            staging.add(piece, content)
            advance(piece.rows)


def _write(packed: bytes, form: str, folder: Path, piece: Piece) -> None:
    """Evaluate a piece into a file; what passes between processes stays small."""
    content = encoded(packed, form, piece)
    write_new(folder / part_name(piece.number, form), content)


def _check_size(rows: Plan, path: Path, form: str, done: int, run: SweepRun) -> None:
    """Say how long a sweep will take, and refuse one that is too large.

    Raises:
        InputError: there are very many rows, or more than the disk holds, and nobody agrees.
    """
    size = announce(rows, partial(encoded, rows.packed(), form), run, "write", done)
    if rows.size > MANY and not done and not run.confirm(f"Write {rows.size:,} rows?"):
        many = f"{rows.size:,} rows are very many"
        best = "--top and --best-per keep only the best"
        raise InputError(f"{path}: {many}; --yes writes them, {best}")
    check_room(path, size, run)


def check_place(path: Path) -> Path:
    """Where a table can be written, checked before it is computed; see `place_of`.

    Raises:
        InputError: the form is unknown, something is in the way, or a sweep writes there.
    """
    place = place_of(path)
    if path.suffix not in TEXTS:
        form_of(path)
    check_free(place, dataset=False)
    check_writable(place)
    staging = staging_path(place)
    if staging.exists():
        busy = "a sweep is writing it, or was stopped"
        raise InputError(f"{place}: {busy}; wait for it, or delete {staging}")
    return place


def check_room(path: Path, size: float, run: SweepRun) -> None:
    """Refuse, or ask for, what a disk cannot hold even if the sample's rows are twice as large.

    Raises:
        InputError: nobody agrees to try.
    """
    free = shutil.disk_usage(place_of(path).parent).free
    if size <= 2 * free:
        return
    sizes = f"bout {bytes_of(size)} are to be written, {bytes_of(free)} are free"
    if not run.confirm(f"A{sizes}; begin?"):
        choose = "choose another place or fewer --columns, or begin all the same with --yes"
        raise InputError(f"{path}: a{sizes}; {choose}")


def write_table(table: Columns, path: Path, study: Study | None) -> str:
    """Write a table in memory, and put beside it where its numbers come from.

    A table that answers no study comes with the version and the command alone.

    Returns:
        What was written, for the user.

    Raises:
        InputError: the file cannot be written.
    """
    content = ENCODERS[form_of(path)](table_of(table), True)
    rows = len(next(iter(table.values())))
    return write_content(content, rows, path, study)


def write_content(content: bytes, rows: int, path: Path, study: Study | None) -> str:
    """Write so many rows, encoded, and put beside them where their numbers come from.

    Returns:
        What was written, for the user.

    Raises:
        InputError: the file cannot be written.
    """
    place = check_place(path)  # once more: a sweep may have begun to write it meanwhile
    with replacing(place) as file:
        file.buffer.write(content)
        file.flush()
        os.fsync(file.fileno())  # both are on the disk before either takes its name
        study_blocks = blocks(study) if study else []
        write_text(provenance_path(place), text_of(provenance(study_blocks)))
    return written(rows, place)


def written(rows: int, path: Path) -> str:
    """Say what was written."""
    return (
        f"wrote {rows_of(rows)} to {path}, and the sources of its numbers to "
        f"{provenance_path(path).name}"
    )


def rows_of(number: int) -> str:
    """So many rows, in words."""
    return "1 row" if number == 1 else f"{number:,} rows"

"""Run a sweep into a file part by part, so that a sweep that is stopped goes on where it was.

Beside FILE lies the folder `.FILE.partial` while a sweep runs, and in it: `lock`, which the process
that writes holds; `manifest.json`, what the rows depend on; `parts`, a numbered file for every
finished piece. A part takes its name once it is complete, so that a sweep that ends early leaves no
other parts. At the end the parts of a text are joined; of Parquet, their folder is the output.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from rich.filesize import decimal

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.provenance import (
    as_json,
    check_writable,
    command,
    place_of,
    provenance,
)
from nearkv.sweeps.jobs.formats import encoded_piece, write_piece
from nearkv.sweeps.jobs.outputs import (
    TEXTS,
    check_free,
    form_of,
    partial_path,
    provenance_path,
    size_of,
    written,
)
from nearkv.sweeps.jobs.plan import Piece, Plan, digest_of, plan
from nearkv.sweeps.jobs.progress import SweepRun, announce, progress
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import counted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PART = {"csv": 1 << 16, "jsonl": 1 << 16, "parquet": 1 << 17}
"""Rows of a part that formulas answer: tenths of a second of work, all that can be lost."""
SIMULATED = 16
"""Rows of a part of simulated queues, which take about a tenth of a second each."""
MANY_WRITTEN = 10**9
"""More rows than this in a file are likely a mistake."""


def to_file(study: Study, path: Path, only: Sequence[str], run: SweepRun) -> None:
    """Evaluate a study into a file, and put beside it where its numbers come from.

    Args:
        study: what to evaluate.
        path: its suffix says the form, see `outputs.FORMS`.
        only: columns to write, in that order; all where none is named.
        run: how.

    Raises:
        InputError: the study cannot be evaluated, the file not written, another sweep writes
            there, or an unfinished one is there that is another study's or not to be resumed.
        KeyboardInterrupt: stopped; its text says how to go on.
    """
    place, form = place_of(path), form_of(path)
    rows = plan(study, only)
    most = rows_of_part(rows, form)
    with locked(place, form == "parquet"):
        output = PartialOutput(place, form, rows, most)
        if output.begin(run.resume):
            done = f"{place} is complete already, with {counted(rows.size, 'row')}"
            run.say(f"{done}; nothing was left to do")
            return
        _check_size(output, path, run)
        try:
            _evaluate(output, run)
            output.finish(provenance(rows.blocks))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; {output.left()}") from None
        except OSError as problem:
            failed = f"{path}: cannot be written ({problem.strerror})"
            raise InputError(f"{failed}; {output.left()}") from None
        except InputError as problem:
            raise InputError(f"{problem}; {output.left()}") from None
    run.say(written(rows.size, place))


def rows_of_part(rows: Plan, form: str) -> int:
    """Rows of a part, fewer where each takes longer."""
    if any(block.method == "simulate" for block in rows.blocks):
        return SIMULATED
    draws = max(block.band.samples if block.band else 1 for block in rows.blocks)
    return max(PART[form] // draws, 1)


class PartialOutput:
    """The output of one sweep while it grows.

    Args:
        place: where the output will be.
        form: of its rows.
        rows: all of them.
        most: rows of a part.
    """

    def __init__(self, place: Path, form: str, rows: Plan, most: int) -> None:
        self.place, self.form, self.rows, self.most = place, form, rows, most
        self.folder = partial_path(place)
        self.parts = self.folder / "parts"
        self._digest = digest_of([rows.blocks, rows.kinds, form, most])

    def begin(self, resume: bool) -> bool:
        """Start anew or go on with finished parts; whether nothing is left to do.

        Raises:
            InputError: finished parts are not to be resumed, or are another study's.
        """
        if resume and not self._finished() and self._is_complete():
            return True
        begin_parts(self.place, self.form, self._digest, resume)
        return False

    def _is_complete(self) -> bool:
        """True if an output is there that is of this very study.

        Raises:
            InputError: it is of another study, or has changed since.
        """
        if not self.place.exists():
            return False
        anew = f"choose another name, or leave out --resume to replace {self.place}"
        try:
            origin = json.loads(provenance_path(self.place).read_text(encoding="utf-8"))
            output = origin["output"]
            differs = output["digest"] != self._digest
            is_whole = output["bytes"] == size_of(self.place)
        except (OSError, ValueError, KeyError, TypeError):
            unknown = "nothing beside it says that a sweep wrote it, so none can go on"
            raise InputError(f"{self.place}: {unknown}; {anew}") from None
        if differs:
            other = "is finished, and answers another study, or was written by other code"
            raise InputError(f"{self.place}: {other}; {anew}")
        if not is_whole:
            raise InputError(f"{self.place}: was finished and has changed since; {anew}")
        return True

    def part(self, piece: Piece) -> Path:
        """The file of a finished piece."""
        return part_path(self.parts, self.form, piece)

    def _finished(self) -> set[Path]:
        """Files of finished parts, and what else has their form."""
        return set(self.parts.glob(f"part-*.{self.form}"))

    def pieces(self) -> Iterator[Piece]:
        """All pieces, in order."""
        return self.rows.pieces(self.most)

    def remaining(self) -> Iterator[Piece]:
        """The pieces that are not finished, in order."""
        finished = self._finished()
        return (piece for piece in self.pieces() if self.part(piece) not in finished)

    @property
    def finished_rows(self) -> int:
        """Rows in finished parts; looks at no piece where there is none."""
        finished = self._finished()
        if not finished:
            return 0
        return sum(piece.rows for piece in self.pieces() if self.part(piece) in finished)

    def finish(self, origin: Mapping[str, Any]) -> None:
        """Make the output of the parts, and put beside it where its numbers come from.

        Raises:
            InputError: a part is gone, or something has come in the way of the name.
        """
        paths = list(map(self.part, self.pieces()))
        there = set(self.parts.iterdir())
        for path in paths:
            if path not in there:
                raise InputError(f"{path}: was removed by another program")
        for path in sorted(there.difference(paths)):
            raise InputError(f"{path}: was put there by another program; remove it")
        whole = self.parts
        if self.form != "parquet":
            whole = self.folder / "joined"
            with whole.open("wb") as joined:
                for path in paths:
                    with path.open("rb") as part:
                        shutil.copyfileobj(part, joined, 1 << 20)
        check_free(self.place, whole.is_dir(), "move it away")
        output = {
            "digest": self._digest,
            "rows": self.rows.size,
            "bytes": size_of(whole),
        }
        record = self.folder / "provenance.json"
        record.write_text(as_json({**origin, "output": output}), encoding="utf-8")
        os.replace(record, provenance_path(self.place))
        if whole.is_dir() and self.place.exists():
            os.replace(self.place, self.folder / "replaced")
        os.replace(whole, self.place)
        shutil.rmtree(self.parts, ignore_errors=True)  # those of a text, which are joined

    def left(self) -> str:
        """Say what is finished when a sweep ends early, and how to go on."""
        if not self.folder.exists():
            return "its folder is gone; go on with --resume where that is"
        if not self._finished():
            return "nothing was changed"
        again = f"{command()} --resume"
        return f"{self.finished_rows:,} finished rows are safe, go on with: {again}"


def begin_parts(place: Path, form: str, digest: str, resume: bool) -> None:
    """Go on with finished parts of an output, or note what its parts will depend on.

    Args:
        place: where the output will be.
        form: of its parts.
        digest: of all that they depend on.
        resume: whether to go on.

    Raises:
        InputError: parts are there that are not to be resumed, or are another study's.
    """
    folder = partial_path(place)
    parts, manifest = folder / "parts", folder / "manifest.json"
    if not any(parts.glob(f"part-*.{form}")):
        parts.mkdir(exist_ok=True)
        record = as_json({"digest": digest, "command": command()})
        manifest.write_text(record, encoding="utf-8")
        return
    unfinished, delete = f"{place}: an unfinished sweep", f"delete {folder}"
    if not resume:
        go_on = f"is there; go on with --resume, or {delete}"
        raise InputError(f"{unfinished} {go_on}")
    try:
        begun = json.loads(manifest.read_text("utf-8"))
        differs, by = begun["digest"] != digest, begun["command"]
    except (OSError, ValueError, KeyError, TypeError):
        unreadable = f"is there, but {manifest} cannot be read"
        raise InputError(f"{unfinished} {unreadable}; {delete}") from None
    if differs:
        other = f"of another study, or by other code, was begun there by `{by}`"
        raise InputError(f"{unfinished} {other}; give the same again, or {delete}")
    for path in parts.glob("*.tmp"):  # what a killed process was writing
        path.unlink()


@contextmanager
def kept_answers(
    place: Path, question: object, resume: bool
) -> Iterator[Callable[[str, Callable[[], Any]], Any]]:
    """Keep the answers of a long question beside its output, each in a part, until it is complete.

    Args:
        place: where the output will be.
        question: all that the answers depend on.
        resume: whether to go on with answers that are there.

    Yields:
        A function that takes the name of an answer and what computes it, and returns it as JSON
        keeps it.

    Raises:
        InputError: the output cannot be written, or answers are there that are another question's
            or not to be resumed.
        KeyboardInterrupt: stopped; its text says how to go on.
    """
    if place.suffix not in TEXTS:
        form_of(place)
    parts = partial_path(place) / "parts"

    def kept(name: str, compute: Callable[[], Any]) -> Any:
        part = parts / f"part-{name}.json"
        if not part.exists():
            answer = json.dumps(compute()).encode()
            with _new_part(part) as file:
                file.write(answer)
        return json.loads(part.read_bytes())

    with locked(place, dataset=False):
        begin_parts(place, "json", digest_of(question), resume)
        try:
            yield kept
        except KeyboardInterrupt:
            finished = counted(len([*parts.glob("part-*.json")]), "answer")
            again = f"{finished} are safe, go on with: {command()} --resume"
            raise KeyboardInterrupt(f"stopped; {again}") from None
        shutil.rmtree(parts)


@contextmanager
def locked(place: Path, dataset: bool) -> Iterator[None]:
    """Keep other sweeps from an output; where nothing is finished, or all is, leave nothing behind.

    Args:
        place: where the output will be.
        dataset: it is a folder of parts.

    Raises:
        InputError: something is in the way, another sweep writes there, or nothing can be written.
    """
    check_free(place, dataset)
    folder = partial_path(place)
    if not folder.exists():
        check_writable(place)
    elif not folder.is_dir():
        there = f"is no folder, in the place where {place.name} would grow"
        raise InputError(f"{folder}: {there}; remove it")
    lock = folder / "lock"
    with ExitStack() as leaving:
        # before there is a folder, as Ctrl-C may strike at any moment
        leaving.callback(_clear, folder, lock)
        try:
            folder.mkdir(exist_ok=True)
            leaving.callback(hold(lock))
        except BlockingIOError:
            busy = "another sweep is writing it; wait for it"
            raise InputError(f"{place}: {busy}, or choose another name") from None
        except FileExistsError:
            busy = f"{lock} names the process that is writing it; wait for it"
            raise InputError(
                f"{place}: {busy}, or delete the file if there is none"
            ) from None
        except OSError as problem:
            text = f"cannot be written ({problem.strerror}); choose another place"
            raise InputError(f"{place}: {text}") from None
        yield


def _clear(folder: Path, lock: Path) -> None:
    """Delete a folder unless a part in it is finished, or another sweep has its lock.

    The lock goes last, so that a sweep that takes a new one finds no part of this one.
    """
    with suppress(OSError), ExitStack() as leaving:
        leaving.callback(hold(lock))
        if any(path.suffix != ".tmp" for path in (folder / "parts").glob("part-*")):
            return
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path != lock:
                path.unlink()
        lock.unlink()
    with suppress(OSError):
        folder.rmdir()


def hold(lock: Path) -> Callable[[], None]:
    """Take a lock that one process has at a time, and return what gives it back.

    The operating system keeps the lock, and drops it when its process dies, however that ends.
    Where it keeps none, a file stands for the lock.

    Raises:
        BlockingIOError: another process has it.
        FileExistsError: another process has it, or died with it.
        OSError: its file cannot be written.
    """
    if fcntl is None:
        return _put_in_place(lock)
    with ExitStack() as failed:
        try:
            file = failed.enter_context(lock.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_deleted = not os.path.samestat(os.fstat(file.fileno()), lock.stat())
        except FileNotFoundError:
            is_deleted = True
        if is_deleted:  # by a sweep that ended since this process looked for it
            raise BlockingIOError
        failed.pop_all()
    return file.close


def _put_in_place(lock: Path) -> Callable[[], None]:
    """Make a file that names this process, whole from the first moment.

    Raises:
        OSError: it is there already, or cannot be written.
    """
    own = lock.with_name(f"lock.{os.getpid()}")
    own.write_text(f"{os.getpid()}")
    try:
        os.link(own, lock)
    finally:
        own.unlink()
    return partial(lock.unlink, missing_ok=True)


def _evaluate(output: PartialOutput, run: SweepRun) -> None:
    """Evaluate the pieces that are not finished."""
    packed = output.rows.packed()
    pieces = output.remaining()
    with progress(output.rows.size, output.finished_rows, run.quiet) as advance:
        if run.workers.scheduler:  # its workers may not see this machine's files
            evaluate = partial(encoded_piece, packed, output.form)
            with closing(run.workers.run(evaluate, pieces)) as contents:
                for piece, content in contents:
                    with _new_part(output.part(piece)) as file:
                        file.write(content)
                    advance(piece.rows)
            return
        task = partial(_write_part, packed, output.form, output.parts)
        with closing(run.workers.run(task, pieces)) as done:
            for piece, _ in done:
                advance(piece.rows)


def _write_part(packed: bytes, form: str, folder: Path, piece: Piece) -> None:
    """Evaluate a piece into its part; the task of a worker of this machine."""
    with _new_part(part_path(folder, form, piece)) as file:
        write_piece(packed, form, piece, file)


def part_path(folder: Path, form: str, piece: Piece) -> Path:
    """The file of a finished piece."""
    return folder / f"part-{piece.number:06}.{form}"


@contextmanager
def _new_part(path: Path) -> Iterator[IO[bytes]]:
    """Open a part that takes its name once it is complete, even where the power fails."""
    # a worker of a killed sweep may still be writing the same part
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _check_size(output: PartialOutput, path: Path, run: SweepRun) -> None:
    """Say how long a sweep will take, and refuse one that is too large.

    Raises:
        InputError: there are very many rows, or more than the disk holds, and the user says no.
    """
    rows, done = output.rows, output.finished_rows
    task = partial(encoded_piece, rows.packed(), output.form)
    size = announce(rows, task, run, "write", done)
    if (
        rows.size > MANY_WRITTEN
        and not done
        and not run.confirm(f"Write {rows.size:,} rows?")
    ):
        many = f"{rows.size:,} rows are very many"
        best = "--top and --best-per keep only the best"
        raise InputError(f"{path}: {many}; --yes writes them, {best}")
    if (
        size and output.form != "parquet"
    ):  # a text is joined while its parts are still there
        size += size + size_of(output.parts)
    check_disk(path, size, run)


def check_disk(path: Path, size: float, run: SweepRun) -> None:
    """Refuse, or ask for, what a disk cannot hold even if the sample's rows are twice as large.

    Raises:
        InputError: it cannot, and the user says no.
    """
    free = shutil.disk_usage(place_of(path).parent).free
    if size <= 2 * free:
        return
    sizes = f"bout {decimal(int(size))} are to be written, {decimal(free)} are free"
    if not run.confirm(f"A{sizes}; begin?"):
        choose = "choose another place or fewer --columns, or begin all the same with --yes"
        raise InputError(f"{path}: a{sizes}; {choose}")

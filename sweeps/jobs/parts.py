"""Run a sweep into a file part by part, so that a sweep that is stopped goes on where it was.

Beside FILE lies the folder `.FILE.partial` while a sweep runs, and in it: `lock`, which names the
process that writes; `manifest.json`, what the rows depend on; `parts`, a file for every finished
piece. A part takes its name once it is complete, so that a sweep that ends early leaves no other
parts. At the end the parts of a text are joined; of Parquet, the folder of parts is the output.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rich.filesize import decimal

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.provenance import check_writable, place_of, provenance, text_of
from nearkv.sweeps.jobs.formats import encoded_piece, write_piece
from nearkv.sweeps.jobs.identity import difference, identity
from nearkv.sweeps.jobs.outputs import (
    check_free,
    form_of,
    free_bytes,
    partial_path,
    provenance_path,
    size_of,
    written,
)
from nearkv.sweeps.jobs.plan import Piece, Plan, plan
from nearkv.sweeps.jobs.progress import SweepRun, announce, progress
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import counted

PART = {"csv": 1 << 16, "jsonl": 1 << 16, "parquet": 1 << 17}
"""Rows of a part that formulas answer: tenths of a second of work, all that can be lost."""
SIMULATED = 16
"""Rows of a part of simulated queues, which take about a tenth of a second each."""
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
        InputError: the study cannot be evaluated, the file not written, another sweep writes
            there, or an unfinished one is there that is another study's or not to be resumed.
        KeyboardInterrupt: stopped; its text says how to go on.
    """
    place, form = place_of(path), form_of(path)
    rows = plan(study, only)
    check_free(place, form == "parquet")
    folder = partial_path(place)
    if not folder.exists():
        check_writable(place)
    most = rows_of_part(rows, form)
    with _locked(place, folder):
        output = PartialOutput(
            place, form, identity(rows.blocks, rows.kinds, f"{form} {most}"), rows, most
        )
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
        key: what the rows depend on, see `identity`.
        rows: all of them.
        most: rows of a part.
    """

    def __init__(
        self, place: Path, form: str, key: Mapping[str, str], rows: Plan, most: int
    ) -> None:
        self.place, self.form, self.rows = place, form, rows
        self._key, self._most = key, most
        self.folder = partial_path(place)
        self.parts = self.folder / "parts"

    def begin(self, resume: bool) -> bool:
        """Start anew or go on with finished parts; whether nothing is left to do.

        Raises:
            InputError: finished parts are not to be resumed, or are another study's.
        """
        manifest = self.folder / "manifest.json"
        if not self._finished() and resume and self._is_complete():
            return True
        if self._finished():
            unfinished = f"{self.place}: an unfinished sweep"
            delete = f"delete {self.folder}"
            if not resume:
                go_on = f"is there; go on with --resume, or {delete}"
                raise InputError(f"{unfinished} {go_on}")
            try:
                differs = difference(json.loads(manifest.read_text("utf-8")), self._key)
            except (OSError, ValueError, AttributeError, TypeError):
                unreadable = f"is there, but {manifest} cannot be read"
                raise InputError(f"{unfinished} {unreadable}; {delete}") from None
            if differs:
                same = f"give the same again, or {delete}"
                raise InputError(f"{unfinished} was begun {differs}; {same}")
            return False
        self.parts.mkdir(exist_ok=True)
        manifest.write_text(text_of(dict(self._key)), encoding="utf-8")
        return False

    def _is_complete(self) -> bool:
        """Whether an output is there that is of this very study.

        Raises:
            InputError: it is of another study, or has changed since.
        """
        if not self.place.exists():
            return False
        anew = f"choose another name, or leave out --resume to replace {self.place}"
        try:
            text = provenance_path(self.place).read_text(encoding="utf-8")
            output = json.loads(text)["output"]
            differs = difference(output["identity"], self._key)
            is_whole = output["bytes"] == size_of(self.place)
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            unknown = "nothing beside it says that a sweep wrote it, so none can go on"
            raise InputError(f"{self.place}: {unknown}; {anew}") from None
        if differs:
            text = f"is finished, and was written {differs}; {anew}"
            raise InputError(f"{self.place}: {text}")
        if not is_whole:
            raise InputError(f"{self.place}: was finished and has changed since; {anew}")
        return True

    def _finished(self) -> dict[int, Path]:
        """Files of the finished parts by number; one that was cut since is not finished."""
        finished = {}
        for path in self.parts.glob(f"part-*.{self.form}"):
            number, _, size = path.stem.removeprefix("part-").partition("-")
            # the parts of a finished data set are named by number alone
            if number.isdecimal() and size in ("", str(path.stat().st_size)):
                finished[int(number)] = path
        return finished

    def pieces(self) -> Iterator[Piece]:
        """All pieces, in order."""
        return self.rows.pieces(self._most)

    def remaining(self) -> Iterator[Piece]:
        """The pieces that are not finished, in order."""
        finished = self._finished()
        return (piece for piece in self.pieces() if piece.number not in finished)

    @property
    def finished_rows(self) -> int:
        """Rows in finished parts; looks at no piece behind the last of them."""
        finished = self._finished()
        begun = islice(self.pieces(), max(finished, default=-1) + 1)
        return sum(piece.rows for piece in begun if piece.number in finished)

    def finish(self, origin: Mapping[str, Any]) -> None:
        """Make the output of the parts, and put beside it where its numbers come from.

        Raises:
            InputError: a part is gone, or something has come in the way of the name.
        """
        finished = self._finished()
        paths: list[Path] = []
        for piece in self.pieces():
            if piece.number not in finished:
                cut = "was removed or cut by another program"
                raise InputError(f"{self.parts}: part {piece.number} {cut}")
            paths.append(finished[piece.number])
        for path in sorted(set(self.parts.iterdir()).difference(paths)):
            raise InputError(f"{path}: was put there by another program; remove it")
        whole = self.parts
        if self.form == "parquet":
            for number, path in enumerate(paths):
                path.rename(self.parts / f"part-{number:06}.parquet")
        else:
            whole = self.folder / "joined"
            with whole.open("wb") as joined:
                for path in paths:
                    with path.open("rb") as part:
                        shutil.copyfileobj(part, joined, 1 << 20)
        check_free(self.place, whole.is_dir(), "move it away")
        output = {
            "identity": dict(self._key),
            "rows": self.rows.size,
            "bytes": size_of(whole),
        }
        record = self.folder / "provenance.json"
        record.write_text(text_of({**origin, "output": output}), encoding="utf-8")
        os.replace(record, provenance_path(self.place))
        if whole.is_dir() and self.place.exists():
            os.replace(self.place, self.folder / "replaced")
        os.replace(whole, self.place)
        shutil.rmtree(self.parts, ignore_errors=True)  # those of a text, which are joined

    def left(self) -> str:
        """What is finished when a sweep ends early, and how to go on."""
        if not self.folder.exists():
            return "its folder is gone; go on with --resume where that is"
        if not self._finished():
            return "nothing was changed"
        words = [word for word in sys.argv[1:] if word != "--resume"]
        again = shlex.join(["nearkv", *words, "--resume"])
        return f"{self.finished_rows:,} finished rows are safe, go on with: {again}"


@contextmanager
def _locked(place: Path, folder: Path) -> Iterator[None]:
    """Keep other sweeps from an output; where nothing is finished, or all is, leave nothing behind.

    Raises:
        InputError: another sweep writes there, or the folder cannot be made.
    """
    lock = folder / "lock"
    is_ours = False
    if folder.exists() and not folder.is_dir():
        there = f"is no folder, in the place where {place.name} would grow"
        raise InputError(f"{folder}: {there}; remove it")
    try:
        try:
            folder.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                if not _is_running(lock.read_text()):  # killed, and could not remove it
                    lock.unlink()
            with lock.open("x") as file:
                is_ours = True
                file.write(f"{os.getpid()} {socket.gethostname()}")
        except FileExistsError:
            busy = "another sweep is writing it; wait for it"
            raise InputError(
                f"{place}: {busy}, or delete {lock} if there is none"
            ) from None
        except OSError as problem:
            text = f"cannot be written ({problem.strerror}); choose another place"
            raise InputError(f"{place}: {text}") from None
        yield
    finally:
        if not is_ours:
            # there are files of another sweep in it, or it was not made
            with suppress(OSError):
                folder.rmdir()
        elif any(path.suffix != ".tmp" for path in (folder / "parts").glob("part-*")):
            lock.unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(owner: str) -> bool:
    """Whether the process that a lock names still runs; one that cannot be looked at does."""
    process, _, host = owner.partition(" ")
    if os.name != "posix" or (host and host != socket.gethostname()):
        return True
    try:
        number = int(process)
        if number == os.getpid():  # the number of a process that ended, given again
            return False
        os.kill(number, 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _evaluate(output: PartialOutput, run: SweepRun) -> None:
    """Evaluate the pieces that are not finished."""
    packed = output.rows.packed()
    pieces = output.remaining()
    with progress(output.rows.size, output.finished_rows, run.quiet) as advance:
        if run.workers.scheduler:  # its workers may not see this machine's files
            evaluate = partial(encoded_piece, packed, output.form)
            with closing(run.workers.run(evaluate, pieces)) as contents:
                for piece, content in contents:
                    with _new_part(output.parts, output.form, piece) as file:
                        file.write(content)
                    advance(piece.rows)
            return
        task = partial(_write_part, packed, output.form, output.parts)
        with closing(run.workers.run(task, pieces)) as done:
            for piece, _ in done:
                advance(piece.rows)


def _write_part(packed: bytes, form: str, folder: Path, piece: Piece) -> None:
    """Evaluate a piece into its part; the task of a worker of this machine."""
    with _new_part(folder, form, piece) as file:
        write_piece(packed, form, piece, file)


@contextmanager
def _new_part(folder: Path, form: str, piece: Piece) -> Iterator[IO[bytes]]:
    """Open a part that takes its name once it is complete, even where the power fails.

    The name holds the number and the bytes of the part, so that one that is cut later is noticed.
    """
    temporary = folder / f"part-{piece.number:06}.tmp"
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    size = temporary.stat().st_size
    os.replace(temporary, folder / f"part-{piece.number:06}-{size}.{form}")


def _check_size(output: PartialOutput, path: Path, run: SweepRun) -> None:
    """Say how long a sweep will take, and refuse one that is too large.

    Raises:
        InputError: there are very many rows, or more than the disk holds, and the user says no.
    """
    rows, done = output.rows, output.finished_rows
    task = partial(encoded_piece, rows.packed(), output.form)
    size = announce(rows, task, run, "write", done)
    if rows.size > MANY and not done and not run.confirm(f"Write {rows.size:,} rows?"):
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
    free = free_bytes(path)
    if size <= 2 * free:
        return
    sizes = f"bout {decimal(int(size))} are to be written, {decimal(free)} are free"
    if not run.confirm(f"A{sizes}; begin?"):
        choose = "choose another place or fewer --columns, or begin all the same with --yes"
        raise InputError(f"{path}: a{sizes}; {choose}")

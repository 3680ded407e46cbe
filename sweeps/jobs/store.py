"""Outputs that survive a crash: rows are kept as they come, and take their name only when all are there.

Beside FILE lies `.FILE.partial/` while a sweep runs: the rows so far, and a manifest that says how many of
them are safe. The manifest is replaced in one step, after its rows have reached the disk; what lies beyond
it is written again. A lock on the folder, which ends with the process, keeps a second sweep out.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluation.provenance import place_of, text_of
from nearkv.sweeps.jobs.manifest import Manifest, manifest_of, read_json, write_safely
from nearkv.sweeps.jobs.sinks import (
    REPLACED,
    ChangedError,
    Sink,
    check_free,
    is_whole,
    origin_of,
    sink_of,
)
from nearkv.sweeps.runtime.interrupts import listening

SAVE_EVERY = 0.25
"""Time between two manifests [s]."""
_FLAGS = ("--quiet", "--yes", "--resume")
_ROWS, _MANIFEST, _ORIGIN = "rows", "manifest.json", "provenance.json"


class Store:
    """The output of one sweep while it grows; `store` opens one.

    Attributes:
        complete: nothing is left to do, the output is there already.
        saved: what is safe on disk.
        now: what is written.
        folder: where it grows.
    """

    def __init__(self, path: Path, folder: Path, saved: Manifest, sink: Sink | None) -> None:
        self.complete = sink is None
        self.saved = self.now = saved
        self.folder = folder
        self._path, self._sink, self._when = path, sink, time.monotonic()

    @property
    def sink(self) -> Sink:
        """Where pieces go."""
        assert self._sink, "a complete output takes no more"
        return self._sink

    def add(self, rows: int, piece: bytes) -> None:
        """Append the next piece; every now and then, make safe what there is."""
        self.sink.add(self.now.pieces, piece)
        self.now = self.now.plus(rows, piece)
        if time.monotonic() - self._when > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Make safe what there is."""
        if self.now.pieces > self.saved.pieces:
            self.sink.resolve_knobs()
            write_safely(self.folder / _MANIFEST, text_of(self.now.as_json()))
            self.saved, self._when = self.now, time.monotonic()

    def close(self) -> None:
        """Let go of open files; where nothing is finished, leave nothing behind."""
        if self._sink:
            self._sink.close()
        if not self.saved.pieces or self.complete:
            _clear(self.folder)

    def finish(self, rows: int, origin: Mapping[str, Any]) -> None:
        """Give the output its name, and put beside it where its numbers come from.

        Args:
            rows: how many there must be.
            origin: where its numbers come from; what the output is goes with it, for a later `--resume`.

        Raises:
            InputError: they are not as they were written, or something has come in the way of the name.
        """
        self.save()
        assert self.now.rows == rows, "a sweep adds all of its rows"
        with listening():
            if not self.now.is_of(self.sink.files(self.now.pieces), exactly=True):
                raise ChangedError(
                    f"{self._path}: its rows were changed by another program while it grew"
                )
        if stranger := self.sink.stranger(self.now):
            raise InputError(f"{stranger}: was put there by another program; move it away")
        if place_of(self._path) != self._path:
            raise InputError(f"{self._path}: a link has come in the way of its name; move it away")
        check_free(self._path, self.sink.folder, "move it away")
        write_safely(self.folder / _ORIGIN, text_of({**origin, "output": self.now.as_json()}))
        os.replace(self.folder / _ORIGIN, origin_of(self._path))
        self.sink.name(self._path)
        self.complete = True

    def left(self) -> str:
        """What is safe when a sweep ends early, and how to go on."""
        saved = self.saved
        if not saved.pieces:
            return "nothing was changed"
        try:
            there = manifest_of(read_json(self.folder / _MANIFEST)) == saved and self.sink.there(
                saved
            )
        except (InputError, OSError):
            there = False
        if not there:
            return f"its {saved.rows:,} finished rows are no longer in {self.folder}; start anew, or resume where they are"
        return f"{saved.rows:,} finished rows are safe, go on with: {_again()}"


def _again() -> str:
    """The command that goes on with this one."""
    command = Path(sys.argv[0])
    name = (
        str(command)
        if command.name == "nearkv" and shutil.which("nearkv") != str(command)
        else "nearkv"
    )
    flags = [flag for flag in _FLAGS if flag in sys.argv or flag == "--resume"]
    return " ".join(
        map(_quoted, [name, *(word for word in sys.argv[1:] if word not in _FLAGS), *flags])
    )


def _quoted(word: str) -> str:
    """A word as a shell reads it, bytes that are no text included."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(word)) + "'"


def _clear(folder: Path) -> None:
    """Remove what a sweep puts beside its output; what others put there stays."""
    for name in (_ROWS, _MANIFEST, _ORIGIN, REPLACED):
        for left in (folder / name, (folder / name).with_suffix(".new")):
            with suppress(OSError):
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def growing_of(path: Path) -> Path:
    """Where an output grows, beside its place."""
    return path.parent / f".{path.name}.partial"


@contextmanager
def store(
    path: Path, form: str, identity: Mapping[str, str], resume: bool = False
) -> Iterator[Store]:
    """Open the output of a sweep, new or where it was left.

    Args:
        path: where the output will be.
        form: as `sinks.form_of` says.
        identity: what the rows depend on, by name.
        resume: go on with an unfinished sweep, where there is one.

    Raises:
        InputError: the place cannot be written or is full; another sweep writes there; one is there that is
            unfinished and not to be resumed, is another study's, or is damaged.
    """
    folder = growing_of(path)
    opened, fresh = None, False
    lock = _locked(path, folder)
    try:
        begun = _begun(path, folder, identity, resume)
        complete = _complete(path, identity) if resume and not begun else None
        saved = begun or complete or Manifest(identity)
        fresh = not saved.pieces
        if fresh:
            write_safely(folder / _MANIFEST, text_of(saved.as_json()))
        with listening():  # rows that are there are read once, to see that they are whole
            sink = None if complete else sink_of(form, folder / _ROWS, saved)
        opened = Store(path, folder, saved, sink)
        yield opened
    except (KeyboardInterrupt, InputError, OSError) as problem:
        raise _ended(path, opened, problem) from None
    finally:
        if opened:
            opened.close()
        elif fresh:
            _clear(folder)
        with suppress(OSError):  # stays unless empty
            folder.rmdir()
        os.close(lock)


def _ended(path: Path, opened: Store | None, problem: BaseException) -> BaseException:
    """Make safe what can be, and tell the user why a sweep ended early, what is left and how to go on."""
    if isinstance(problem, ChangedError) and opened and opened.saved.pieces:
        return InputError(f"{problem}; delete {opened.folder} to start anew")
    if opened:
        with suppress(OSError):
            opened.save()
    left = opened.left() if opened else "nothing was changed"
    if isinstance(problem, KeyboardInterrupt):
        return KeyboardInterrupt(f"stopped; {left}")
    if isinstance(problem, OSError):
        gone = opened and not opened.folder.exists()
        place = problem.filename if isinstance(problem, IsADirectoryError) else path
        return InputError(
            f"{place}: cannot be written ({'its folder is gone' if gone else problem.strerror}); {left}"
        )
    return InputError(f"{problem}; {left}") if opened else problem


def _locked(path: Path, folder: Path) -> int:
    """Create the folder and lock it.

    A sweep that ends removes its folder, so a lock counts only if the folder still has its name.
    """
    try:
        while True:
            folder.mkdir(exist_ok=True)
            lock = os.open(folder, os.O_RDONLY)
            with suppress(FileNotFoundError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(folder)):
                    return lock
            os.close(lock)
    except BlockingIOError:
        os.close(lock)
        raise InputError(
            f"{path}: another sweep is writing it; wait for it, or choose another name"
        ) from None
    except FileExistsError:
        raise InputError(
            f"{folder}: a file is in the place where {path.name} would grow; remove it"
        ) from None
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be written ({problem.strerror}); choose another place"
        ) from None


def _begun(path: Path, folder: Path, identity: Mapping[str, str], resume: bool) -> Manifest | None:
    """What was finished of this sweep, if anything.

    Raises:
        InputError: it is not to be resumed, is another study's, or is damaged.
    """
    found = _manifest(path, folder)
    if found is None or not found.pieces:
        return None
    if not (folder / _ROWS).exists():
        if found == _written(
            path
        ):  # the output has taken its name, and a crash came before the rest was gone
            return None
        raise InputError(
            f"{path}: its unfinished sweep has a manifest of {found.rows:,} rows, but they are gone; "
            f"restore {folder / _ROWS}, or delete {folder} to start anew"
        )
    if not resume:
        raise InputError(
            f"{path}: an unfinished sweep with {found.rows:,} rows is there; go on with --resume, or delete {folder}"
        )
    if differs := found.differs(identity):
        raise InputError(
            f"{path}: what is there was begun {differs}; give the same again, or delete {folder}"
        )
    return found


def _manifest(path: Path, folder: Path) -> Manifest | None:
    file = folder / _MANIFEST
    if not file.exists() and not (folder / _ROWS).exists():
        return None
    try:
        return manifest_of(read_json(file))
    except InputError as problem:
        raise InputError(
            f"{path}: the manifest of its unfinished sweep is damaged ({problem}); restore {file}, or delete {folder}"
        ) from None


def _written(path: Path) -> Manifest | None:
    """What the record beside a finished output says of it; None where there is none."""
    try:
        return manifest_of(read_json(origin_of(path))["output"])
    except (InputError, KeyError, TypeError):
        return None


def _complete(path: Path, identity: Mapping[str, str]) -> Manifest | None:
    """What an output that is there holds, if it is of this very study; None where none is there.

    Raises:
        InputError: one is there of another study, or has changed since.
    """
    if not path.exists():
        return None
    anew = f"choose another name, or leave out --resume to replace {path}"
    found = _written(path)
    if found is None:
        raise InputError(
            f"{path}: nothing beside it says that a sweep wrote it, so none can go on; {anew}"
        )
    if differs := found.differs(identity):
        raise InputError(f"{path}: is finished, and was written {differs}; {anew}")
    with listening():
        if not is_whole(path, found):
            raise InputError(f"{path}: was finished and has changed since; {anew}")
    return found

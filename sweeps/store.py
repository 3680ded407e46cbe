"""Outputs that survive a crash: rows are kept as they come, and take their name only when all are there.

Beside FILE lies `.FILE.partial/` while a sweep runs: the rows so far, and a manifest that says how many of
them are safe. The manifest is replaced in one step, after its rows have reached the disk; what lies beyond
it is written again. A lock on the folder, which ends with the process, keeps a second sweep out.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from hardware.errors import InputError
from sweeps.sinks import Sink, origin_of, sink_of

SAVE_EVERY = 0.25
"""The most work a crash costs [s]."""
_ROWS, _MANIFEST, _ORIGIN = "rows", "manifest.json", "provenance.json"


@dataclass(frozen=True)
class Manifest:
    """What of a sweep is finished.

    Attributes:
        identity: what the rows depend on; a sweep goes on only where all of it is the same.
        pieces, rows, size: finished so far; size in bytes [B].
    """

    identity: Mapping[str, str]
    pieces: int = 0
    rows: int = 0
    size: int = 0

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder."""
        write_safely(folder / _MANIFEST, json.dumps(asdict(self), indent=1) + "\n")


def write_safely(path: Path, text: str) -> None:
    """Replace a file in one step, once its text has reached the disk."""
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


class Store:
    """The output of one sweep while it grows; `store` opens one.

    Attributes:
        saved: what is safe on disk.
        now: what is written.
    """

    def __init__(self, path: Path, folder: Path, saved: Manifest, sink: Sink) -> None:
        self.saved = self.now = saved
        self._path, self._folder, self._sink, self._when = path, folder, sink, time.monotonic()

    def add(self, rows: int, piece: bytes) -> None:
        """Append the next piece; every now and then, make safe what there is."""
        now = self.now
        self._sink.add(now.pieces, piece)
        self.now = replace(now, pieces=now.pieces + 1, rows=now.rows + rows, size=now.size + len(piece))
        if time.monotonic() - self._when > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Make safe what there is."""
        if self.now.pieces > self.saved.pieces:
            self._sink.settle()
            self.now.write(self._folder)
            self.saved, self._when = self.now, time.monotonic()

    def close(self) -> None:
        """Let go of open files; where nothing is finished, leave nothing behind."""
        self._sink.close()
        if not self.saved.pieces:
            shutil.rmtree(self._folder, ignore_errors=True)

    def finish(self) -> None:
        """Give the output its name, and put beside it where its numbers come from."""
        self.save()
        with suppress(FileNotFoundError):  # there already, if a crash came between the two
            os.replace(self._folder / _ORIGIN, origin_of(self._path))
        self._sink.name(self._path)
        shutil.rmtree(self._folder)


@contextmanager
def store(path: Path, form: str, identity: Mapping[str, str], origin: str, resume: bool = False) -> Iterator[Store]:
    """Open the output of a sweep, new or where it was left.

    Args:
        path: where the output will be.
        form: as `sinks.form_of` says.
        identity: what the rows depend on, by name.
        origin: text that goes beside the output.
        resume: go on with an unfinished sweep, where there is one.

    Raises:
        InputError: the place cannot be written or is full; another sweep writes there; an unfinished
            one is there and not to be resumed, is another study's, or is damaged.
    """
    folder = path.parent / f".{path.name}.partial"
    opened: Store | None = None
    lock = _locked(path, folder)
    try:
        manifest = _begun(path, folder, Manifest(identity), origin, resume)
        opened = Store(path, folder, manifest, sink_of(form, folder / _ROWS, manifest.pieces, manifest.size))
        yield opened
    except (KeyboardInterrupt, InputError, OSError) as problem:
        raise _ended(path, opened, problem) from None
    finally:
        if opened:
            opened.close()
        with suppress(OSError):  # stays unless empty
            folder.rmdir()
        os.close(lock)


def _ended(path: Path, opened: Store | None, problem: BaseException) -> BaseException:
    """Make safe what can be, and tell the user why a sweep ended early, what is left and how to go on."""
    if opened:
        with suppress(OSError):
            opened.save()
    if isinstance(problem, KeyboardInterrupt):
        return KeyboardInterrupt(f"stopped; {_left(opened)}")
    if isinstance(problem, OSError):
        gone = opened and problem.errno == errno.ENOENT
        return InputError(
            f"{path}: cannot be written ({'its folder is gone' if gone else problem.strerror}); {_left(opened)}"
        )
    return InputError(f"{problem}; {_left(opened)}") if opened else problem


def _left(opened: Store | None) -> str:
    """What is safe when a sweep ends early, and how to go on."""
    if not opened or not opened.saved.pieces:
        return "nothing was changed"
    again = shlex.join([*(word for word in sys.argv[1:] if word != "--resume"), "--resume"])
    return f"{opened.saved.rows:,} finished rows are safe, go on with: nearkv {again}"


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
        raise InputError(f"{path}: another sweep is writing it; wait for it, or choose another name") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be written ({problem.strerror}); choose another place") from None


def _begun(path: Path, folder: Path, fresh: Manifest, origin: str, resume: bool) -> Manifest:
    """What was finished of this sweep, or a fresh manifest."""
    found = _manifest(path, folder)
    if found and found.pieces and (folder / _ROWS).exists():
        if not resume:
            raise InputError(
                f"{path}: an unfinished sweep with {found.rows:,} rows is there; "
                f"go on with --resume, or delete {folder}"
            )
        for name, value in fresh.identity.items():
            if found.identity.get(name) != value:
                began = f"with {name} {found.identity.get(name)}" if name != "study" else "for another study"
                raise InputError(f"{path}: what is there was begun {began}; delete {folder} to start anew")
        return found
    write_safely(folder / _ORIGIN, origin)
    fresh.write(folder)
    return fresh


def _manifest(path: Path, folder: Path) -> Manifest | None:
    file = folder / _MANIFEST
    if not file.exists() and not (folder / _ROWS).exists():
        return None
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        found = Manifest(**{field.name: table[field.name] for field in fields(Manifest)})
        numbers = (found.pieces, found.rows, found.size)
        if isinstance(found.identity, dict) and all(type(n) is int and n >= 0 for n in numbers):
            return found
        problem = "its numbers are none"
    except (OSError, ValueError, KeyError, TypeError) as caught:
        problem = str(caught)
    raise InputError(
        f"{path}: the manifest of its unfinished sweep is damaged ({problem}); restore {file}, or delete {folder}"
    )

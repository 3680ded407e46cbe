"""Outputs that survive a crash: they take their name in one step, when all rows are there.

Beside FILE lies `.FILE.partial/` while a sweep runs: `study.json`, which says what the rows depend
on, and a folder `parts`, whose listing says what is finished; see `growth`.

What each guard defends against:

- a lock on the folder, which ends with the process: a second sweep on the same output;
- `study.json`: going on with the rows of another study, code or version;
- a folder of one's own, opened without following links: somebody who prepared it in a shared
  folder, to have files written or deleted elsewhere;
- the check of the dataset that is replaced: files of the user's own in it;
- size and identity beside a finished output: `--resume` on one that is finished already.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.provenance import text_of
from nearkv.sweeps.jobs.growth import growth_of
from nearkv.sweeps.jobs.identity import difference
from nearkv.sweeps.jobs.interrupts import listening
from nearkv.sweeps.jobs.outputs import (
    check_free,
    provenance_path,
    size_of,
    staging_path,
)
from nearkv.sweeps.jobs.parts import locked, new_name, write_safely
from nearkv.sweeps.jobs.plan import Piece
from nearkv.sweeps.jobs.resume import resume_command

SAVE_EVERY = 0.25
"""Time between two moments at which parts are made safe [s]."""


class Staging:
    """The output of one sweep while it grows; `staged` opens one.

    Attributes:
        complete: nothing is left to do, the output exists already.
        rows: that are safe.
        parts: the folder in which workers leave what they wrote.
        opened: it may be written.
    """

    def __init__(
        self, path: Path, form: str, pieces: Callable[[], Iterator[Piece]]
    ) -> None:
        self.complete = self.opened = False
        self.rows = self._rows_added = 0
        self.folder = staging_path(path)
        self.parts = self.folder / "parts"
        self._path, self._form, self._pieces = path, form, pieces

    def open(self, identity: Mapping[str, str], resume: bool) -> None:
        """Begin, or go on where an earlier run stopped.

        Raises:
            InputError: the rows of an earlier run are not to be resumed, or are another study's.
        """
        self._identity = identity
        self._growth = growth_of(self._form, self.parts)
        if self._growth.safe:
            self._check_resumable(resume)
        elif resume and self._is_finished():
            self.complete = True
            self._clear()
            return
        else:
            self._clear()
            write_safely(self.folder / "study.json", text_of(dict(identity)))
        self._growth.begin()
        self.rows = self._rows_added = self._safe_rows()
        self._saved_at = time.monotonic()
        self.opened = True

    def _safe_rows(self) -> int:
        """Rows of the pieces that an earlier run made safe; looks at none after the last."""
        safe = self._growth.safe
        begun = islice(self._pieces(), max(safe, default=-1) + 1)
        return sum(piece.rows for piece in begun if piece.number in safe)

    def remaining(self) -> Iterator[Piece]:
        """The pieces that are not finished, in order."""
        return (piece for piece in self._pieces() if piece.number not in self._growth.safe)

    def add(self, piece: Piece, content: bytes | None) -> None:
        """Take the next piece, from memory or from a worker; every now and then, make it safe."""
        self._growth.add(piece.number, content)
        self._rows_added += piece.rows
        if time.monotonic() - self._saved_at > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Make safe what was added."""
        self._growth.save()
        self.rows = self._rows_added
        self._saved_at = time.monotonic()

    def finish(self, origin: Mapping[str, Any]) -> None:
        """Give the output its name, and put beside it where its numbers come from.

        Raises:
            InputError: a part is gone, or something has come in the way of the name.
        """
        self.save()
        whole = self._growth.whole()
        dataset = whole.is_dir()
        check_free(self._path, dataset, "move it away")
        output = {
            "identity": dict(self._identity),
            "rows": self.rows,
            "bytes": size_of(whole),
        }
        record = self.folder / "provenance.json"
        write_safely(record, text_of({**origin, "output": output}))
        os.replace(record, provenance_path(self._path))
        if dataset and self._path.exists():
            os.replace(self._path, self.folder / "replaced")
        os.replace(whole, self._path)
        self.complete = True

    def close(self) -> None:
        """Let go of open files; where nothing is finished, or all is, leave nothing behind."""
        if not self.opened:
            return
        self._growth.close()
        if self.complete or not self.rows:
            self._clear()

    def left(self) -> str:
        """What is safe when a sweep ends early, and how to go on."""
        if not self.rows:
            return "nothing was changed"
        if not self.parts.is_dir():
            rows = f"its {self.rows:,} finished rows are no longer in {self.folder}"
            return f"{rows}; start anew, or resume where they are"
        return f"{self.rows:,} finished rows are safe, go on with: {resume_command()}"

    def _check_resumable(self, resume: bool) -> None:
        unfinished = f"{self._path}: an unfinished sweep"
        delete = f"delete {self.folder}"
        if not resume:
            raise InputError(f"{unfinished} is there; go on with --resume, or {delete}")
        try:
            before = json.loads((self.folder / "study.json").read_text(encoding="utf-8"))
            differs = difference(before, self._identity)
        except (OSError, ValueError, RecursionError, AttributeError, TypeError):
            message = "is there, but study.json, which says of what study, cannot be read"
            raise InputError(f"{unfinished} {message}; {delete}") from None
        if differs:
            raise InputError(
                f"{unfinished} was begun {differs}; give the same again, or {delete}"
            )

    def _is_finished(self) -> bool:
        """Whether an output is there that is of this very study.

        Raises:
            InputError: it is of another study, or has changed since.
        """
        if not self._path.exists():
            return False
        anew = f"choose another name, or leave out --resume to replace {self._path}"
        try:
            text = provenance_path(self._path).read_text(encoding="utf-8")
            output = json.loads(text)["output"]
            differs = difference(output["identity"], self._identity)
            rows, size = int(output["rows"]), int(output["bytes"])
        except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
            unknown = "nothing beside it says that a sweep wrote it, so none can go on"
            raise InputError(f"{self._path}: {unknown}; {anew}") from None
        if differs:
            raise InputError(
                f"{self._path}: is finished, and was written {differs}; {anew}"
            )
        if size != size_of(self._path):
            raise InputError(f"{self._path}: was finished and has changed since; {anew}")
        self.rows = rows
        return True

    def _clear(self) -> None:
        """Remove what a sweep puts beside its output; what others put there stays."""
        files = [self.folder / "study.json", self.folder / "provenance.json"]
        folders = [self.parts, self.folder / "replaced"]
        for folder in folders:
            if folder.is_dir() and not folder.is_symlink():
                files += [*folder.glob("part-*"), *folder.glob("rows-*")]
        for file in files:
            file.unlink(missing_ok=True)
            new_name(file).unlink(missing_ok=True)
        for folder in folders:
            with suppress(OSError):  # stays unless empty
                folder.rmdir()


@contextmanager
def staged(
    path: Path,
    form: str,
    identity: Mapping[str, str],
    pieces: Callable[[], Iterator[Piece]],
    resume: bool = False,
) -> Iterator[Staging]:
    """Open the output of a sweep, new or where it was left.

    Args:
        path: where the output will be.
        form: as `outputs.form_of` says.
        identity: what the rows depend on, by name.
        pieces: all pieces of the sweep, in order.
        resume: go on with an unfinished sweep, where there is one.

    Raises:
        InputError: the place cannot be written or is full; another sweep writes there; one is
            there that is unfinished and not to be resumed, or is another study's.
    """
    staging = Staging(path, form, pieces)
    lock = locked(path, staging.folder)
    try:
        staging.open(identity, resume)
        with listening():
            pass
        yield staging
    except (KeyboardInterrupt, InputError, OSError) as problem:
        raise _ended(path, staging if staging.opened else None, problem) from None
    finally:
        staging.close()
        with suppress(OSError):  # stays unless empty
            staging.folder.rmdir()
        os.close(lock)


def _ended(path: Path, staging: Staging | None, problem: BaseException) -> BaseException:
    """Make safe what can be, and say why a sweep ended early, what is left and how to go on."""
    left = "nothing was changed"
    if staging:
        with suppress(OSError):
            staging.save()
        left = staging.left()
    if isinstance(problem, KeyboardInterrupt):
        return KeyboardInterrupt(f"stopped; {left}")
    if isinstance(problem, OSError):
        gone = staging and not staging.folder.exists()
        reason = "its folder is gone" if gone else problem.strerror
        return InputError(f"{path}: cannot be written ({reason}); {left}")
    return InputError(f"{problem}; {left}") if staging else problem

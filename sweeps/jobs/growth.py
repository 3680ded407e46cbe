"""Finished pieces of an output under way; the names of their files say what is safe.

A dataset has a file for every part, which gets its name when it has reached the disk. A text grows
in one file, since writing it twice would cost a seventh of a sweep's time and twice the room; its
name holds how many pieces and bytes of it are safe, and changes when more have reached the disk.
Workers of this machine leave pieces under temporary names.
"""

from __future__ import annotations

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.parts import (
    NEW,
    append,
    new_name,
    open_to_grow,
    part_name,
    settle,
    sync_folder,
    write_all,
    write_new,
)


class Growth(ABC):
    """What of an output is finished.

    Attributes:
        folder: where it lies.
        safe: numbers of the pieces that have reached the disk.
    """

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self._form = folder, form
        self.safe = set(self._finished())

    def begin(self) -> None:
        """Get ready to add pieces."""
        self.folder.mkdir(exist_ok=True)

    @abstractmethod
    def add(self, number: int, content: bytes | None) -> None:
        """Take the next piece, from memory or, where a worker wrote it, from its temporary file."""

    @abstractmethod
    def save(self) -> None:
        """Make safe what was added."""

    @abstractmethod
    def whole(self) -> Path:
        """The file or folder that becomes the output, once all is safe."""

    @abstractmethod
    def close(self) -> None:
        """Let go of open files."""

    @abstractmethod
    def _finished(self) -> Iterator[int]:
        """Numbers of the pieces that an earlier run made safe."""

    def _entries(self) -> Iterator[Path]:
        """What lies in the folder, without temporary files, which are removed.

        Raises:
            InputError: the folder is a link, or holds one.
        """
        if not os.path.lexists(self.folder):
            return
        if not stat.S_ISDIR(self.folder.lstat().st_mode):
            raise InputError(f"{self.folder}: is no folder; remove it")
        for entry in sorted(self.folder.iterdir()):
            if entry.name.endswith(NEW):
                entry.unlink()
            elif stat.S_ISREG(entry.lstat().st_mode):
                yield entry
            else:
                raise _stranger(entry)

    def _part(self, number: int) -> Path:
        return self.folder / part_name(number, self._form)


class Dataset(Growth):
    """A file for every part."""

    def begin(self) -> None:
        """Get ready to add parts."""
        super().begin()
        self._waiting: list[int] = []

    def add(self, number: int, content: bytes | None) -> None:
        """Take the next part."""
        if content is not None:
            write_new(self._part(number), content)
        self._waiting.append(number)

    def save(self) -> None:
        """Give names to the parts that have reached the disk."""
        while self._waiting:
            settle(self._part(self._waiting[0]))
            self.safe.add(self._waiting.pop(0))
        sync_folder(self.folder)

    def whole(self) -> Path:
        """The folder; it holds the parts and nothing else.

        Raises:
            InputError: a part is gone, or one too many is there.
        """
        listed = set(self._finished())
        for number in sorted(self.safe - listed):
            raise InputError(f"{self._part(number)}: was removed by another program")
        for number in sorted(listed - self.safe):
            raise _stranger(self._part(number))
        return self.folder

    def close(self) -> None:
        """No part stays open."""

    def _finished(self) -> Iterator[int]:
        for entry in self._entries():
            number = entry.name.removeprefix("part-").removesuffix(f".{self._form}")
            if not number.isdecimal():
                raise _stranger(entry)
            yield int(number)


class Text(Growth):
    """All pieces one after the other."""

    def begin(self) -> None:
        """Open the file, and drop what lies beyond what is safe.

        Raises:
            InputError: it is shorter than that.
        """
        super().begin()
        self._added = len(self.safe)
        self._path = self._named()
        self._file = open_to_grow(self._path)
        if os.fstat(self._file.fileno()).st_size < self._size:
            raise InputError(f"{self._path}: was cut by another program; remove it")
        self._file.truncate(self._size)
        self._file.seek(0, os.SEEK_END)

    def add(self, number: int, content: bytes | None) -> None:
        """Append the next piece; what does not fit is cut when the sweep goes on."""
        if content is None:
            append(new_name(self._part(number)), self._file)
            new_name(self._part(number)).unlink()
        else:
            write_all(self._file, content)
        self._size = self._file.tell()
        self._added += 1

    def save(self) -> None:
        """Let the name of the file say what has reached the disk."""
        os.fsync(self._file.fileno())
        renamed = self._named()
        os.replace(self._path, renamed)
        self._path = renamed
        sync_folder(self.folder)
        self.safe = set(range(self._added))

    def whole(self) -> Path:
        """The file.

        Raises:
            InputError: it has another length than what was written.
        """
        if self._path.stat().st_size != self._size:
            raise InputError(f"{self._path}: was changed by another program; remove it")
        return self._path

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _named(self) -> Path:
        return self.folder / f"rows-{self._added:06}-{self._size}"

    def _finished(self) -> Iterator[int]:
        self._size = 0
        for entry in self._entries():
            safe = re.fullmatch(r"rows-(\d+)-(\d+)", entry.name)
            if not safe:
                raise _stranger(entry)
            self._size = int(safe[2])
            yield from range(int(safe[1]))


def growth_of(form: str, folder: Path) -> Growth:
    """What of an output of a form is finished in a folder."""
    return Dataset(folder, form) if form == "parquet" else Text(folder, form)


def _stranger(path: Path) -> InputError:
    return InputError(f"{path}: was put there by another program; remove it")

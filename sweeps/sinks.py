"""Where pieces of a growing output go: the end of one file, or a folder of parts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

from hardware.errors import InputError, unknown

FORMS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""What the end of a file's name says of its form."""


def form_of(path: Path) -> str:
    """The form a file's name asks for.

    Raises:
        InputError: none that is known.
    """
    if path.suffix not in FORMS:
        raise unknown("form", path.suffix, FORMS, f"{path}: its end says what to write")
    return FORMS[path.suffix]


def origin_of(path: Path) -> Path:
    """The file beside an output that says where its numbers come from."""
    return path.with_name(f"{path.name}.provenance.json")


def check_free(path: Path, form: str) -> None:
    """Refuse to replace what is not an output of the same form.

    Raises:
        InputError: a folder has the name of a file, a file that of a dataset, or a folder holds other things.
    """
    if form == "parquet" and path.is_dir():
        others = [file.name for file in path.iterdir() if not (file.suffix == ".parquet" and file.stem[:5] == "part-")]
        if others:
            raise InputError(f"{path}: holds {others[0]!r}, so it is no dataset to replace; choose another name")
    elif path.exists() and path.is_dir() != (form == "parquet"):
        raise InputError(f"{path}: is a {'folder' if path.is_dir() else 'file'} already; choose another name")


class Sink(ABC):
    """Pieces of an output under way.

    Args:
        place: where they lie until the output is complete.
        pieces, size: how many are safe there, and their bytes [B]; what lies beyond is dropped.

    Raises:
        InputError: fewer lie there.
    """

    def __init__(self, place: Path, pieces: int, size: int) -> None:
        self.place = place
        there = self.cut(pieces, size)
        if there != size:
            raise InputError(
                f"{place}: holds {there:,} bytes where its manifest says {size:,}; restore it, or delete "
                f"{place.parent} to start anew"
            )

    @abstractmethod
    def cut(self, pieces: int, size: int) -> int:
        """Drop what lies beyond some pieces; say how many bytes are left [B]."""

    @abstractmethod
    def add(self, number: int, piece: bytes) -> None:
        """Write a piece."""

    @abstractmethod
    def settle(self) -> None:
        """See to it that all pieces have reached the disk."""

    @abstractmethod
    def name(self, path: Path) -> None:
        """Give the output its name."""

    @abstractmethod
    def close(self) -> None:
        """Let go of open files."""


class OneFile(Sink):
    """All pieces one after the other."""

    def cut(self, pieces: int, size: int) -> int:
        """Shorten the file."""
        self._file = self.place.open("r+b" if pieces else "wb", buffering=0)
        there = os.fstat(self._file.fileno()).st_size
        self._file.truncate(min(size, there))
        self._file.seek(0, os.SEEK_END)
        return min(size, there)

    def add(self, number: int, piece: bytes) -> None:
        """Append a piece; all of it or nothing."""
        start, left = self._file.tell(), memoryview(piece)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(start)  # leaves a full disk the room for a manifest
            raise

    def settle(self) -> None:
        """Wait for the disk."""
        os.fsync(self._file.fileno())

    def name(self, path: Path) -> None:
        """Rename the file; one that had the name is replaced."""
        os.replace(self.place, path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Parts(Sink):
    """A file for every piece, in a folder that reads as one dataset."""

    def cut(self, pieces: int, size: int) -> int:
        """Drop parts, and any that were not finished."""
        self.place.mkdir(exist_ok=True)
        kept = {self._part(number) for number in range(pieces)}
        for file in set(self.place.iterdir()) - kept:
            file.unlink()
        return sum(file.stat().st_size for file in kept if file.exists())

    def add(self, number: int, piece: bytes) -> None:
        """Write a part; it has its name only when complete."""
        part = self._part(number)
        temporary = part.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, part)
        finally:
            temporary.unlink(missing_ok=True)

    def settle(self) -> None:
        """Every part settled as it was written."""

    def name(self, path: Path) -> None:
        """Rename the folder; a dataset that had the name is moved out of its way first."""
        if path.exists():
            os.replace(path, self.place.with_name("replaced"))
        os.replace(self.place, path)

    def close(self) -> None:
        """No part stays open."""

    def _part(self, number: int) -> Path:
        return self.place / f"part-{number:06}.parquet"


def sink_of(form: str, place: Path, pieces: int, size: int) -> Sink:
    """Open the place where an output of some form grows, as `Sink`."""
    return (Parts if form == "parquet" else OneFile)(place, pieces, size)

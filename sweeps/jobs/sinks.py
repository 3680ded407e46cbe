"""Where pieces of a growing output go: the end of one file, or a folder of parts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.jobs.manifest import Manifest

REPLACED = "replaced"
"""What a dataset is called while another takes its name."""
FORMS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""What the end of a file's name says of its form."""


def form_of(path: Path) -> str:
    """The form a file's name asks for.

    Raises:
        InputError: none that is known.
    """
    if path.suffix in FORMS:
        return FORMS[path.suffix]
    if path.suffix and not path.is_dir():
        raise unknown("form", path.suffix, FORMS, f"{path}: its end says what to write")
    why = (
        "is a folder; name a file in it"
        if path.is_dir()
        else "has no end that says what to write; name a file"
    )
    raise InputError(f"{path}: {why} that ends in {', '.join(FORMS)}")


def origin_of(path: Path) -> Path:
    """The file beside an output that says where its numbers come from."""
    return path.with_name(f"{path.name}.provenance.json")


def check_free(path: Path, folder: bool, otherwise: str = "choose another name") -> None:
    """Refuse to replace what is not an output of the same kind, or what its owner protects.

    Args:
        path: where an output will be.
        folder: it is a dataset.
        otherwise: what to do about it.

    Raises:
        InputError: a folder has the name of a file, a file that of a dataset, a folder holds other things,
            something may not be written, or the record beside the output cannot have its name.
    """
    beside = origin_of(path)
    if len(os.fsencode(beside.name)) > _LONGEST_NAME:
        raise InputError(
            f"{path}: its name and that of the record beside it are too long; choose a shorter one"
        )
    if beside.is_dir():
        raise InputError(
            f"{beside}: is a folder, in the place of the record beside {path.name}; {otherwise}"
        )
    if not path.exists():
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise InputError(
            f"{path}: is there and may not be written; {otherwise}, or change its mode"
        )
    if path.is_dir() != folder:
        raise InputError(
            f"{path}: is a {'folder' if path.is_dir() else 'file'} already; {otherwise}"
        )
    if folder and (others := _others(path)):
        raise InputError(
            f"{path}: holds {others[0]!r}, so it is no dataset to replace; {otherwise}"
        )


_LONGEST_NAME = 255
"""Bytes that file systems allow a name."""


def _others(dataset: Path) -> list[str]:
    """What is no part of a dataset in its folder."""
    return [
        file.name
        for file in dataset.iterdir()
        if not (file.suffix == ".parquet" and file.stem[:5] == "part-")
    ]


class ChangedError(InputError):
    """Rows that another program changed, so that what is there is not what was written."""


class Sink(ABC):
    """Pieces of an output under way.

    Args:
        place: where they lie until the output is complete.
        begun: which of them are safe there; what lies beyond is dropped.

    Raises:
        InputError: something else lies there; then nothing is touched.
    """

    folder: ClassVar[bool]
    """Whether the output is a folder."""

    def __init__(self, place: Path, begun: Manifest) -> None:
        self.place = place
        # what lies behind it in a file is dropped; in a part it could not be
        if begun.pieces and not begun.is_of(self.files(begun.pieces), exactly=self.folder):
            raise InputError(
                f"{place}: the {begun.size:,} bytes of {begun.rows:,} finished rows are not as they were written; "
                f"restore them, or delete {place.parent} to start anew"
            )
        self.open(begun)

    @abstractmethod
    def files(self, pieces: int) -> Iterable[Path]:
        """Where so many pieces lie, in order."""

    @abstractmethod
    def open(self, begun: Manifest) -> None:
        """Get ready to add, and drop what lies beyond what is safe."""

    @abstractmethod
    def add(self, number: int, piece: bytes) -> None:
        """Write a piece."""

    @abstractmethod
    def resolve_knobs(self) -> None:
        """See to it that all pieces have reached the disk, and are where they were put."""

    def stranger(self, safe: Manifest) -> Path | None:
        """Something that lies among the pieces and is none of them."""
        return None

    def there(self, safe: Manifest) -> bool:
        """Whether the pieces that are safe still lie there, by their size."""
        return (
            sum(file.stat().st_size for file in self.files(safe.pieces) if file.exists())
            >= safe.size
        )

    @abstractmethod
    def name(self, path: Path) -> None:
        """Give the output its name."""

    @abstractmethod
    def close(self) -> None:
        """Let go of open files."""


class OneFile(Sink):
    """All pieces one after the other."""

    folder = False

    def files(self, pieces: int) -> Iterable[Path]:
        """The file."""
        return (self.place,)

    def open(self, begun: Manifest) -> None:
        """Shorten the file."""
        self._file = self.place.open("r+b" if begun.pieces else "wb", buffering=0)
        self._file.truncate(begun.size)
        self._file.seek(0, os.SEEK_END)

    def add(self, number: int, piece: bytes) -> None:
        """Append a piece; all of it or nothing."""
        start, left = self._file.tell(), memoryview(piece)
        if (size := os.fstat(self._file.fileno()).st_size) < start:
            raise ChangedError(f"{self.place}: was cut by another program while it grew")
        if size > start:  # going on drops it
            raise InputError(f"{self.place}: was added to by another program")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(start)  # leaves a full disk the room for a manifest
            raise

    def resolve_knobs(self) -> None:
        """Wait for the disk; a file that lost its name would take all rows with it."""
        os.fsync(self._file.fileno())
        named = self.place.stat() if self.place.exists() or not self.place.parent.exists() else None
        if not named or not os.path.samestat(os.fstat(self._file.fileno()), named):
            raise ChangedError(
                f"{self.place}: was {'replaced' if named else 'removed'} by another program"
            )

    def name(self, path: Path) -> None:
        """Rename the file; one that had the name is replaced."""
        os.replace(self.place, path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Parts(Sink):
    """A file for every piece, in a folder that reads as one dataset."""

    folder = True

    def files(self, pieces: int) -> Iterable[Path]:
        """The parts."""
        return parts_of(self.place, pieces)

    def open(self, begun: Manifest) -> None:
        """Drop parts that are not safe, and any that were not finished."""
        self.place.mkdir(exist_ok=True)
        for file in set(self.place.glob("part-*")) - set(self.files(begun.pieces)):
            file.unlink()

    def stranger(self, safe: Manifest) -> Path | None:
        """A file that is no part."""
        return stranger_in(self.place, safe.pieces)

    def add(self, number: int, piece: bytes) -> None:
        """Write a part; it has its name only when complete."""
        part = part_of(self.place, number)
        if number and self.place.exists() and not part_of(self.place, number - 1).exists():
            raise ChangedError(f"{part_of(self.place, number - 1)}: was removed by another program")
        temporary = part.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, part)
        finally:
            temporary.unlink(missing_ok=True)

    def resolve_knobs(self) -> None:
        """Every part settled as it was written; wait for their names."""
        folder = os.open(self.place, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def name(self, path: Path) -> None:
        """Rename the folder; a dataset that had the name is moved out of its way first, and back if it is none."""
        replaced = self.place.with_name(REPLACED)
        if path.exists():
            os.replace(path, replaced)
            if others := _others(replaced):
                os.replace(replaced, path)
                raise InputError(
                    f"{path}: holds {others[0]!r}, so it is no dataset to replace; move it away"
                )
        os.replace(self.place, path)

    def close(self) -> None:
        """No part stays open."""


def part_of(folder: Path, number: int) -> Path:
    """Where a part of a dataset lies."""
    return folder / f"part-{number:06}.parquet"


def parts_of(folder: Path, pieces: int) -> list[Path]:
    """Where so many parts lie, in order."""
    return [part_of(folder, number) for number in range(pieces)]


def stranger_in(folder: Path, pieces: int) -> Path | None:
    """What lies in a dataset of so many parts and is none of them."""
    return min(set(folder.iterdir()) - set(parts_of(folder, pieces)), default=None)


def sink_of(form: str, place: Path, begun: Manifest) -> Sink:
    """Open the place where an output of some form grows, as `Sink`."""
    return (Parts if form == "parquet" else OneFile)(place, begun)


def is_whole(path: Path, written: Manifest) -> bool:
    """Whether a finished output is as it was written, with nothing beside it; reads all of it."""
    if not path.is_dir():
        return written.is_of([path], exactly=True)
    return not stranger_in(path, written.pieces) and written.is_of(
        parts_of(path, written.pieces), exactly=True
    )

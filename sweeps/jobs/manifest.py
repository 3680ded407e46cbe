"""What of an output is finished, and whose it is; every word of it is checked before it is believed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from zlib import crc32

from nearkv.hardware.errors import InputError

_BLOCK = 1 << 20
SELF = "sha256_of_this_record"
"""Under which name a manifest holds its own checksum."""


@dataclass(frozen=True)
class Manifest:
    """What of a sweep is finished.

    Attributes:
        identity: what the rows depend on; a sweep goes on only where all of it is the same.
        pieces, rows, size: finished so far; size in bytes [B].
        crc: CRC-32 of these bytes.
    """

    identity: Mapping[str, str]
    pieces: int = 0
    rows: int = 0
    size: int = 0
    crc: int = 0

    def plus(self, rows: int, piece: bytes) -> Manifest:
        """With one more piece."""
        grown = (self.pieces + 1, self.rows + rows, self.size + len(piece), crc32(piece, self.crc))
        return Manifest(self.identity, *grown)

    def is_of(self, files: Iterable[Path], exactly: bool) -> bool:
        """Whether some files hold these bytes, and, exactly, nothing behind them; reads them all."""
        return sums_of(files, self.size + exactly) == (self.size, self.crc)

    def as_json(self) -> dict[str, Any]:
        """As JSON knows it, with a checksum of itself."""
        return {**asdict(self), SELF: _sum(asdict(self))}

    def differs(self, wanted: Mapping[str, str]) -> str:
        """In what its rows are not those wanted, in words; empty where they are."""
        names = [
            name
            for name in {**wanted, **self.identity}
            if self.identity.get(name) != wanted.get(name)
        ]
        if versions := [name for name in names if name in VERSIONS]:
            return f"with {versions[0]} {self.identity.get(versions[0])}"
        if CODE in names:
            return "before nearkv's own code was changed"
        options = [name for name in names if name.startswith("--")]
        if options:
            return f"with {'another' if len(options) == 1 else 'other'} {' and '.join(options)}"
        return "for another study" if names else ""


CODE = "code"
"""What the identity calls the digest of nearkv's own modules."""
VERSIONS = ("nearkv", "numpy", "pyarrow")
"""Packages whose version the bytes of an output may depend on."""


def _sum(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def manifest_of(table: Any) -> Manifest:
    """Read what `Manifest.as_json` gave.

    Raises:
        InputError: it is not what was written.
    """
    names = {field.name for field in fields(Manifest)}
    if isinstance(table, dict) and table.keys() == {*names, SELF}:
        content = {name: table[name] for name in names}
        if table[SELF] == _sum(content):
            return Manifest(**content)
    raise InputError("its words do not add up to its checksum")


def read_json(path: Path) -> Any:
    """Read a file of JSON.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(str(problem.strerror)) from None
    except (ValueError, RecursionError):
        raise InputError("it is no JSON") from None


def sums_of(files: Iterable[Path], most: int) -> tuple[int, int]:
    """Bytes of some files one after the other, at most so many, and their CRC-32; missing files have none [B]."""
    size = crc = 0
    for path in files:
        with suppress(FileNotFoundError), path.open("rb") as file:
            while block := file.read(min(_BLOCK, most - size)):
                size, crc = size + len(block), crc32(block, crc)
    return size, crc


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

"""Files of a growing output: written under temporary names, made safe, appended; and their lock."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import IO

from nearkv.hardware.errors import InputError

NEW = ".new"
"""How temporary names end."""


def create(path: Path) -> IO[bytes]:
    """Open a new file to write; never one that exists, nor one behind a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def part_name(number: int, form: str) -> str:
    """The name of a part."""
    return f"part-{number:06}.{form}"


def write_part(folder: Path, name: str, content: bytes) -> None:
    """Write a part under its temporary name; `settle` makes it safe."""
    with create(folder / f"{name}{NEW}") as file:
        file.write(content)


def settle(part: Path) -> None:
    """Give a part its name, once it has reached the disk."""
    temporary = part.with_name(f"{part.name}{NEW}")
    _sync(temporary, os.O_RDONLY | os.O_NOFOLLOW)
    os.replace(temporary, part)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder have reached the disk."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_safely(path: Path, text: str) -> None:
    """Write a file in one step, once its text has reached the disk."""
    path.with_name(f"{path.name}{NEW}").unlink(missing_ok=True)
    write_part(path.parent, path.name, text.encode())
    settle(path)


def append(part: Path, file: IO[bytes]) -> None:
    """Copy a part to the end of a file, within the kernel where it can."""
    with open(os.open(part, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source:
        try:
            while os.copy_file_range(source.fileno(), file.fileno(), 1 << 30):
                pass
        except (AttributeError, OSError):  # another system, or a file system that cannot
            shutil.copyfileobj(source, file, 1 << 20)


def locked(path: Path, folder: Path) -> int:
    """Create the folder in which an output grows and lock it; the lock ends with the process.

    Raises:
        InputError: the folder cannot be made or is not one's own, or another sweep has locked it.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileExistsError, NotADirectoryError):
        taken = f"is no folder, in the place where {path.name} would grow"
        raise InputError(f"{folder}: {taken}; remove it") from None
    except OSError as problem:
        reason = f"cannot be written ({problem.strerror})"
        raise InputError(f"{path}: {reason}; choose another place") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _check_own(folder, os.fstat(lock))
    except BlockingIOError:
        os.close(lock)
        busy = "another sweep is writing it"
        raise InputError(f"{path}: {busy}; wait for it, or choose another name") from None
    except InputError:
        os.close(lock)
        raise
    return lock


def _check_own(folder: Path, status: os.stat_result) -> None:
    """Refuse a folder into which somebody else could have put links.

    Raises:
        InputError: it belongs to somebody else, or others may write into it.
    """
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid != os.geteuid() or shared:
        raise InputError(f"{folder}: others may write into it; remove it, or choose another name")

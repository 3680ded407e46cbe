"""Files of a growing output: written under temporary names, made safe, appended; and their lock."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from io import FileIO
from pathlib import Path

from nearkv.hardware.errors import InputError

NEW = ".new"
"""How temporary names end."""


def part_name(number: int, form: str) -> str:
    """The name of a part."""
    return f"part-{number:06}.{form}"


def new_name(path: Path) -> Path:
    """The temporary name of a file."""
    return path.with_name(f"{path.name}{NEW}")


def write_new(path: Path, content: bytes) -> None:
    """Write a file under its temporary name; `settle` makes it safe.

    Never writes into a file that exists, nor behind a link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(new_name(path), flags, 0o666), "wb", buffering=0) as file:
        write_all(file, content)


def open_to_grow(path: Path) -> FileIO:
    """Open a file to write at any place; it is made where it does not exist."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o666), "r+b", buffering=0)


def write_all(file: FileIO, content: bytes) -> None:
    """Write all of some bytes."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def append(path: Path, file: FileIO) -> None:
    """Copy a file to the end of another, within the kernel where it can."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source:
        try:
            while os.copy_file_range(source.fileno(), file.fileno(), 1 << 30):
                pass
        except (AttributeError, OSError):  # another system, or a file system that cannot
            shutil.copyfileobj(source, file, 1 << 20)


def settle(path: Path) -> None:
    """Give a file its name, once it has reached the disk."""
    _sync(new_name(path), os.O_RDONLY | os.O_NOFOLLOW)
    os.replace(new_name(path), path)


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
    new_name(path).unlink(missing_ok=True)
    write_new(path, text.encode())
    settle(path)


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
        raise InputError(
            f"{folder}: others may write into it; remove it, or choose another name"
        )

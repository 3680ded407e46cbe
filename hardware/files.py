"""Open the user's files: the one place where text comes in."""

from __future__ import annotations

import csv
import io
import stat
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError

_LARGEST_INTEGER = int(sys.float_info.max)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: the file.
        what: what it should be, used in errors.

    Raises:
        InputError: unreadable, too large to be a specification, not TOML, or an integer in it is
            larger than any number.
    """
    try:
        table = tomllib.loads(read_text(path, what))
        check_integers(table, str(path))
    except (ValueError, RecursionError) as problem:
        # not UTF-8 or TOML, a number of more than 4,300 digits, or tables nested too deeply
        sentence = f"{path}: not a valid TOML file ({problem}); correct it there"
        raise InputError(sentence) from None
    return table


def check_integers(entry: object, where: str) -> None:
    """Refuse integers beyond the range of floating-point numbers.

    Args:
        entry: a value of a file, with all that it contains.
        where: the file, then tables and key, used in errors.

    Raises:
        InputError: an integer is too large.
    """
    if isinstance(entry, dict):
        for key, value in entry.items():
            check_integers(value, f"{where}: {key}")
    elif isinstance(entry, list):
        for value in entry:
            check_integers(value, where)
    elif isinstance(entry, int) and abs(entry) > _LARGEST_INTEGER:
        digits = len(str(abs(entry)))
        raise InputError(f"{where}: an integer of {digits} digits is too large; correct it")


def read_text(
    path: Path,
    what: str,
    most: int = 1 << 20,
    advice: str = "check the path",
    encoding: str = "utf-8",
) -> str:
    """Read a text file of the user's: the one place that opens what a path names.

    It must be a regular file of bounded size. A pipe would be waited for, and a device such as
    /dev/zero never ends.

    Args:
        path: the file.
        what: what it should be, used in errors.
        most: largest size [B].
        advice: what to do about a larger one, used in errors.
        encoding: of the text.

    Raises:
        InputError: not a regular file, unreadable or too large.
        ValueError: not in this encoding.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a regular file; a {what} must be a plain file")
        if status.st_size > most:
            size = f"{most >> 20} MiB"
            raise InputError(f"{path}: larger than {size}, which no {what} is; {advice}")
        return path.read_text(encoding=encoding)
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be read ({problem.strerror}); check the path and its permissions"
        ) from None


def read_rows(
    path: Path,
    what: str,
    needed: Sequence[str],
    most: int = 1 << 22,
    advice: str = "split it",
) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """Read a CSV file of the user's.

    Args:
        path: the file.
        what: what it should be, used in errors.
        needed: columns that it must have.
        most: largest size [B].
        advice: what to do about a larger one, used in errors.

    Returns:
        Its header; and of each line that is not blank its address, and its cells by column.

    Raises:
        InputError: no such file, no CSV, too large, a column missing or there twice, or lines of
            another length than the header.
    """
    columns = ", ".join(needed)
    try:
        text = read_text(path, what, most, advice, encoding="utf-8-sig")
        table = csv.reader(io.StringIO(text), strict=True)
        header = [name.strip() for name in next(table, [])]
        numbered = [(table.line_num, [cell.strip() for cell in row]) for row in table]
    except (UnicodeDecodeError, csv.Error) as problem:
        sentence = f"{path}: not a CSV file ({problem}); it needs columns {columns}"
        raise InputError(sentence) from None
    for name in needed:
        if name not in header:
            listed = ", ".join(header) or "none"
            raise InputError(f"{path} has no column {name!r}; it has {listed}")
    if len(set(header)) < len(header):
        listed = ", ".join(header)
        raise InputError(f"{path}: a column is there twice; its columns are {listed}")
    lines = []
    for number, cells in numbered:
        where = f"{path}, line {number}"
        if not any(cells):
            continue
        if len(cells) != len(header):
            counts = f"{len(cells)} cells for {len(header)} columns"
            raise InputError(f"{where} has {counts}; correct it there")
        lines.append((where, dict(zip(header, cells, strict=True))))
    if not lines:
        raise InputError(f"{path} holds a header alone; write lines below it")
    return header, lines

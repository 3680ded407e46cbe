"""Open the user's files: the one place where text comes in, and where its lines are named."""

from __future__ import annotations

import stat
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError
from nearkv.hardware.lines import (
    UNREADABLE,
    keys_named,
    line_of_failure,
    line_of_json_key,
    line_of_key,
)

_LARGEST_INTEGER = int(sys.float_info.max)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: unreadable, too large to be a specification, not TOML, or an integer in it is
            larger than any number.
    """
    text = ""
    try:
        text = read_text(path, what)
        table = tomllib.loads(text)
    except UNREADABLE as problem:
        place = f"{path}, line {line_of_failure(text, problem)}" if text else str(path)
        sentence = f"{place}: not a valid TOML file ({problem}); correct it there"
        raise InputError(sentence) from None
    with located(path):
        check_integers(table, str(path))
    return table


def check_integers(entry: object, where: str) -> None:
    """Refuse integers that no floating-point number holds: files state them, arithmetic fails.

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


@contextmanager
def located(path: Path) -> Iterator[None]:
    """Name the line of the key in whatever is refused of a file.

    Raises:
        InputError: what is refused, with the line.
    """
    try:
        yield
    except InputError as refusal:
        raise InputError(with_line(str(refusal), path)) from None


def with_line(sentence: str, path: Path) -> str:
    """A sentence about a file with the line of the key; as it is where that is not clear.

    Args:
        sentence: begins with the path, then tables and key, as in `mine.toml: gpu: count: ...`.
        path: a TOML file, or a model's config.json.
    """
    front = f"{path}: "
    if not sentence.startswith(front):
        return sentence
    problem = sentence.removeprefix(front)
    line = _line_of(problem, path)
    return f"{path}, line {line}: {problem}" if line else sentence


def _line_of(problem: str, path: Path) -> int | None:
    """The line of the key that a sentence is about; None where that is not clear."""
    try:
        text = read_text(path, "file")
        if path.suffix == ".json":
            return line_of_json_key(text, problem.partition(" ")[0])
        table = tomllib.loads(text)
    except (InputError, *UNREADABLE):
        return None
    keys = keys_named(problem, table)
    if keys is None:
        return None
    if not keys:
        keys = ("kind",) if "kind" in table else ()
    return line_of_key(text, keys) if keys else 1


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
        what: the kind of file, used in errors.
        most: largest size [B].
        advice: what to do about a larger one, used in errors.
        encoding: of the text.

    Raises:
        InputError: no regular file, unreadable or too large.
        ValueError: not in this encoding.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"{path}: is no regular file; a {what} is read from a plain file"
            )
        if status.st_size > most:
            size = f"{most >> 20} MiB"
            raise InputError(f"{path}: larger than {size}, which no {what} is; {advice}")
        return path.read_text(encoding=encoding)
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be read ({problem.strerror}); check the path and its permissions"
        ) from None

"""Read systems of one's own from files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nearkv.costmodel.model.plugins import Plugin
from nearkv.costmodel.model.registry import load_plugin
from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_text


def load_plugins(files: Iterable[str]) -> None:
    """Run files that register systems; one that was run before and is as it was is left alone.

    Raises:
        InputError: a file cannot be read or run, takes a name that exists, or registers nothing.
    """
    for file in files:
        load_plugin(read_plugin(file))


def read_plugin(file: str) -> Plugin:
    """Read a file of Python.

    Raises:
        InputError: it has another suffix, cannot be read, or is no text.
    """
    if not file.endswith(".py"):
        raise InputError(f"--plugin {file!r}: name a file of Python, as in my_system.py")
    try:
        return Plugin(file, read_text(Path(file), "plugin"))
    except ValueError:
        raise InputError(f"{file}: is not a text in UTF-8; correct it there") from None

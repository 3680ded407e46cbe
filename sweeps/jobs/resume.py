"""The command that goes on with a sweep that was stopped."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_FLAGS = ("--quiet", "--yes", "--resume")


def resume_command() -> str:
    """The command line that was given, with --resume, as a shell reads it."""
    command = Path(sys.argv[0])
    elsewhere = command.name == "nearkv" and shutil.which("nearkv") != str(command)
    name = str(command) if elsewhere else "nearkv"
    words = [word for word in sys.argv[1:] if word not in _FLAGS]
    flags = [flag for flag in _FLAGS if flag in sys.argv or flag == "--resume"]
    return " ".join(_quoted(word) for word in (name, *words, *flags))


def _quoted(word: str) -> str:
    """A word as a shell reads it, bytes that are no text included."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(word)) + "'"

"""The command line without a process of its own: as fast as the work it does."""

from __future__ import annotations

from functools import cache

import typer.main
import typer.testing
from typer.testing import CliRunner, Result

from nearkv.cli import app

WIDE = {"COLUMNS": "80"}
"""A terminal of 80 columns."""


def build_commands_once() -> None:
    """Have Typer keep what it builds at every call: all commands, three quarters of a call."""
    once = cache(typer.main.get_command)
    for module in (typer.main, typer.testing):
        vars(module).update({"get_command": once, "_get_command": once})


def invoke(*words: str, text: str = "") -> Result:
    """Run `nearkv` with these words and a text on standard input."""
    return CliRunner().invoke(app, list(words), input=text, prog_name="nearkv")


def succeed(*words: str, text: str = "", code: int = 0) -> str:
    """The output of a command that must succeed, or end with this code."""
    done = invoke(*words, text=text)
    assert done.exit_code == code, f"nearkv {' '.join(words)}\n{done.stderr}\n{done.exception}"
    return done.stdout


def refusal(*words: str, text: str = "") -> str:
    """The one sentence of a command that must refuse its input."""
    done = invoke(*words, text=text)
    assert done.exit_code == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def printed(*words: str, code: int = 0) -> str:
    """The text of a command on a terminal of 80 columns, on both streams."""
    done = CliRunner().invoke(app, list(words), env=WIDE)
    assert done.exit_code == code, done.output
    return done.output

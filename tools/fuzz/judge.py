"""Run one command line in this process and say what is wrong with what it does."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 10.0
"""No command may take longer of a processor."""
WAITING = 6
"""Nor so many times as long on a machine that others use."""
MEMORY = 2 * 2**30
"""Nor more memory [B]."""

PRINTED = (0, 3)
"""Exit codes of commands that print a table; 3 where its only row has no answer, or none is."""


class TooSlowError(BaseException):
    """A command took longer than it may; no handler of errors is to catch it."""


@dataclass(frozen=True)
class Outcome:
    """The answer to a command line.

    Attributes:
        words: the line.
        code: exit code; None where it ended in a traceback.
        out, err: what it printed.
        files: what the files of the folder hold afterwards, by name.
        crash: the traceback.
        seconds: how long it took.
    """

    words: list[str]
    code: int | None
    out: str
    err: str
    files: dict[str, str]
    crash: str
    seconds: float

    def same_as(self, other: Outcome) -> bool:
        """True if two lines had the same answer."""
        mine, theirs = (self.code, self.out, self.err), (other.code, other.out, other.err)
        return mine == theirs and self.files == other.files

    @property
    def faults(self) -> list[str]:
        """Faults of the answer; none where it is right."""
        return list(_faults(self))


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """End what takes so long of a processor, or `WAITING` times as long altogether."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TooSlowError

    clocks = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, WAITING * seconds),
    }
    before = {name: signal.signal(name, ring) for name in clocks}
    for clock, limit in clocks.values():
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for clock, _ in clocks.values():
            signal.setitimer(clock, 0)
        for name, handler in before.items():
            signal.signal(name, handler)


@cache
def _command() -> Any:
    """All commands; Typer would build them anew for every line, a third of what a line takes."""
    from typer.main import get_command

    from nearkv.cli import app

    return get_command(app)


def run(words: list[str], seconds: float = SECONDS) -> Outcome:
    """Run a command line as the installed command would."""
    out, err = io.StringIO(), io.StringIO()
    code: int | None = 0
    crash = ""
    started = time.monotonic()
    try:
        with redirect_stdout(out), redirect_stderr(err), _limit(seconds):
            _command()(words, prog_name="nearkv")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except TooSlowError:
        code, crash = None, f"longer than {seconds:g} s"
    except BaseException:
        code, crash = None, traceback.format_exc()
    spent = time.monotonic() - started
    return Outcome(words, code, out.getvalue(), err.getvalue(), _written(), crash, spent)


def _written() -> dict[str, str]:
    """Digests of the regular files of this folder."""
    digests = {}
    for file in Path.cwd().iterdir():
        if file.is_file() and not file.is_symlink():
            digests[file.name] = sha256(file.read_bytes()).hexdigest()
    return digests


def _faults(outcome: Outcome) -> Iterator[str]:
    if outcome.crash:
        yield outcome.crash.strip().rpartition("\n")[2]
    if resident() > MEMORY:
        yield f"{resident() / 1e9:.1f} GB of memory"
    if outcome.code == 2 or (outcome.code == 3 and not outcome.out):
        lines = outcome.err.splitlines()
        warnings = [line for line in lines if line.startswith("nearkv: warning:")]
        # beside them a sweep says how many points it has
        beside = [line for line in lines if re.match(r"[\d,]+ design points? to ", line)]
        sentences = [line for line in lines if line not in warnings + beside]
        if len(sentences) != 1:
            yield f"exit {outcome.code} with {len(sentences)} sentences"
    elif outcome.code in PRINTED:
        yield from _bad_numbers(outcome)
    elif outcome.code not in (None, 1, 130):
        yield f"exit code {outcome.code}"


def resident() -> int:
    """Most memory this process has had so far [B]."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _bad_numbers(outcome: Outcome) -> Iterator[str]:
    if {"--help", "-h", "--version"} & {*outcome.words}:
        return
    place = [i for i, word in enumerate(outcome.words) if word == "--format"]
    form = outcome.words[place[-1] + 1 : place[-1] + 2] if place else []
    rows: Any = []
    if form == ["json"]:
        try:
            answer = json.loads(outcome.out, parse_constant=_refuse)
        except ValueError as problem:
            yield f"exit {outcome.code}, but no JSON: {problem}"
            return
        rows = answer if isinstance(answer, list) else [answer]
    elif form == ["csv"]:
        rows = csv.DictReader(io.StringIO(outcome.out))
    for row in rows:
        if isinstance(row, dict):
            yield from _bad_values(row)


def _bad_values(row: dict[str, Any]) -> Iterator[str]:
    """Cells that are NaN, infinite or complex, and times, prices and energies below zero."""
    for name, value in row.items():
        try:
            number = float(value)
        except (TypeError, ValueError):  # a word, a list or an empty cell
            number = math.nan if re.fullmatch(r"\(.*j\)", str(value)) else 0.0
        measured = str(name).endswith(("_s", "_ms", "_us", "_j_tok", "_usd", "_w"))
        if not math.isfinite(number) or (measured and number < 0):
            yield f"exit 0 with {name} = {value}"

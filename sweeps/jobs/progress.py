"""Progress of a sweep: how it is run, what it will cost, and how far it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from rich.filesize import decimal

from nearkv.costmodel.algebra.span import Numbers
from nearkv.sweeps.jobs.plan import Piece, Plan
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.tables.table import counted

QUICK = 1_000_000
"""Design points below which work ends before a bar would help."""
SAMPLES = (1 << 7, 1 << 14)
"""Design points that are tried to estimate how long all will take."""
ENOUGH = 0.2
"""Time after which the estimate of a sample is good enough [s]."""


@dataclass(frozen=True)
class SweepRun:
    """Settings with which a sweep is run.

    Attributes:
        workers: who evaluates.
        quiet: show no progress.
        resume: go on with an unfinished file.
        say: shows the user a line.
        confirm: asks the user a question.
    """

    workers: Workers
    quiet: bool
    resume: bool
    say: Callable[[str], None]
    confirm: Callable[[str], bool]


@contextmanager
def progress(
    total: int, done: int = 0, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Give a function that counts design points done and shows on a terminal how far the work is.

    Args:
        total: design points in all [1].
        done: those finished in an earlier run [1].
        quiet: show nothing.
    """
    if quiet or total - done < QUICK:
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        "design points,",
        TimeRemainingColumn(),
        "left",
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda more: bar.advance(task, more)


def announce(
    rows: Plan, task: Callable[[Piece], object], run: SweepRun, verb: str, done: int = 0
) -> float:
    """Say how many design points there are, how long they will take and how large the file is.

    Args:
        rows: all of them.
        task: what will be done with them.
        run: how.
        verb: what that is.
        done: how many are finished [1].

    Returns:
        The size of the file; 0 where none is written or the run is quiet [B].
    """
    if run.quiet:
        return 0.0
    left = rows.size - done
    seconds, size = forecast(task, rows, left)
    jobs = min(run.workers.jobs, os.cpu_count() or 1)
    where = " on one core" if run.workers.scheduler else ""
    fills = f", {decimal(int(size))}" if size else ""
    points = counted(left, "design point")
    run.say(f"{points} to {verb}, {duration(seconds / jobs)}{where}{fills}")
    return size


def forecast(task: Callable[[Piece], object], rows: Plan, left: int) -> tuple[float, float]:
    """Time of a task on design points, and size of its answers [s, B].

    Trials grow until one takes long enough; a line through the first and the last tells the rest.
    """
    task(rows.sample(1))  # the first call reads and imports, which does not count
    first = last = _tried(task, rows.sample(1))
    for most in SAMPLES:
        if last[1] < ENOUGH:
            last = _tried(task, rows.sample(most))
    more = last - first
    slope = np.maximum(more[1:], 0.0) / max(more[0], 1.0)
    seconds, size = first[1:] + slope * (left - 1)
    return float(seconds), float(size)


def _tried(task: Callable[[Piece], object], sample: Piece) -> Numbers:
    """Rows of a sample, and time and size of a task on it [1, s, B]."""
    start = time.perf_counter()
    answer = task(sample)
    seconds = time.perf_counter() - start
    return np.array([sample.rows, seconds, len(answer) if isinstance(answer, bytes) else 0])


def duration(seconds: float) -> str:
    """A time in words [s]."""
    if seconds < 1:
        return "under a second"
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s"

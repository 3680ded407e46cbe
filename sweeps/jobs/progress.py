"""Show long work advancing: a bar on a terminal, a line a minute where output goes elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Advance = Callable[[int], None]

QUICK = 1_000_000
"""Design points below which work ends before a bar would help."""
EVERY = 60.0
"""Time between two lines where nobody watches a bar [s]."""


@contextmanager
def progress(total: int, done: int = 0, quiet: bool = False) -> Iterator[Advance]:
    """Give a function that counts design points done and shows how far the work is.

    Args:
        total: design points in all [1].
        done: those finished in an earlier run [1].
        quiet: show nothing.
    """
    if quiet or total - done < QUICK:
        yield lambda more: None
    elif sys.stderr.isatty():
        with _bar(total, done) as advance:
            yield advance
    else:
        yield _lines(total, done)


@contextmanager
def _bar(total: int, done: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.fields[message]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("design points", total=total, completed=done, message="")
        pace = Pace(total, done)

        def advance(more: int) -> None:
            bar.update(task, advance=more, message=pace.after(more))

        yield advance


def _lines(total: int, done: int) -> Advance:
    pace = Pace(total, done)
    last = time.monotonic()

    def advance(more: int) -> None:
        nonlocal last
        line = pace.after(more)
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            with suppress(OSError):  # work goes on though nobody listens
                print(line, file=sys.stderr, flush=True)

    return advance


class Pace:
    """How fast work goes and how long it still takes.

    Args:
        total, done: design points in all, and done before [1].
    """

    def __init__(self, total: int, done: int) -> None:
        self._total = total
        self._done = self._before = done
        self._start = time.monotonic()

    def after(self, more: int) -> str:
        """Count more design points done, and put it all in a line."""
        self._done += more
        elapsed = max(time.monotonic() - self._start, 1e-9)
        rate = (self._done - self._before) / elapsed
        left = (self._total - self._done) / max(rate, 1e-9)
        share = self._done / self._total
        return (
            f"{self._done:,} of {self._total:,} design points ({share:.0%}), "
            f"{rate / 1e6:.2f} M/s, {duration(left)} left"
        )


def duration(seconds: float) -> str:
    """A time as people say it [s]."""
    if seconds < 1:
        return "under a second"
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s"


def bytes_of(size: float) -> str:
    """An amount of bytes as people say it [B]."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / 1e3:.1f} kB"

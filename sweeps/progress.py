"""Show long work advancing: a bar on a terminal, nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUICK = 1_000_000
"""Design points below which work ends before a bar would help."""


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """Give a function to tell of design points done; draws on standard error.

    Args:
        total: design points in all [1].
    """
    if total < QUICK or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("design points", total=total)
        yield lambda done: bar.advance(task, done)

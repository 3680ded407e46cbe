"""Messages beside the output: lines on standard error, and questions to the user."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import typer

QUIET_SECONDS = 2.0
"""Time after which a terminal says that a command is at work [s]."""
WITH_PROGRESS = (["design"], ["pareto"], ["sweep"])
"""Commands that show how far they are."""
NO_ANSWER = 3
"""Exit code of a command whose only row has no answer, so that scripts see it."""


def printable(line: str) -> str:
    """The line without characters that move a terminal's cursor, as a file's name may hold."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def tell(line: str) -> None:
    """Print a line on standard error, beside the output; a terminal's lines wrap at words."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with suppress(OSError):
        console.print(printable(line), soft_wrap=not console.is_terminal, crop=False)


@contextmanager
def telling_time(words: Sequence[str]) -> Iterator[None]:
    """Say on a terminal after two seconds, and then less and less often, that a command works.

    Args:
        words: of the command; of those that show how far they are nothing is said.
    """
    over, name = threading.Event(), " ".join(words[:2])

    def tell_time() -> None:
        waited, more = 0.0, QUIET_SECONDS
        while not over.wait(more):
            waited += more
            more = waited
            tell(f"{name}: {waited:.0f} s so far")

    if sys.stderr is None or not sys.stderr.isatty() or words[:1] in WITH_PROGRESS:
        yield
        return
    thread = threading.Thread(target=tell_time, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ask(question: str) -> bool:
    """Ask the user; where there is no terminal to ask on, the answer is no."""
    try:
        return sys.stdin.isatty() and typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None

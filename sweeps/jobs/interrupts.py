"""Where Ctrl-C may strike: only where no file and no process could be left half done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a command to stop; the last comes from a terminal that is closed."""


def heeded_signals() -> list[signal.Signals]:
    """Those of `SIGNALS` that are not ignored, as `nohup` has them."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


class _Stop:
    """Whether to stop.

    Attributes:
        careful: signals are held back.
        requested: one has come.
        listening: one that comes now interrupts.
    """

    careful = requested = listening = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal in; it interrupts once, so that nothing interrupts the tidying up."""
        self.requested = True
        if self.listening:
            self.listening = False
            raise KeyboardInterrupt


_STOP = _Stop()


@contextmanager
def careful() -> Iterator[None]:
    """Hold back Ctrl-C, except where `listening`; one too late to stop anything is forgotten."""
    is_main = current_thread() is main_thread()  # no other thread is ever interrupted
    if _STOP.careful or not is_main:
        yield
        return
    before = {number: signal.signal(number, _STOP.note) for number in heeded_signals()}
    _STOP.careful = True
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _STOP.careful = _STOP.requested = False


@contextmanager
def listening() -> Iterator[None]:
    """Let Ctrl-C in: whoever is careful around this is ready for it here.

    Raises:
        KeyboardInterrupt: stop.
    """
    _STOP.listening = _STOP.careful
    try:
        if _STOP.requested:
            raise KeyboardInterrupt
        yield
    finally:
        _STOP.listening = False

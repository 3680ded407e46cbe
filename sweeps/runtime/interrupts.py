"""Where Ctrl-C may strike: nowhere while a file or a process could be left half done, except where that is safe."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a command to stop; a terminal that is closed does, unless `nohup` has it ignored."""


class _Stop:
    """Whether to stop.

    Attributes:
        careful: these signals are held back.
        wanted: one has come.
        heard: one that comes now is let in.
    """

    careful = wanted = heard = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal in; it interrupts once, so that nothing interrupts the tidying up."""
        self.wanted = True
        if self.heard:
            self.heard = False
            raise KeyboardInterrupt


_STOP = _Stop()


@contextmanager
def careful() -> Iterator[None]:
    """Hold back Ctrl-C, except where `listening`; one that came too late to stop anything is forgotten."""
    if (
        _STOP.careful or current_thread() is not main_thread()
    ):  # only the main thread is ever interrupted
        yield
        return
    asked = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _STOP.note) for number in asked}
    _STOP.careful = True
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _STOP.careful = _STOP.wanted = False


@contextmanager
def listening() -> Iterator[None]:
    """Let Ctrl-C in: whoever is careful around this is ready for it here.

    Raises:
        KeyboardInterrupt: stop.
    """
    _STOP.heard = _STOP.careful
    try:
        if _STOP.wanted:
            raise KeyboardInterrupt
        yield
    finally:
        _STOP.heard = False

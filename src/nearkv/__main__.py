"""Start the command. Ctrl-C ends it with one line, even while it is still being read from disk."""

import gc
import os
import signal
from types import FrameType

YOUNGEST = 50_000
"""Objects that Python makes before it looks for garbage; imports make many and no garbage."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command line."""
    heeded = [
        number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in heeded:
        signal.signal(number, stop)
    gc.set_threshold(YOUNGEST)
    from nearkv.cli import app

    try:
        app()
    finally:  # nothing is left to stop while Python ends, nor worth a search for garbage
        gc.freeze()
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)


def stop(number: int, frame: FrameType | None) -> None:
    """End at once by the signal itself, which loses nothing.

    Where something could be lost, `nearkv.sweeps.jobs.interrupts` takes this one's place.
    """
    signal.signal(number, signal.SIG_DFL)
    try:
        os.write(2, b"nearkv: stopped\n")
    finally:
        signal.raise_signal(number)


if __name__ == "__main__":
    main()

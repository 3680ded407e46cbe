"""Start the command. Ctrl-C ends it with one line, even while it is still being read from disk."""

import gc
import os
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command line."""
    heeded = [
        number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in heeded:
        signal.signal(number, stop)
    gc.disable()  # imports make no garbage, and looking for it costs a sixth of a start
    from nearkv.cli import app

    gc.freeze()
    gc.enable()
    try:
        app()
    finally:  # nothing is left to stop while Python ends
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)


def stop(number: int, frame: FrameType | None) -> None:
    """End at once by the signal itself, which loses nothing.

    Where something could be lost, `nearkv.sweeps.runtime.interrupts` takes this one's place.
    """
    signal.signal(number, signal.SIG_DFL)
    try:
        os.write(2, b"nearkv: stopped\n")
    finally:
        signal.raise_signal(number)


if __name__ == "__main__":
    main()

"""Start the command. Ctrl-C ends it with one line, even while it is still being read from disk."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line.

    Where the command says that it is done, the process ends there: Python would take a while to take itself
    apart, in which Ctrl-C would still strike.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, leave)
    from nearkv.cli import app

    try:
        app()
    except SystemExit as done:
        if isinstance(done.code, int):  # all is written: `options.Commands` sees to that
            os._exit(done.code)
        raise


def leave(number: int, frame: FrameType | None) -> None:
    """End at once, which loses nothing: where something could be lost, `nearkv.sweeps.runtime.interrupts` takes this one's place."""
    try:
        os.write(2, b"nearkv: stopped\n")
    finally:
        os._exit(130)


if __name__ == "__main__":
    main()

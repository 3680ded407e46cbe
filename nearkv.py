"""Start the command. Ctrl-C ends it with one line, even while it is still being read from disk."""

import os
import signal
from collections.abc import Callable
from types import FrameType


def main() -> None:
    """Run the command line."""
    catch(leave)
    try:
        from cli import app

        app()
    finally:
        catch(signal.SIG_IGN)  # the work is done; only Python's own end is left to interrupt


def catch(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Say what happens to a command that is asked to stop."""
    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)


def leave(number: int, frame: FrameType | None) -> None:
    """End at once, which loses nothing: where something could be lost, `sweeps.stopping` takes this one's place."""
    try:
        os.write(2, b"nearkv: stopped\n")
    finally:
        os._exit(130)


if __name__ == "__main__":
    main()

"""Start the command. Ctrl-C ends it with one line, even while it is still being read from disk."""

import gc
import os
import sys

YOUNGEST = 50_000
"""Objects that Python makes before it looks for garbage; imports make many and no garbage."""
STOPPED = 130
"""Exit code of a command that Ctrl-C ended."""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(YOUNGEST)
    # its matrices are small: to start further threads takes longer than they would save
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from nearkv.cli import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("nearkv: stopped; nothing was written\n")
        sys.exit(STOPPED)
    finally:  # a search for garbage while Python ends finds none that is needed
        gc.freeze()


if __name__ == "__main__":
    main()

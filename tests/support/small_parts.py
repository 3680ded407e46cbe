"""The command with small parts and a pause after each, so that it is struck between two of them.

A sweep of full parts needs a quarter of a million rows for that; pauses take no processor's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from nearkv.__main__ import main
from nearkv.sweeps.jobs import parts
from nearkv.sweeps.jobs.progress import progress

ROWS_OF_A_PART = 2_500
PAUSE = 0.05
"""Time between two parts, in which a test sees the first [s]."""


@contextmanager
def paused(pause: float, *arguments: Any, **named: Any) -> Iterator[Callable[[int], None]]:
    """Progress that waits whenever it advances."""
    with progress(*arguments, **named) as advance:

        def slowly(rows: int) -> None:
            advance(rows)
            time.sleep(pause)

        yield slowly


def in_small_parts(pause: float = PAUSE) -> AbstractContextManager[object]:
    """Sweeps of this process write small parts, with a pause after each [s]."""
    small = dict.fromkeys(parts.PART, ROWS_OF_A_PART)
    return mock.patch.multiple(parts, PART=small, progress=partial(paused, pause))


if __name__ == "__main__":
    with in_small_parts():
        main()

"""What a command costs: wall-clock time, time of all cores, and memory."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_EVERY = 0.01
"""Time between two looks at the memory [s]."""


@dataclass(frozen=True)
class Cost:
    """What a process cost, with those it started.

    Attributes:
        wall: from its start to its end [s].
        cpu: user and system time of all [s].
        memory: most that was resident at a time [B].
    """

    wall: float
    cpu: float
    memory: float


def cost_of(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    codes: Sequence[int] = (0,),
) -> Cost:
    """Run a command and say what it cost; ends the benchmark where it fails.

    Args:
        command: with its arguments.
        environment: its variables; those of this process by default.
        folder: where it runs.
        codes: exit codes of success.
    """
    start, most = time.perf_counter(), [0.0]
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_EVERY):
            most[0] = max(most[0], _peak(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    is_over.set()
    watcher.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        words = " ".join(map(str, command))
        sys.exit(f"{words}: exit code {process.returncode}")
    # not the kernel's ru_maxrss, which counts this process before it becomes the command
    return Cost(wall, used.ru_utime + used.ru_stime, most[0])


def _peak(process: int) -> float:
    """Most memory that was resident at a time in a process, and in those it started [B]."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return 0.0
    peaks = [float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
    return sum(peaks) + sum(_peak(int(child)) for child in children)

"""Cost of a command: wall-clock time, time of all cores, and memory."""

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
    """Cost of a process, with those it started.

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
            most[0] = max(most[0], _resident(process.pid))

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


def _resident(process: int) -> float:
    """Memory that is resident now in a process and in those it started [B].

    At least the most of any of them alone, which a look each hundredth of a second may miss.
    """
    processes = [process]
    now, alone = 0.0, 0.0
    for one in processes:
        try:
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        processes += map(int, children)
        fields = dict(line.split(":", 1) for line in lines)
        now += _bytes(fields.get("VmRSS"))
        alone = max(alone, _bytes(fields.get("VmHWM")))
    return max(now, alone)


def _bytes(field: str | None) -> float:
    """A number of kibibytes in /proc; a process that has ended states none [B]."""
    return float(field.split()[0]) * 1024 if field else 0.0

"""Sweeps as a user runs them: started, watched, refused; and what they left on disk."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

from support.warm_command import run

COMMAND = Path(sys.executable).with_name("nearkv")
AXES = [
    "--system=hilos",
    "--model=opt-66b",
    "--batch=1:10:+1",
    "--context=4k:200k:+4k",
    "--set=csd.count=1:10:+1",
    "--set=uplink.bandwidth=10GB/s:59GB/s:+1GB/s",
    "--columns=batch,context_tok,csd.count,alpha,step_ms",
]
"""A quarter of a million rows, in pieces enough to be killed between them."""
SMALL = ["--batch", "1", "--context", "4k"]
"""The same with 500 rows."""
ROWS = 250_000


def sweep_command(file: Path, *more: str) -> list[str]:
    """The command line of a sweep into a file; an option in `more` takes the place of its axis."""
    axes = [axis for axis in AXES if axis.split("=")[0] not in more or axis.startswith("--set=")]
    return [str(COMMAND), "sweep", *axes, "-o", str(file), *more]


def piped(command: list[str]) -> subprocess.Popen[str]:
    """A process whose output is read."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def with_small_files(kib: int, command: list[str]) -> subprocess.Popen[str]:
    """A process that writes no file larger than so many KiB; its branches are not counted."""
    line = f"unset COVERAGE_PROCESS_CONFIG; ulimit -f {kib}; exec {shlex.join(command)}"
    return piped(["bash", "-c", line])


def start(file: Path, *more: str) -> subprocess.Popen[str]:
    """A sweep under way."""
    return piped(sweep_command(file, *more))


def finish(file: Path, *more: str) -> str:
    """A sweep that must succeed; what it printed on standard error."""
    if not {"--jobs", "--scheduler"} & {*more}:
        done = run(*sweep_command(file, *more)[1:])
        assert done.returncode == 0, done.stderr
        return done.stderr
    with start(file, *more) as process:
        _, printed = process.communicate()
    assert process.returncode == 0, printed
    return printed


def refused(process: subprocess.Popen[str], code: int = 2) -> str:
    """What a process that must fail prints: one sentence after the estimate, and no traceback."""
    with process:
        _, printed = process.communicate()
    assert process.returncode == code, printed
    return _sentence(printed)


def refused_sweep(file: Path, *more: str) -> str:
    """What a sweep that must fail prints, without a start of its own."""
    done = run(*sweep_command(file, *more)[1:])
    assert done.returncode == 2, done.stderr
    return _sentence(done.stderr)


def _sentence(printed: str) -> str:
    """The one sentence that stands after the estimate."""
    sentences = [line for line in printed.splitlines() if "design points to write" not in line]
    assert len(sentences) == 1, printed
    assert sentences[0].startswith("nearkv: ")
    return sentences[0]


def staging(file: Path) -> Path:
    """The folder in which an output grows."""
    return file.with_name(f".{file.name}.partial")


def safe_pieces(file: Path) -> int:
    """Finished parts of an output under way."""
    return len(list((staging(file) / "parts").glob(f"part-*{file.suffix}")))


def until_safe(process: subprocess.Popen[str], file: Path, more_than: int = 0) -> bool:
    """Wait until more pieces are safe; False where the process ended first."""
    while process.poll() is None:
        if safe_pieces(file) > more_than:
            return True
        time.sleep(0.005)
    return False


def content(file: Path) -> dict[str, bytes]:
    """Every byte of an output, of a file or of a dataset."""
    if not file.is_dir():
        return {"": file.read_bytes()}
    return {part.name: part.read_bytes() for part in sorted(file.iterdir())}

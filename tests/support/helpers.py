"""Sweeps as a user runs them: started, watched, refused; and what they left on disk."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from support import small_parts
from support.warm_command import Running

COMMAND = Path(sys.executable).with_name("nearkv")
AXES = [
    "--system=accelerate",
    "--model=llama3.1-8b",
    "--batch=1:10:+1",
    "--context=4k:200k:+4k",
    "--set=gpu.count=1:10:+1",
    "--set=gpu.bandwidth=2000GB/s:2400GB/s:+100GB/s",
    "--columns=batch,context_tok,gpu.count,status,step_ms",
]
"""Ten small parts, between which a sweep is killed."""
SMALL = ["--batch", "1", "--context", "4k"]
"""The same with 50 rows."""
ROWS = 25_000


def sweep_words(file: Path, *more: str) -> list[str]:
    """A sweep into a file, in words; an option in `more` takes the place of its axis."""
    axes = [axis for axis in AXES if axis.split("=")[0] not in more or axis.startswith("--set=")]
    return ["sweep", *axes, "-o", str(file), *more]


def piped(command: list[str]) -> subprocess.Popen[str]:
    """A process whose output is read."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def program(file: Path, *more: str) -> subprocess.Popen[str]:
    """A sweep in small parts as a program of its own, which hears Ctrl-C."""
    return piped([sys.executable, small_parts.__file__, *sweep_words(file, *more)])


def start(file: Path, *more: str) -> Running:
    """A sweep in small parts under way."""
    return Running(*sweep_words(file, *more), settings=small_parts.in_small_parts)


def with_small_files(kib: int, file: Path, *more: str) -> Running:
    """A sweep in small parts that writes no file larger than so many KiB."""
    return Running(*sweep_words(file, *more), settings=partial(small_files, kib))


@contextmanager
def small_files(kib: int) -> Iterator[None]:
    """Sweeps in small parts, and no file larger than so many KiB."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, most))
    try:
        with small_parts.in_small_parts():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def finish(file: Path, *more: str) -> str:
    """A sweep in small parts that must succeed, unseen; what it printed on standard error."""
    at_once = partial(small_parts.in_small_parts, 0.0)
    with Running(*sweep_words(file, *more), settings=at_once) as process:
        _, printed = process.communicate()
    assert process.returncode == 0, printed
    return printed


def refused(process: subprocess.Popen[str] | Running, code: int = 2) -> str:
    """Output of a process that must fail: one sentence after the estimate, and no traceback."""
    with process:
        _, printed = process.communicate()
    assert process.returncode == code, printed
    return _sentence(printed)


def refused_sweep(file: Path, *more: str) -> str:
    """Output of a sweep that must fail."""
    return refused(start(file, *more))


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


def until_safe(process: subprocess.Popen[str] | Running, file: Path, more_than: int = 0) -> bool:
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

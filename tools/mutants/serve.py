"""Run tests of a changed project again and again, each time in a process forked from a warm one.

What takes long to import is imported before the first request; the project itself never is.
A request is one line: the file that lists the tests, and after how many seconds they are stopped.
The answer is one line: the first test that failed, or what else stopped them; empty if all pass.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from importlib import import_module

import pytest

WARM = ("hypothesis.strategies", "numpy", "pandas", "pulp", "pyarrow", "scipy.optimize")
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
MEMORY = 8 << 30
"""Bytes of address space, so that a mutant which asks for too much fails alone."""


class FirstFailure:
    """Writes the name of the first test that fails, for the process that waits."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        if report.failed:
            os.write(self.pipe, report.nodeid.encode())


def main() -> None:
    """Answer requests until there are no more."""
    for name in WARM:
        import_module(name)
    for line in sys.stdin:
        names, limit = line.split()
        print(failure(names, float(limit)), flush=True)


def failure(names: str, limit: float) -> str:
    """What failed first, if the tests end in time; empty where they all pass."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            code = _run(names, writing)
        finally:
            os._exit(code)
    os.close(writing)
    code = _code(child, time.monotonic() + limit)
    with open(reading, encoding="utf-8") as pipe:
        name = pipe.read()
    if code == 0:
        return ""
    return name or f"no test ran to its end, code {code}"


def _run(names: str, pipe: int) -> int:
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return int(pytest.main([*OPTIONS, f"@{names}"], plugins=[FirstFailure(pipe)]))


def _code(child: int, end: float) -> int:
    """The exit code of a child; not 0 where it had to be stopped."""
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 70


if __name__ == "__main__":
    main()

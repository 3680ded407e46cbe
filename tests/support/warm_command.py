"""The command in a process of its own, forked where its libraries are read already.

A start of `nearkv` reads NumPy and pandas, half a second of every test. These processes come
from one that has read them and done nothing else; exit codes, streams, folders and the
environment are those of the command. What tests the start itself or Ctrl-C starts the command's
own program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from nearkv.__main__ import main

TESTS = Path(__file__).parents[1]
STREAMS = ("stdin", "stdout", "stderr")


class Running:
    """A command under way, with what `Popen` offers of a program.

    Args:
        arguments: of `nearkv`.
        cwd: where it runs; here, where none is named.
        env: added to this process's environment.
        text: what it reads on standard input.
        settings: makes what it runs in, as a smaller disk.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        text: str = "",
        settings: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.arguments = arguments
        self._folder = TemporaryDirectory()
        self._streams = Path(self._folder.name)
        (self._streams / "stdin").write_text(text)
        environment = {**os.environ, **(env or {})}
        place = str(cwd or Path.cwd())
        self._process = forks().Process(
            target=_run, args=(arguments, place, environment, self._folder.name, settings)
        )
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.join()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code once it has ended."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Exit code once it has ended."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Output on both streams. Raises TimeoutError after `timeout` seconds."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            words = " ".join(self.arguments)
            raise TimeoutError(f"nearkv {words}: takes longer than {timeout} s")
        out, err = (self._streams / stream for stream in STREAMS[1:])
        return out.read_text(), err.read_text()


def run(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str = "",
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `nearkv` with arguments and a text on standard input.

    `env` is added to this process's environment. Raises TimeoutError after `timeout` seconds.
    """
    with Running(*arguments, cwd=cwd, env=env, text=text) as process:
        out, err = process.communicate(timeout)
    code = process.returncode
    assert code is not None
    return subprocess.CompletedProcess(arguments, code, out, err)


@cache
def forks() -> ForkServerContext:
    """The context whose processes are forked where the command's libraries are read."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["support.warm_start"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), before]))
    try:
        ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before:
            os.environ["PYTHONPATH"] = before
    return context


def _run(
    arguments: tuple[str, ...],
    cwd: str,
    environment: dict[str, str],
    streams: str,
    settings: Callable[[], AbstractContextManager[object]],
) -> None:
    """Run the command in the forked process."""
    for number, name in enumerate(STREAMS):
        flags = os.O_RDWR | os.O_CREAT
        os.dup2(os.open(f"{streams}/{name}", flags), number)
        setattr(sys, name, os.fdopen(os.dup(number), "r" if name == "stdin" else "w"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["nearkv", *arguments]
    with settings():
        main()


def refused(*arguments: str, cwd: Path | None = None) -> str:
    """Run what must fail: exit 2, one sentence on standard error, nothing on standard output."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr

"""The command in a process of its own, forked where its libraries are read already.

A start of `nearkv` reads NumPy and pandas, half a second of every test. These processes come
from one that has read them and done nothing else; exit codes, streams, folders and the
environment are those of the command. What tests the start itself, signals or jobs starts the
command's own program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from tempfile import TemporaryDirectory

from nearkv.__main__ import main

FORKS = get_context("forkserver")
TESTS = Path(__file__).parents[1]
STREAMS = ("stdin", "stdout", "stderr")


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
    with TemporaryDirectory() as folder:
        streams = Path(folder)
        (streams / "stdin").write_text(text)
        environment = {**os.environ, **(env or {})}
        _warm()
        process = FORKS.Process(
            target=_run, args=(arguments, str(cwd or Path.cwd()), environment, folder)
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"nearkv {' '.join(arguments)}: takes longer than {timeout} s")
        out, err = (streams / "stdout").read_text(), (streams / "stderr").read_text()
    return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


@cache
def _warm() -> None:
    """Start the process from which the others are forked."""
    FORKS.set_forkserver_preload(["support.warm_start"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), before]))
    try:
        ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before:
            os.environ["PYTHONPATH"] = before


def _run(arguments: tuple[str, ...], cwd: str, environment: dict[str, str], streams: str) -> None:
    """What the forked process does."""
    for number, name in enumerate(STREAMS):
        flags = os.O_RDWR | os.O_CREAT
        os.dup2(os.open(f"{streams}/{name}", flags), number)
        setattr(sys, name, os.fdopen(os.dup(number), "r" if name == "stdin" else "w"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["nearkv", *arguments]
    main()


def refused(*arguments: str, cwd: Path | None = None) -> str:
    """Run what must fail: exit 2, one sentence on standard error, nothing on standard output."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr

"""Processes of a sweep, and a sweep stopped at any moment: one sentence, nothing lost."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import pytest
from support.helpers import (
    COMMAND,
    content,
    finish,
    program,
    refused,
    safe_pieces,
    staging,
    start,
    sweep_words,
    until_safe,
)
from support.small_parts import in_small_parts
from support.warm_command import Running, forks

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.workers import Workers

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a sweep that nothing disturbed."""
    file = tmp_path_factory.mktemp("whole") / "all.csv"
    finish(file)
    return file.read_bytes()


def test_workers_end_with_a_killed_sweep(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    with start(file, "--jobs", "2") as process:
        assert until_safe(process, file)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
    deadline = time.monotonic() + 10
    while any(alive(int(worker)) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlives its sweep"
        time.sleep(0.05)


def alive(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.stops
def test_ctrl_c_says_how_to_go_on(tmp_path: Path, whole: bytes) -> None:
    file = tmp_path / "out.csv"
    process = program(file, "--jobs", "2")
    assert until_safe(process, file)
    process.send_signal(signal.SIGINT)
    printed = refused(process, 130)
    again = re.search(r"finished rows are safe, go on with: .*nearkv (sweep .*--resume)$", printed)
    assert again, printed
    with Running(*shlex.split(again[1]), settings=in_small_parts) as resumed:
        _, printed = resumed.communicate()
    assert resumed.returncode == 0, printed
    assert content(file) == {"": whole}


@pytest.mark.stops
def test_ctrl_c_at_once_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    process = program(file)
    while process.poll() is None and not staging(file).exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert "stopped" in refused(process, 130)
    assert safe_pieces(file) or not list(tmp_path.iterdir())


def marked(mark: str) -> list[int]:
    """Processes that live with a mark in their environment."""
    processes = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or is not ours
            if mark.encode() in (place / "environ").read_bytes() and alive(int(place.name)):
                processes.append(int(place.name))
    return processes


@pytest.mark.stops
@pytest.mark.parametrize(
    ("after", "everybody"),
    [
        (0.45, False),
        (0.8, True),
        *(
            pytest.param(*moment, marks=pytest.mark.deep)
            for moment in [(0.2, True), (0.6, True), (0.7, False), (1.0, False)]
        ),
    ],
)
def test_ctrl_c_while_workers_start(tmp_path: Path, after: float, everybody: bool) -> None:
    """Wherever it strikes, all as in a terminal or the parent alone: one line, no process stays."""
    mark = f"{os.getpid()}.{after}.{everybody}"
    file = tmp_path / "out.csv"
    process = subprocess.Popen(
        [COMMAND, *sweep_words(file, "--jobs", "2", "--batch", "1:100:+1")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "NEARKV_TEST": mark},
    )
    time.sleep(after)
    send = os.killpg if everybody else os.kill
    send(process.pid, signal.SIGINT)
    _, printed = process.communicate()
    if process.returncode not in (0, -signal.SIGINT):  # which ends Python before nearkv listens
        assert process.returncode == 130
        lines = [line for line in printed.splitlines() if "design points to write" not in line]
        assert len(lines) == 1
        assert lines[0].startswith("nearkv: stopped")
    deadline = time.monotonic() + 10  # Python's own tracker of semaphores ends a moment later
    while marked(f"NEARKV_TEST={mark}"):
        assert time.monotonic() < deadline, "a process stays"
        time.sleep(0.05)
    assert safe_pieces(file) or not list(tmp_path.iterdir()) or process.returncode == 0


@pytest.mark.stops
def test_ctrl_c_before_anything_is_read_is_one_line() -> None:
    """The first import of the command is interrupted."""
    script = """
import os, signal, sys
import nearkv.__main__

class Interrupting:
    @staticmethod
    def find_spec(*_):
        os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
nearkv.__main__.main()
"""
    command = [str(COMMAND.with_name("python")), "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "nearkv: stopped; nothing was written\n")


def squared(number: int) -> int:
    if number < 0:
        raise InputError(f"{number} is negative")
    if number == 13:
        os._exit(1)
    return number * number


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that need not read the command's libraries anew."""
    monkeypatch.setattr("nearkv.sweeps.jobs.workers.get_context", lambda _: forks())


@pytest.mark.usefixtures("forked")
def test_processes_answer_in_order_and_only_a_few_ahead() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100, 130):
            taken.append(number)
            yield number

    for place, (number, found) in enumerate(Workers(2).run(squared, numbers())):
        assert (number, found) == (100 + place, (100 + place) ** 2)
        assert len(taken) <= place + 1 + 2 * 2
    assert len(taken) == 30


@pytest.mark.usefixtures("forked")
def test_what_a_worker_raises_is_raised_here() -> None:
    with pytest.raises(InputError, match="-1 is negative"):
        list(Workers(2).run(squared, iter([1, -1, 2])))


@pytest.mark.usefixtures("forked")
def test_a_worker_that_dies_is_one_sentence() -> None:
    with pytest.raises(InputError, match="a worker process died"):
        list(Workers(2).run(squared, iter([1, 13, 2, 3, 4, 5, 6])))


def test_a_process_that_cannot_be_started_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", full)
    with pytest.raises(InputError, match=r"--jobs: cannot be started .*; try fewer"):
        list(Workers(3).run(squared, iter([1])))


def test_a_worker_that_dies_before_its_task_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr(ProcessPoolExecutor, "submit", broken)
    with pytest.raises(InputError, match="a worker process died"):
        list(Workers(2).run(squared, iter([1])))


@pytest.mark.parametrize(("jobs", "scheduler"), [(0, ""), (1000, ""), (2, "tcp://x:1")])
def test_workers_that_make_no_sense(jobs: int, scheduler: str) -> None:
    with pytest.raises(InputError, match="--jobs"):
        Workers(jobs, scheduler)


def test_a_port_has_sixteen_bits() -> None:
    for port in ("1", "65535"):
        assert Workers(scheduler=f"tcp://x:{port}").scheduler.endswith(port)
    for port in ("0", "65536"):
        with pytest.raises(InputError, match="tcp://HOST:PORT"):
            Workers(scheduler=f"tcp://x:{port}")

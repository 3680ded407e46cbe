"""Sweeps that are told to stop, at any moment and by anyone: one sentence, no process left, nothing lost."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sweep_files import (
    AXES,
    COMMAND,
    content,
    finish,
    refused,
    saved,
    start,
    state,
    until_saved,
)

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.store import store
from nearkv.sweeps.runtime.interrupts import careful, listening
from nearkv.sweeps.runtime.processes import in_processes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a sweep that nothing disturbed."""
    file = tmp_path_factory.mktemp("whole") / "all.csv"
    finish(file)
    return file.read_bytes()


def test_workers_end_with_a_killed_sweep(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    with start(file, "--jobs", "2") as process:
        assert until_saved(process, file)
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


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, whole: bytes) -> None:
    file = tmp_path / "out.csv"
    process = start(file, "--jobs", "2")
    assert until_saved(process, file)
    process.send_signal(signal.SIGINT)
    requested = refused(process, 130)
    again = re.search(
        r"finished rows are safe, go on with: .*nearkv (sweep .*--resume)$", requested
    )
    assert again, requested
    subprocess.run([COMMAND, *shlex.split(again[1])], check=True, capture_output=True)
    assert content(file) == {"": whole}


def test_ctrl_c_at_once_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    process = start(file)
    while process.poll() is None and not (state(file) / "rows").exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert "nothing was changed" in refused(process, 130) or saved(file)
    assert saved(file) or not list(tmp_path.iterdir())


def marked(mark: str) -> list[str]:
    """Processes that live with a mark in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if (
                place.name.isdigit()
                and mark.encode() in (place / "environ").read_bytes()
                and alive(int(place.name))
            ):
                found.append(place.name)
        except OSError:  # ended meanwhile, or is not ours
            continue
    return found


@pytest.mark.parametrize("everybody", [True, False], ids=["as a terminal", "parent only"])
@pytest.mark.parametrize("after", [0.2, 0.45, 0.6, 0.7, 0.8, 1.0])
def test_ctrl_c_while_workers_start(tmp_path: Path, after: float, everybody: bool) -> None:
    """Whatever of the start it strikes: one line, and no process stays."""
    mark = f"NEARKV_TEST={os.getpid()}.{after}.{everybody}"
    command = [str(COMMAND), "sweep", *AXES, "-o", str(tmp_path / "out.csv"), "--jobs", "4"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "NEARKV_TEST": mark.partition("=")[2]},
    )  # fmt: skip
    time.sleep(after)
    (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
    if process.poll() is None:
        assert "stopped" in refused(process, 130)
    process.communicate()
    assert not marked(mark)
    assert saved(tmp_path / "out.csv") or not list(tmp_path.iterdir()) or process.returncode == 0


def test_ctrl_c_before_anything_is_read_is_one_line() -> None:
    script = "import os, signal, sys, nearkv.__main__; sys.meta_path.insert(0, type('Slow', (), {'find_spec': staticmethod(lambda *_: os.kill(os.getpid(), signal.SIGINT))})); nearkv.__main__.main()"
    done = subprocess.run(
        [COMMAND.with_name("python"), "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "nearkv: stopped\n")


def interrupted(steps: list[str]) -> None:
    signal.raise_signal(signal.SIGINT)
    steps.append("not interrupted")
    with listening():
        steps.append("never reached")


def test_ctrl_c_waits_where_something_is_at_stake() -> None:
    steps: list[str] = []
    with careful(), pytest.raises(KeyboardInterrupt):
        interrupted(steps)
    with careful(), pytest.raises(KeyboardInterrupt), listening():
        signal.raise_signal(signal.SIGINT)
    with careful():
        signal.raise_signal(signal.SIGINT)
    with careful(), listening():
        steps.append("what came too late is forgotten")
    assert steps == ["not interrupted", "what came too late is forgotten"]


def begin(file: Path) -> None:
    signal.raise_signal(signal.SIGINT)
    with store(file, "csv", {}):
        raise AssertionError("never reached")


def test_ctrl_c_while_a_file_is_begun_leaves_nothing(tmp_path: Path) -> None:
    with careful(), pytest.raises(KeyboardInterrupt, match="stopped; nothing was changed"):
        begin(tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


def squared(number: int) -> int:
    if number < 0:
        raise InputError(f"{number} is negative")
    if number == 13:
        os._exit(1)
    return number * number


def test_processes_answer_in_order_and_only_a_few_ahead() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100, 130):
            taken.append(number)
            yield number

    for place, (number, found) in enumerate(in_processes(squared, numbers(), 3)):
        assert (number, found) == (100 + place, (100 + place) ** 2)
        assert len(taken) <= place + 1 + 2 * 3
    assert len(taken) == 30


def test_what_a_worker_raises_is_raised_here() -> None:
    with pytest.raises(InputError, match="-1 is negative"):
        list(in_processes(squared, iter([1, -1, 2]), 2))


def test_a_worker_that_dies_is_one_sentence() -> None:
    with pytest.raises(InputError, match="a worker process died"):
        list(in_processes(squared, iter([1, 13, 2, 3, 4, 5, 6]), 2))

"""Evaluate in processes of this machine, which end with the one that started them, however that ends.

Each is a Python of its own, not a fork, which Arrow's threads do not survive, and one pipe: whichever
side ends, the other reads the end of the pipe. Nothing else is shared, so nothing is left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from nearkv.hardware.errors import InputError
from nearkv.sweeps.runtime.interrupts import SIGNALS, listening
from nearkv.sweeps.runtime.memory import keep_freed_memory

if TYPE_CHECKING:
    Link = Connection[Any, Any]
    Asked = SimpleQueue[Any]

Item = TypeVar("Item")

_SERVE = "import sys; sys.path[:] = {path!r}; from nearkv.sweeps.runtime.processes import serve; serve({pipe})"
_AHEAD = 2
"""Items each process has under way or waiting, so that it never waits for this one."""
_LAST = 5.0
"""The longest a killed process may take to end [s]."""


def in_processes(
    task: Callable[[Item], Any], items: Iterator[Item], jobs: int
) -> Generator[tuple[Item, Any], None, None]:
    """Do a task on every item in some processes; see `Workers.run`.

    Raises:
        InputError: processes cannot be started, or one dies.
    """
    with _team(task, jobs) as pipes:
        numbered = enumerate(items)
        asked: dict[Link, deque[tuple[int, Item]]] = {pipe: deque() for pipe in pipes}
        early: dict[int, tuple[Item, Any]] = {}
        turn = under_way = 0
        while True:
            with listening():
                for numbered_item in islice(numbered, _AHEAD * jobs - under_way):
                    idlest = min(asked, key=lambda pipe: len(asked[pipe]))
                    _send(idlest, numbered_item[1])
                    asked[idlest].append(numbered_item)
                    under_way += 1
                while under_way and turn not in early:
                    for pipe in wait([pipe for pipe, waiting in asked.items() if waiting]):
                        number, item = asked[pipe].popleft()  # type: ignore[index]
                        early[number] = item, _received(pipe)  # type: ignore[arg-type]
            if not under_way:
                return
            yield early.pop(turn)
            turn, under_way = turn + 1, under_way - 1


@contextmanager
def _team(task: Callable[[Item], Any], jobs: int) -> Iterator[list[Link]]:
    """Processes that know the task, by their pipes; none outlives this."""
    pipes: list[Link] = []
    team: list[subprocess.Popen[bytes]] = []
    try:
        try:
            for _ in range(jobs):
                ours, theirs = Pipe()
                pipes.append(ours)
                with theirs, _unheard():
                    code = _SERVE.format(path=sys.path, pipe=theirs.fileno())
                    command = [sys.executable, "-c", code]
                    team.append(
                        subprocess.Popen(
                            command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
                        )
                    )
        except OSError as problem:
            raise InputError(
                f"--jobs {jobs}: cannot be started ({problem.strerror}); try fewer"
            ) from None
        for pipe in pipes:
            _send(pipe, task)
        yield pipes
    finally:
        for process in team:
            process.kill()
        for pipe in pipes:
            pipe.close()
        for process in team:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LAST)


@contextmanager
def _unheard() -> Iterator[None]:
    """A process started meanwhile never hears Ctrl-C, from its first moment on; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(pipe: Link, what: object) -> None:
    try:
        pipe.send(what)
    except ConnectionError:
        raise _died() from None


def _received(pipe: Link) -> Any:
    try:
        fine, found = pipe.recv()
    except (EOFError, ConnectionError):
        raise _died() from None
    if not fine:
        raise found
    return found


def _died() -> InputError:
    return InputError("a worker process died, perhaps for want of memory; try fewer --jobs")


def serve(pipe: int) -> None:
    """What a process does: read a task, then items, and answer each; end with its pipe."""
    link: Link = Connection(pipe)
    asked: Asked = SimpleQueue()
    Thread(target=_listen, args=(link, asked), daemon=True).start()
    keep_freed_memory()
    task = asked.get()
    while True:
        answer = _answer(task, asked.get())
        try:
            link.send(answer)
        except ConnectionError:
            os._exit(1)


def _listen(link: Link, asked: Asked) -> None:
    """Read while the other thread works, so that whoever asks never waits and their end is seen at once."""
    try:
        while True:
            asked.put(link.recv())
    finally:
        os._exit(1)


def _answer(task: Callable[[Any], Any], item: object) -> tuple[bool, Any]:
    try:
        return True, task(item)
    except Exception as problem:
        problem.add_note(traceback.format_exc())
        return False, problem

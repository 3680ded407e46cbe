"""Evaluate in processes of this machine, which end with the one that started them, however it ends.

Each worker is a fresh Python, not a fork, which Arrow's threads do not survive. It never hears
Ctrl-C: the process that started it decides, and closes a pipe to say so.
"""

from __future__ import annotations

import os
import signal
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from types import FrameType
from typing import Any, TypeVar

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.interrupts import SIGNALS, listening
from nearkv.sweeps.jobs.memory import keep_freed_memory

Item = TypeVar("Item")

_AHEAD = 2
"""Items under way or waiting per process, so that none waits for this one."""


def in_processes(
    task: Callable[[Item], Any], items: Iterator[Item], jobs: int
) -> Generator[tuple[Item, Any], None, None]:
    """Do a task on every item in some processes; see `Workers.run`.

    Raises:
        InputError: processes cannot be started, or one dies.
    """
    waiting: deque[tuple[Item, Future[Any]]] = deque()
    with _pool(task, jobs) as pool:
        while True:
            for item in islice(items, _AHEAD * jobs - len(waiting)):
                waiting.append((item, _submit(pool, item, jobs)))
            if not waiting:
                return
            item, future = waiting.popleft()
            yield item, _result(future)


@contextmanager
def _pool(task: Callable[[Any], Any], jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that know the task; none outlives this."""
    theirs, ours = Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=_begin, initargs=(task, theirs)
    )
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


def _submit(pool: ProcessPoolExecutor, item: object, jobs: int) -> Future[Any]:
    """Hand an item to the pool, which may start a process for it."""
    # a signal that a process is born with held back never reaches it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return pool.submit(_work, item)
    except BrokenProcessPool:
        raise _death() from None
    except OSError as problem:
        message = f"--jobs {jobs}: cannot be started ({problem.strerror}); try fewer"
        raise InputError(message) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(future: Future[Any]) -> Any:
    try:
        with listening():
            return future.result()
    except BrokenProcessPool:
        with listening():  # a stop that ended the worker too is a stop
            raise _death() from None


def _death() -> InputError:
    return InputError("a worker process died, perhaps for want of memory; try fewer --jobs")


class _Worker:
    """What a worker process knows: its task, whether it works, and whether it is to stop."""

    task: Callable[[Any], Any]
    working = stopped = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """End the task under way; a result that is being sent is never cut."""
        if self.working:
            raise KeyboardInterrupt


_WORKER = _Worker()


def _begin(task: Callable[[Any], Any], line: Connection) -> None:
    """Get a worker process ready."""
    _WORKER.task = task
    signal.signal(signal.SIGINT, _WORKER.interrupt)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which a broken pool ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    Thread(target=_watch, args=(line,), daemon=True).start()
    keep_freed_memory()


def _watch(line: Connection) -> None:
    """Stop the task when the line is closed, and the process when the one that started it ends."""
    parent = parent_process()
    assert parent, "a worker is started by another process"
    wait([line, parent.sentinel])
    _WORKER.stopped = True
    interrupt_main(signal.SIGINT)
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _work(item: object) -> Any:
    if _WORKER.stopped:
        return None
    try:
        _WORKER.working = True
        return _WORKER.task(item)
    finally:
        _WORKER.working = False

"""Evaluate here, in processes or on a Dask cluster; answers come in order."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar
from warnings import catch_warnings

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.freed_memory import keep_freed_memory

Item = TypeVar("Item")
_Result = TypeVar("_Result")

MOST_JOBS = 256
"""Processes that one machine may be asked for."""
PATIENCE = 5
"""Time that a cluster may take to answer, and a worker of it to appear [s]."""
_AHEAD = 2
"""Items under way or waiting per worker, so that none waits for this process."""
_ADDRESS = re.compile(
    r"(?:(?:tcp|tls|ws|wss|ucx)://)?(?:\[([0-9A-Fa-f:.]+)\]|([\w.\-]+)):(\d{1,5})/?", re.A
)


@dataclass(frozen=True)
class Workers:
    """Executors of a sweep.

    Attributes:
        jobs: processes on this machine; one is this process itself.
        scheduler: address of a Dask scheduler, in place of processes.

    Raises:
        InputError: too few or too many, both kinds at once, or no address.
    """

    jobs: int = 1
    scheduler: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= MOST_JOBS:
            raise InputError(f"--jobs must be from 1 to {MOST_JOBS}, not {self.jobs}")
        if self.jobs > 1 and self.scheduler:
            raise InputError("--jobs and --scheduler each say who evaluates; choose one")
        match = _ADDRESS.fullmatch(self.scheduler)
        if self.scheduler and (match is None or not 0 < int(match[3]) < 1 << 16):
            example = "write it as tcp://HOST:PORT, as in tcp://host:8786"
            raise InputError(f"--scheduler {self.scheduler!r}: {example}")

    def run(
        self, task: Callable[[Item], _Result], items: Iterator[Item]
    ) -> Generator[tuple[Item, _Result], None, None]:
        """Do a task on every item and yield the answers in the order of the items.

        Only a few items are under way at a time, so neither side holds more than that in memory.

        Args:
            task: must pickle.
            items: consumed as workers become free.

        Raises:
            InputError: there is no such cluster, or workers die.
        """
        keep_freed_memory()
        if self.scheduler:
            yield from _on_cluster(self.scheduler, task, items)
        elif self.jobs > 1:
            yield from _in_processes(self.jobs, task, items)
        else:
            for item in items:
                yield item, task(item)


def _in_order(
    pool: Executor,
    task: Callable[[Item], _Result],
    items: Iterator[Item],
    count: int,
    answer: Callable[[Future[_Result]], _Result],
) -> Generator[tuple[Item, _Result], None, None]:
    """Hand items to workers; yield the answers in the order of the items."""
    waiting: deque[tuple[Item, Future[_Result]]] = deque()
    for item in items:
        waiting.append((item, pool.submit(task, item)))
        if len(waiting) >= _AHEAD * count:
            first, future = waiting.popleft()
            yield first, answer(future)
    for item, future in waiting:
        yield item, answer(future)


def _in_processes(
    jobs: int, task: Callable[[Item], _Result], items: Iterator[Item]
) -> Generator[tuple[Item, _Result], None, None]:
    """Do a task in processes of this machine.

    Each is a fresh Python, not a fork, which Arrow's threads do not survive.

    Raises:
        InputError: one dies.
    """
    pool = _Pool(jobs, get_context("spawn"), initializer=_begin)
    try:
        yield from _in_order(pool, task, items, jobs, Future.result)
    except BrokenProcessPool:
        died = "a worker process died, perhaps for want of memory; try fewer --jobs"
        raise InputError(died) from None
    finally:
        pool.shutdown(cancel_futures=True)


class _Pool(ProcessPoolExecutor):
    """A pool whose processes never hear Ctrl-C: the process that started them decides."""

    def submit(self, *arguments: Any, **named: Any) -> Future[Any]:
        """Submit a task; a process started for it ignores Ctrl-C from its first moment.

        Raises:
            InputError: the process cannot be started.
        """
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
        try:
            return super().submit(*arguments, **named)
        except OSError as problem:
            message = f"cannot be started ({problem.strerror}); try fewer"
            raise InputError(f"--jobs: {message}") from None
        finally:
            if is_main:
                signal.signal(signal.SIGINT, before)


def _begin() -> None:
    """Get a worker process ready; it ends with the one that started it, however that ends."""
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent, "a worker is started by another process"
    parent.join()
    os._exit(1)


def _on_cluster(
    address: str, task: Callable[[Item], _Result], items: Iterator[Item]
) -> Generator[tuple[Item, _Result], None, None]:
    """Do a task on a Dask cluster.

    Raises:
        InputError: Dask is not installed, no cluster with workers answers, or it is lost.
    """
    import asyncio

    try:
        from distributed import Client, KilledWorker
        from distributed.client import ClosedClientError
    except ImportError:
        install = "install it with `pip install 'nearkv[dask]'`"
        raise InputError(f"--scheduler needs Dask; {install}") from None
    logging.disable()  # one sentence says what matters
    try:
        with catch_warnings(action="ignore"):  # every task checks the version that matters
            asyncio.run(_shake_hands(address))
            client = Client(address, timeout=PATIENCE, set_as_default=False)
            client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, ValueError, RuntimeError, MemoryError, TypeError) as problem:
        raise InputError(
            f"--scheduler {address}: no Dask cluster with workers answers there "
            f"({_first_line(problem) or 'timed out'}); start one, or use --jobs"
        ) from None

    def answer(future: Future[_Result]) -> _Result:
        """Wait for an answer while a worker is left.

        Raises:
            ClosedClientError: the scheduler was lost, and the client has given up on it.
            RuntimeError: no worker is left.
        """
        while True:
            try:
                return future.result(PATIENCE)
            except TimeoutError:
                if client.status == "closed":
                    raise ClosedClientError from None
                if not client.nthreads():
                    raise RuntimeError("no worker is left; start one") from None

    lost = (
        CancelledError,
        ClosedClientError,
        KilledWorker,
        ImportError,
        OSError,
        RuntimeError,
        TypeError,
    )
    try:
        with client:
            threads = sum(client.nthreads().values())
            pool = client.get_executor(pure=False)
            yield from _in_order(pool, task, items, threads, answer)
    except lost as problem:
        why = _first_line(problem) or "it no longer answers"
        reason = f"the cluster cannot go on ({why})"
        raise InputError(f"--scheduler {address}: {reason}") from None
    finally:
        logging.disable(logging.NOTSET)


async def _shake_hands(address: str) -> None:
    """Connect to a scheduler once.

    A `Client` waits without end for the first word of a service that listens and is no Dask.

    Raises:
        OSError: nothing answers in time.
    """
    import asyncio

    from distributed import Security
    from distributed.comm.core import connect

    secrets = Security().get_connection_args("client")
    connecting = connect(address, timeout=PATIENCE, **secrets)
    comm = await asyncio.wait_for(connecting, 2 * PATIENCE)
    await comm.close()


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n")[0]

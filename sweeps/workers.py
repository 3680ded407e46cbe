"""Evaluate here, in processes or on a Dask cluster; results come in order whatever the workers."""

from __future__ import annotations

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from warnings import catch_warnings

from hardware.errors import InputError
from sweeps.memory import keep_freed_memory

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Found = TypeVar("Found")
Results = Generator[tuple[Item, Found], None, None]

PATIENCE = 5
"""How long a cluster may take to answer, and its first worker to appear [s]."""


MOST_JOBS = 256
"""Processes that one machine may be asked for."""


@dataclass(frozen=True)
class Workers:
    """Who evaluates.

    Attributes:
        jobs: processes on this machine; one is this process itself.
        scheduler: address of a Dask scheduler, in place of processes.

    Raises:
        InputError: too few or too many, or both kinds at once.
    """

    jobs: int = 1
    scheduler: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= MOST_JOBS:
            raise InputError(f"--jobs {self.jobs}: must be 1 or more, and at most {MOST_JOBS}")
        if self.jobs > 1 and self.scheduler:
            raise InputError("--jobs and --scheduler each say who evaluates; choose one")

    def run(self, task: Callable[[Item], Found], items: Iterator[Item]) -> Results[Item, Found]:
        """Do a task on every item and yield the results in the order of the items.

        Only a few items are under way at a time, so neither side holds more than that in memory.

        Args:
            task: must pickle.
            items: consumed as workers become free.

        Raises:
            InputError: there is no such cluster, or workers die again and again.
        """
        keep_freed_memory()
        if self.scheduler:
            yield from _on_cluster(task, items, self.scheduler)
        elif self.jobs > 1:
            yield from _in_processes(task, items, self.jobs)
        else:
            yield from ((item, task(item)) for item in items)


class _Future(Protocol):
    def result(self) -> Any: ...
    def cancel(self) -> Any: ...


def _in_order(submit: Callable[[Item], _Future], items: Iterator[Item], ahead: int) -> Results[Item, Any]:
    under_way = deque((item, submit(item)) for item in islice(items, ahead))
    try:
        while under_way:
            item, future = under_way.popleft()
            found = future.result()
            under_way.extend((after, submit(after)) for after in islice(items, 1))
            yield item, found
    finally:
        for _, future in under_way:
            future.cancel()


def _in_processes(task: Callable[[Item], Any], items: Iterator[Item], jobs: int) -> Results[Item, Any]:
    from multiprocessing import get_context

    # spawned, not forked: Arrow's threads do not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start) as pool:
        with _deaf_to_interrupts():
            pool.submit(os.getpid)
        with closing(_in_order(lambda item: pool.submit(task, item), items, 2 * jobs)) as found:
            try:
                yield from found
            except BrokenProcessPool:
                raise InputError("a worker process died, perhaps for want of memory; try fewer --jobs") from None


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started meanwhile leave Ctrl-C to this one, from their first moment on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start() -> None:
    """Make ready a worker process: it ends with its parent, even when that is killed."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait
    from threading import Thread

    keep_freed_memory()
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def _on_cluster(task: Callable[[Item], Any], items: Iterator[Item], address: str) -> Results[Item, Any]:
    logging.disable()  # what matters is told in one sentence
    try:
        with _connected(address) as client:
            from distributed import KilledWorker

            submit = partial(client.submit, _on_worker, task, pure=False, retries=3)
            try:
                with closing(_in_order(submit, items, 2 * sum(client.nthreads().values()))) as found:
                    yield from found
            except (CancelledError, KilledWorker, ImportError, OSError, RuntimeError) as problem:
                raise InputError(f"--scheduler {address}: the cluster cannot go on ({_first_line(problem)})") from None
    finally:
        logging.disable(logging.NOTSET)


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n")[0]


def _on_worker(task: Callable[[Item], Any], item: Item) -> Any:
    keep_freed_memory()
    return task(item)


def _connected(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--scheduler needs Dask; install it with `pip install 'nearkv[dask]'`") from None
    try:
        with catch_warnings(action="ignore"):  # of packages that differ; those that matter are compared below
            client = Client(address, timeout=PATIENCE, set_as_default=False)
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, ValueError) as problem:
        raise InputError(
            f"--scheduler {address}: no Dask cluster with workers answers there ({_first_line(problem)})"
        ) from None
    for package in ("nearkv", "numpy", "pyarrow"):
        for worker, found in client.run(version, package, on_error="return").items():
            if found != version(package):
                lacks = f"has {package} {found}" if isinstance(found, str) else f"has no {package}"
                raise InputError(f"--scheduler {address}: worker {worker} {lacks}; install {version(package)} there")
    return client

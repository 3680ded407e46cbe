"""Evaluate on a Dask cluster."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import catch_warnings

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.interrupts import listening
from nearkv.sweeps.jobs.memory import keep_freed_memory
from nearkv.sweeps.jobs.versions import versions

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
_ADDRESS = re.compile(
    r"(?:(?:tcp|tls|ws|wss|ucx)://)?(?:\[([0-9A-Fa-f:.]+)\]|([\w.\-]+)):(\d{1,5})/?", re.A
)
PATIENCE = 5
"""How long a cluster may take to answer, and its first worker to appear [s]."""


def check_address(address: str) -> None:
    """Refuse what is not the address of a scheduler.

    Raises:
        InputError: it has another form.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3]) < 1 << 16:
        example = "write it as tcp://HOST:PORT, as in tcp://host:8786"
        raise InputError(f"--scheduler {address!r}: {example}")


def on_cluster(
    task: Callable[[Item], Any], items: Iterator[Item], address: str
) -> Generator[tuple[Item, Any], None, None]:
    """Do a task on every item on a cluster; see `Workers.run`.

    Raises:
        InputError: there is no such cluster, or its workers die again and again.
    """
    with _silent_log(), _connected(address) as client:
        from distributed import KilledWorker

        lost = (CancelledError, KilledWorker, ImportError, OSError, RuntimeError, TypeError)
        try:
            yield from _in_order(client, task, items)
        except lost as problem:
            reason = f"the cluster cannot go on ({_first_line(problem)})"
            raise InputError(f"--scheduler {address}: {reason}") from None


def _in_order(
    client: Client, task: Callable[[Item], Any], items: Iterator[Item]
) -> Generator[tuple[Item, Any], None, None]:
    submit = partial(client.submit, _on_worker, versions(), task, pure=False)
    ahead = 2 * sum(client.nthreads().values())
    waiting: deque[tuple[Item, Any]] = deque()
    try:
        while True:
            with listening():
                for item in islice(items, ahead - len(waiting)):
                    waiting.append((item, submit(item)))
                if not waiting:
                    return
                item, future = waiting.popleft()
                answer = _result(client, future)
            yield item, answer
    finally:
        for _, future in waiting:
            future.cancel()


@contextmanager
def _silent_log() -> Iterator[None]:
    """Keep the cluster's log off the screen; one sentence says what matters.

    Timed waits that a lost cluster ends are reported by asyncio when they are collected, which may
    be after this: its log stays off.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n")[0]


def _result(client: Client, future: Any) -> Any:
    """Wait for a result as long as any worker is left.

    Raises:
        RuntimeError: all workers are gone.
    """
    looks = 0
    while True:
        try:
            return future.result(timeout=PATIENCE)
        except TimeoutError:
            looks = 0 if client.nthreads() else looks + 1
        if looks > 1:  # one that was started anew would be back by now
            raise RuntimeError("no worker is left; start one")


def _on_worker(required: dict[str, str], task: Callable[[Item], Any], item: Item) -> Any:
    """Do a task on an item, with the same code as who asks; workers may join at any time.

    Raises:
        RuntimeError: versions or code differ.
    """
    here = versions()
    for name, version in required.items():
        if here.get(name) != version:
            host = socket.gethostname()
            raise RuntimeError(
                f"a worker on {host} is not of {name} {version}; install it there"
            )
    keep_freed_memory()
    return task(item)


def _connected(address: str) -> Client:
    try:
        # of the packages whose versions differ, those that matter are checked by every task
        with listening(), catch_warnings(action="ignore"):
            client = _client(address)
            client.wait_for_workers(1, timeout=PATIENCE)
    except InputError:
        raise
    except (
        Exception
    ) as problem:  # Dask fails in many ways on what answers in another language
        known = isinstance(problem, OSError | ValueError)
        reason = _first_line(problem) if known else ""
        reason = reason or ("timed out" if known else "what answers is no scheduler")
        raise InputError(
            f"--scheduler {address}: no Dask cluster with workers answers there ({reason}); "
            "start one, or use --jobs"
        ) from None
    return client


def _client(address: str) -> Client:
    """Connect to a scheduler.

    Raises:
        InputError: Dask is not installed.
        OSError: nothing answers in time.
        ValueError: what answers is no scheduler.
    """
    try:
        from distributed import Client
    except ImportError:
        install = "install it with `pip install 'nearkv[dask]'`"
        raise InputError(f"--scheduler needs Dask; {install}") from None
    # in a thread, since a notebook has an event loop of its own
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _check_scheduler(address)).result()
    return Client(address, timeout=PATIENCE, set_as_default=False)


async def _check_scheduler(address: str) -> None:
    """Ask who answers: a client would wait for ever for a service that is no scheduler.

    Raises:
        ValueError: it is no scheduler.
    """
    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with (
        asyncio.timeout(PATIENCE),
        rpc(address, connection_args=arguments) as service,
    ):
        identity = await service.identity()
    if identity.get("type") != "Scheduler":
        raise ValueError("what answers is no scheduler")

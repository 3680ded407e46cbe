"""Evaluate on a Dask cluster."""

from __future__ import annotations

import logging
import re
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import catch_warnings

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.identity import tool
from nearkv.sweeps.runtime.interrupts import listening
from nearkv.sweeps.runtime.memory import keep_freed_memory

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
_ADDRESS = re.compile(
    r"(?:(?:tcp|tls|ws|wss|ucx)://)?(?:\[([0-9A-Fa-f:.]+)\]|([\w.\-]+)):(\d{1,5})/?", re.A
)
_LONGEST_GREETING = 1 << 16
"""More than a scheduler says of itself; other services' words read as a size far above [B]."""
PATIENCE = 5
"""How long a cluster may take to answer, and its first worker to appear [s]."""


def check_address(address: str) -> tuple[str, int]:
    """Read the address of a scheduler: its host and port.

    Raises:
        InputError: it has another form.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3]) < 1 << 16:
        raise InputError(
            f"--scheduler {address!r}: write it as tcp://HOST:PORT, as in tcp://host:8786"
        )
    return match[1] or match[2], int(match[3])


def on_cluster(
    task: Callable[[Item], Any], items: Iterator[Item], address: str
) -> Generator[tuple[Item, Any], None, None]:
    """Do a task on every item on a cluster; see `Workers.run`.

    Raises:
        InputError: there is no such cluster, or its workers die again and again.
    """
    with _silence(), _connected(address) as client:
        from distributed import KilledWorker

        submit = partial(client.submit, _on_worker, tool(), task, pure=False)
        ahead = 2 * sum(client.nthreads().values())
        under_way: deque[tuple[Item, Any]] = deque()
        try:
            while True:
                with listening():
                    under_way += (
                        (item, submit(item)) for item in islice(items, ahead - len(under_way))
                    )
                    if not under_way:
                        return
                    item, future = under_way.popleft()
                    found = _result(client, future)
                yield item, found
        except (
            CancelledError,
            KilledWorker,
            ImportError,
            OSError,
            RuntimeError,
            TypeError,
        ) as problem:
            raise InputError(
                f"--scheduler {address}: the cluster cannot go on ({_first_line(problem)})"
            ) from None
        finally:
            for _, future in under_way:
                future.cancel()


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the cluster's log off the screen; what matters is told in one sentence."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n")[0]


def _result(client: Client, future: Any) -> Any:
    """Wait for a result as long as anybody works.

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


def _on_worker(wanted: dict[str, str], task: Callable[[Item], Any], item: Item) -> Any:
    """Do a task on an item, where this is the tool that was asked for; workers may join at any time.

    Raises:
        RuntimeError: it is another.
    """
    differs = [
        f"{name} {wanted[name]}" for name, mine in tool().items() if mine != wanted.get(name)
    ]
    if differs:
        raise RuntimeError(
            f"a worker on {socket.gethostname()} is not of {differs[0]}; install the same there"
        )
    keep_freed_memory()
    return task(item)


def _connected(address: str) -> Client:
    try:
        with (
            listening(),
            socket.create_connection(check_address(address), timeout=PATIENCE) as line,
        ):
            _check_greeting(line, address)
        with (
            listening(),
            catch_warnings(action="ignore"),
        ):  # of packages that differ; those that matter follow
            client = _client(address)
            client.wait_for_workers(1, timeout=PATIENCE)
    except InputError:
        raise
    except Exception as problem:  # Dask fails in many ways on what answers in another language
        told = (
            _first_line(problem)
            if isinstance(problem, OSError | ValueError)
            else "what answers is no scheduler"
        )
        raise InputError(
            f"--scheduler {address}: no Dask cluster with workers answers there ({told}); start one, or use --jobs"
        ) from None
    return client


def _check_greeting(line: socket.socket, address: str) -> None:
    """Hear out who answers: Dask would wait for ever for a service that waits itself, or speaks another language.

    A scheduler greets with the size of its first message, in eight bytes.
    """
    if "://" not in address or address.startswith("tcp://"):
        line.settimeout(PATIENCE)
        size = int.from_bytes(line.recv(8, socket.MSG_WAITALL), "little")
        if not 0 < size <= _LONGEST_GREETING:
            raise ValueError("what answers is no scheduler")


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "--scheduler needs Dask; install it with `pip install 'nearkv[dask]'`"
        ) from None
    client: Client = Client.__new__(Client)
    told: Queue[Exception | None] = Queue()

    def begin() -> None:
        try:
            client.__init__(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[misc]
        except Exception as problem:
            told.put(problem)
        else:
            told.put(None)

    # apart, because it may wait for ever for somebody who greets and then says nothing
    Thread(target=begin, daemon=True).start()
    try:
        if problem := told.get(timeout=2 * PATIENCE):
            raise problem
    except BaseException:
        client.status = "closed"  # else its end waits for what never began, and complains
        raise
    return client

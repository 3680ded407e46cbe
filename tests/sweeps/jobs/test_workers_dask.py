"""Sweeps on a real Dask cluster: a scheduler and two workers, each a process, on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

import pytest
from support.command_line import refusal
from support.helpers import ROWS, content, finish, refused, start, sweep_words, until_safe
from support.warm_command import forks

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.workers import Workers

pytestmark = pytest.mark.processes

SMALLER = ["--batch", "1:4:+1"]


def dask_worker(address: str, folder: Path, code: Path) -> subprocess.Popen[bytes]:
    """A worker of one thread as a program, of the package that lies in a folder."""
    alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder))
    command = [sys.executable, "-m", "dask", "worker", address, *alone]
    env = {**os.environ, "PYTHONPATH": str(code)}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, env=env, cwd=code)


class Cluster:
    """A scheduler and two workers of one thread each; what a test has killed starts anew."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.address = ""
        self.scheduler: BaseProcess | None = None
        self.workers: list[BaseProcess] = []

    def repair(self) -> None:
        """Start what does not run."""
        if self.scheduler is None or not self.scheduler.is_alive():
            for worker in self.workers:
                worker.kill()
            self.workers = []
            there, here = forks().Pipe()
            self.scheduler = self._begin(schedule, there)
            assert here.poll(30), "the scheduler does not start"
            self.address = here.recv()
        self.workers = [worker for worker in self.workers if worker.is_alive()]
        while len(self.workers) < 2:
            self.workers.append(self._begin(work, self.address, str(self.folder)))
        until_workers(self.address, 2)

    def _begin(self, target: Callable[..., None], *arguments: object) -> BaseProcess:
        process = forks().Process(target=target, args=arguments)
        process.start()
        self.stack.callback(process.join)
        self.stack.callback(process.kill)
        return process


def schedule(there: Connection) -> None:
    """Run a scheduler, and send its address."""
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            there.send(scheduler.address)
            await scheduler.finished()

    quietly(serve())


def work(address: str, folder: str) -> None:
    """Run a worker of one thread."""
    from distributed import Worker

    async def serve() -> None:
        async with Worker(address, nthreads=1, local_directory=folder) as worker:
            await worker.finished()

    quietly(serve())


def quietly(served: Coroutine[None, None, None]) -> None:
    """Serve without a word, whatever ends it."""
    logging.disable()
    with suppress(Exception):
        asyncio.run(served)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests, which outlives what they kill."""
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """Two workers of one thread each."""
    shared.repair()
    return shared


def until_workers(address: str, count: int) -> None:
    """Wait until a cluster has so many workers."""
    from distributed import Client

    with Client(address, timeout=30, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=30)


def test_a_cluster_gives_the_same_bytes_even_when_a_worker_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    finish(tmp_path / "here.csv")
    with start(tmp_path / "there.csv", "--scheduler", cluster.address) as process:
        assert until_safe(process, tmp_path / "there.csv")
        cluster.workers[0].kill()
        assert process.poll() is None
        _, printed = process.communicate()
    assert process.returncode == 0, printed
    assert content(tmp_path / "there.csv") == content(tmp_path / "here.csv")
    top = ["--top", "5", *SMALLER]
    finish(tmp_path / "here_top.csv", *top)
    finish(tmp_path / "there_top.csv", *top, "--scheduler", cluster.address)
    assert content(tmp_path / "there_top.csv") == content(tmp_path / "here_top.csv")


def test_a_cluster_that_is_lost_leaves_what_is_finished(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    process = start(file, "--scheduler", cluster.address)
    assert until_safe(process, file)
    assert cluster.scheduler
    cluster.scheduler.kill()
    printed = refused(process)
    assert f"--scheduler {cluster.address}: the cluster cannot go on" in printed
    assert "()" not in printed
    assert "finished rows are safe" in printed
    finish(file, "--resume")
    assert content(file)[""].count(b"\n") == ROWS + 1


def test_a_cluster_without_workers_left_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    process = start(file, "--scheduler", cluster.address)
    assert until_safe(process, file)
    for worker in cluster.workers:
        worker.kill()
    printed = refused(process)
    assert "the cluster cannot go on (no worker is left; start one)" in printed
    assert "finished rows are safe" in printed


def test_a_worker_of_other_code_is_refused_whenever_it_joins(
    cluster: Cluster, tmp_path: Path
) -> None:
    root, other = Path(__file__).parents[3], tmp_path / "other"
    shutil.copytree(root / "src" / "nearkv", other / "nearkv")
    with (other / "nearkv" / "costmodel" / "span.py").open("a") as file:
        file.write("# another formula")
    with dask_worker(cluster.address, tmp_path, other) as joined:
        try:
            until_workers(cluster.address, 3)
            printed = refused(start(tmp_path / "out.csv", "--scheduler", cluster.address))
        finally:
            joined.kill()
    assert "is another version of nearkv" in printed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster must answer in half a second."""
    monkeypatch.setattr("nearkv.sweeps.jobs.workers.PATIENCE", 0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("pause", [0.0, 0.2, 2.0], ids=["at-once", "reconnecting", "given-up"])
def test_a_lost_scheduler_is_one_sentence_whenever_work_is_handed_out(
    cluster: Cluster, pause: float
) -> None:
    """What is submitted while Dask reconnects is never heard of again; after that it refuses."""
    answers = Workers(scheduler=cluster.address).run(abs, iter(range(-100, 0)))
    assert next(answers) == (-100, 100)
    assert cluster.scheduler
    cluster.scheduler.kill()
    time.sleep(pause)
    with pytest.raises(InputError, match="the cluster cannot go on"):
        list(answers)


def refused_here(file: Path, scheduler: str) -> str:
    """Sentence of a sweep of this very process that must fail."""
    return refusal(*sweep_words(file, *SMALLER, "--quiet", "--scheduler", scheduler))


@pytest.mark.usefixtures("impatient")
def test_no_cluster_is_one_sentence(tmp_path: Path) -> None:
    printed = refused_here(tmp_path / "out.csv", "tcp://127.0.0.1:9")
    assert "--scheduler tcp://127.0.0.1:9: no Dask cluster with workers answers there" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("impatient")
def test_an_address_of_no_cluster_is_one_sentence(tmp_path: Path) -> None:
    without_certificates = refused_here(tmp_path / "out.csv", "tls://127.0.0.1:9")
    assert "no Dask cluster with workers answers there (TLS expects" in without_certificates
    for address in ("nonsense", "tcp://host", "http://host:1", "host:70000"):
        printed = refused_here(tmp_path / "out.csv", address)
        assert f"--scheduler '{address}': write it as tcp://HOST:PORT" in printed
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=speak_another_language, args=(server,), daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        printed = refused_here(tmp_path / "out.csv", address)
        assert "no Dask cluster with workers answers there" in printed


@pytest.mark.usefixtures("impatient")
def test_a_service_that_says_nothing_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and never speaks
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        begun = time.monotonic()
        said = refused_here(tmp_path / "out.csv", address)
        assert "no Dask cluster with workers answers there" in said
        assert time.monotonic() - begun < 10, "two connections of half a second, and the sweep"


def speak_another_language(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            with server.accept()[0] as heard:
                heard.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

"""Sweeps on a real Dask cluster: a scheduler and two workers, each a process, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest
from support.command_line import refusal
from support.helpers import ROWS, content, finish, refused, start, sweep_command, until_safe

pytestmark = pytest.mark.processes

SMALLER = ["--batch", "1:4:+1"]


def dask(*arguments: str, path: Path | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
    env = {**os.environ, "PYTHONPATH": str(path)} if path else None
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, cwd=path
    )


class Cluster:
    """A scheduler and two workers of one thread each; what a test has killed starts anew."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.address = ""
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def repair(self) -> None:
        """Start what does not run."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            for worker in self.workers:
                worker.kill()
            self.workers = []
            self.scheduler, self.address = self._schedule()
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(self._begin(*worker_of(self.address, self.folder)))
        until_workers(self.address, 2)

    def _schedule(self) -> tuple[subprocess.Popen[bytes], str]:
        """A new scheduler and its address."""
        written = self.folder / "scheduler.json"
        written.unlink(missing_ok=True)
        place = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(written))
        scheduler = self._begin("scheduler", *place)
        deadline = time.monotonic() + 30
        while not written.exists() or not written.read_text():
            assert time.monotonic() < deadline, "the scheduler does not start"
            time.sleep(0.05)
        return scheduler, str(json.loads(written.read_text())["address"])

    def _begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = self.stack.enter_context(dask(*arguments))
        self.stack.callback(process.kill)
        return process


def worker_of(address: str, folder: Path) -> tuple[str, ...]:
    """How a worker of one thread is started."""
    alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
    return ("worker", address, *alone)


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
    shutil.copytree(
        root / "src" / "nearkv", other / "nearkv", ignore=shutil.ignore_patterns("__pycache__")
    )
    with (other / "nearkv" / "costmodel" / "span.py").open("a") as file:
        file.write("# another formula")
    worker = worker_of(cluster.address, tmp_path)
    with dask(*worker, path=other) as joined:
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


def refused_here(file: Path, scheduler: str) -> str:
    """What a sweep of this very process says that must fail."""
    return refusal(*sweep_command(file, *SMALLER, "--quiet", "--scheduler", scheduler)[1:])


@pytest.mark.usefixtures("impatient")
def test_no_cluster_is_one_sentence(tmp_path: Path) -> None:
    printed = refused_here(tmp_path / "out.csv", "tcp://127.0.0.1:9")
    assert "--scheduler tcp://127.0.0.1:9: no Dask cluster with workers answers there" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("impatient")
def test_an_address_of_no_cluster_is_one_sentence(tmp_path: Path) -> None:
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

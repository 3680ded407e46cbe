"""Fixtures of all tests, and how Hypothesis draws."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.command_line import build_commands_once
from support.systems import SYSTEMS

from nearkv.__main__ import YOUNGEST
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload

# the same examples in every run, so that a run says what a change did; `make fuzz` draws new ones;
# no example is timed: a busy machine is no fault
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
build_commands_once()
MEMORY = Path("/dev/shm")
ROOM = 4e9
"""Free bytes of which tests fill a small part."""


def has_room(folder: Path) -> bool:
    """True if a folder takes the files of all tests, and programs among them may run."""
    if not folder.is_dir():
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize > ROOM and not disk.f_flag & os.ST_NOEXEC


# tests write thousands of small files, and wait for a disk a hundred times longer than for memory
if has_room(MEMORY):
    tempfile.tempdir = str(MEMORY)
# what collection makes stays to the end: the garbage collector need not look at it again and again
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect the garbage of tests alone, as seldom as the command does."""
    gc.freeze()
    gc.set_threshold(YOUNGEST)
    gc.enable()


@pytest.fixture(params=sorted(SYSTEMS))
def system(request: pytest.FixtureRequest) -> System:
    """Every registered system in turn."""
    return SYSTEMS[request.param]


@pytest.fixture
def work() -> Workload:
    """A workload that most systems fit."""
    return Workload(batch=8.0, prompt=16384.0, output=64.0)

"""Fixtures of all tests, and how Hypothesis draws."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from support.command_line import build_commands_once
from support.systems import SYSTEMS

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


@pytest.fixture(params=sorted(SYSTEMS))
def system(request: pytest.FixtureRequest) -> System:
    """Every registered system in turn."""
    return SYSTEMS[request.param]


@pytest.fixture
def work() -> Workload:
    """A workload that most systems fit."""
    return Workload(batch=8.0, prompt=16384.0, output=64.0)

"""A hardware number that is set and that no system reads is told, and only such."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import nearkv
from nearkv.hardware.errors import NearkvWarning

MODEL = "opt-30b"
UNREAD = {"csd.count": 4}


@pytest.mark.parametrize(
    ("systems", "number"),
    [
        ("flexgen-ssd", "csd.count=4"),
        ("flexgen-dram", "csd.price=4USD"),
        ("gpu-only", "host.memory=1TB"),
    ],
)
def test_a_number_that_no_system_reads_is_told(systems: str, number: str) -> None:
    key, _, value = number.partition("=")
    with pytest.warns(NearkvWarning, match=f"--set {key} changes nothing: no system here reads"):
        nearkv.compare(systems, MODEL, context="1k", sets={key: value})


@pytest.mark.parametrize(
    ("systems", "number"),
    [
        ("flexgen-ssd,hilos", "csd.count=4,8"),  # the second reads it
        ("flexgen-ssd", "ssd.price=400USD"),  # for the cost alone
        ("hilos", "csd.idle_power=4W"),  # for the energy alone
        ("hilos", "csd.endurance=5PB"),  # for the endurance alone
        ("gpu-only", "precision.kv=8bit"),  # of the model, before a system sees it
        ("l3", "dimm.capacity=32GB"),  # of a copy of the machine
        ("gpu-only", "gpu.flops_8bit=600TFLOP/s"),  # where the part states one
    ],
)
def test_a_number_that_some_column_reads_is_not(systems: str, number: str) -> None:
    key, _, value = number.partition("=")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NearkvWarning)
        nearkv.compare(systems, MODEL, context="1k", sets={key: value})
    assert not [one for one in told if "changes nothing" in str(one.message)]


@pytest.mark.parametrize("question", [nearkv.sweep, nearkv.pareto])
def test_sweep_and_pareto_tell_too(question: Callable[..., object]) -> None:
    with pytest.warns(NearkvWarning, match="csd.count changes nothing"):
        question(systems="flexgen-ssd", model=MODEL, context="1k", sets=UNREAD)


def test_estimate_tells_too() -> None:
    with pytest.warns(NearkvWarning, match="csd.count changes nothing"):
        nearkv.estimate("flexgen-ssd", MODEL, context="1k", sets=UNREAD)

"""Knobs of registered systems, what is said of unknown ones, and what a variant inherits."""

from __future__ import annotations

import pytest
from support.systems import SYSTEMS

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model import registry
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import check_knobs
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine


def test_systems_without_knobs_say_so() -> None:
    without = [SYSTEMS[name] for name in ("lpddr-only", "hbm-8")]
    with pytest.raises(
        InputError, match=r"lpddr-only and hbm-8: unknown knob 'alpha'; valid are: chunk"
    ):
        check_knobs(without, ["alpha"])
    with pytest.raises(InputError, match=r"unknown knob 'alpha' of hilos-.*|'alpah'"):
        check_knobs([SYSTEMS["hilos"], SYSTEMS["inf2"]], ["alpah"])
    check_knobs([SYSTEMS["hilos"], without[0]], ["alpha"])


def same(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
    """The system that it varies, as it is."""
    return SYSTEMS["hilos"](hw, llm, work, knobs)


@pytest.fixture(autouse=True)
def own_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems that a test registers are gone after it."""
    monkeypatch.setattr(registry, "_SYSTEMS", dict(SYSTEMS))


def test_a_variant_inherits_what_it_does_not_state() -> None:
    registry.system("hilos-2", variant_of="hilos", owns=("gpu",), technology="drives")(same)
    variant, base = registry.find_system("hilos-2"), SYSTEMS["hilos"]
    differ = {"name", "model", "owns", "technology"}
    assert {name for name in vars(base) if vars(base)[name] != vars(variant)[name]} == differ
    assert variant.owns == ("gpu",)
    assert variant.technology == "drives"


def test_a_variant_of_no_system_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown system 'hilso'.*hilos"):
        registry.system("mine", variant_of="hilso")


def test_a_system_of_its_own_states_its_test_bed_and_parts() -> None:
    with pytest.raises(TypeError, match="'platform' and 'owns'"):
        registry.system("mine")(same)
    registry.system("mine", platform="hilos-a100", owns=("host",))(same)
    mine = registry.find_system("mine")
    assert (mine.cite, mine.technology, mine.knobs) == ("user", "mine", {})

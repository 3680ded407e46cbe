"""Knobs of registered systems, what is said of unknown ones, and what a variant inherits."""

from __future__ import annotations

import pytest
from support.systems import SYSTEMS, machine_of, model

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


def test_a_reversal_is_of_its_columns_along_its_axes() -> None:
    """More GPUs may take longer where the ranks serve; a faster memory does not."""
    ring = SYSTEMS["rank-pim"]
    assert not ring.is_monotone("step_ms", "gpu.count")
    assert ring.is_monotone("step_ms", "gpu.bandwidth")


def test_a_knob_of_the_workload_is_found_there() -> None:
    """By rule or stated; only a function of any knobs is given its value as well, to pass it on."""
    hilos, seen = SYSTEMS["hilos"], list[object]()

    def named(hw: Machine, llm: LLM, work: Workload) -> Estimate:
        seen.append(work.chunk)
        return hilos(hw, llm, work, {"alpha": 0.5, "chunk": work.chunk})

    def of_any(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
        seen.append((work.chunk, dict(knobs)))
        return hilos(hw, llm, work, {"alpha": 0.5, **knobs})

    knobs = {"chunk": hilos.knobs["chunk"]}
    hw, llm, work = machine_of(hilos), model("opt-66b"), Workload(1.0, 512.0, 8.0)
    for name, function in (("named", named), ("of-any", of_any)):
        registry.system(name, variant_of="hilos", knobs=knobs)(function)
        registry.find_system(name)(hw, llm, work, {"chunk": 64.0})
    registry.find_system("named")(hw, llm, work, {})
    assert seen == [64.0, (64.0, {"chunk": 64.0}), 512.0]

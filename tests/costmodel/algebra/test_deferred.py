"""Spans whose seconds are known before they are built: the drain of a queue has six of them."""

from __future__ import annotations

import numpy as np
import pytest
from support.spans import leaf
from support.systems import model

from nearkv.costmodel.algebra.compose import chosen, overlap, serial
from nearkv.costmodel.algebra.deferred import Deferred
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.mechanisms.serving import iterations
from nearkv.costmodel.mechanisms.serving.fluid import switch
from nearkv.costmodel.model.capacity import fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study


def test_a_span_is_built_when_more_than_its_seconds_is_asked_for() -> None:
    """Three of 5 s: 1 s of a, then 2 s of a beside 3 s of b and 1 s of a."""
    built: list[Span] = []

    def build() -> Span:
        beside = serial(b=leaf("b", 3.0), a=leaf("a", 1.0))
        built.append(serial(first=leaf("a", 1.0), both=overlap(x=leaf("a", 2.0), y=beside)))
        return built[-1]

    thrice = serial(t=3.0 * Deferred(1.0, build, 5.0))
    assert thrice.seconds == 15.0
    assert not built
    assert thrice.resources == {"a", "b"}
    assert thrice.busy() == {"a": 12.0, "b": 9.0}
    y = {"t/both/y/b": 9.0, "t/both/y/a": 3.0}
    assert thrice.breakdown() == {"t/first": 3.0, "t/both/x": 0.0, **y}
    assert thrice.traffic() == {("a", "run"): 12.0, ("b", "run"): 9.0}
    assert thrice.active_of("a") == 9.0
    assert list(thrice.parts["t"].parts) == ["first", "both"]
    assert len(built) == 1


@pytest.mark.parametrize("system", ["l3", "gpu-only", "hbm-pim", "rank-pim", "cpu-offload"])
def test_a_drain_is_the_same_computed_at_once_or_piece_by_piece(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At few points its iterations are one along a further axis, with the machine's axes or not."""
    sets = {"gpu.flops": "100TFLOP/s:300TFLOP/s:+100TFLOP/s"}
    study = Study((system,), ("gpt-175b",), traces=("openr1", "longbench"), sets=sets)
    at_once = table(study, ("bottleneck", "energy_j_tok"))
    monkeypatch.setattr(iterations, "_FEW", 0)
    for name, column in table(study, ("bottleneck", "energy_j_tok")).items():
        np.testing.assert_array_equal(at_once[name], column, err_msg=name)


def test_a_search_where_only_another_value_reads_an_axis() -> None:
    """At 0 the link is not used at all; at 1 it is, and the faster links win."""

    def either(hw: Machine, llm: LLM, work: Workload, *, on: Real) -> Estimate:
        link = Port("link.bus", "move", hw.gpu_link.bandwidth)
        here = Port("gpu.hbm", "read", 1.0)
        step = serial(
            away=chosen(on, lambda: link(30.0)),
            here=chosen(1 - on, lambda: here(3.0)),
        )
        return Estimate(serial(), step, fits(gpu=(1.0, 2.0)), work, work.batch)

    knob = switch("one way or the other")
    system = System("either", "hilos-a100", "user", (), {"on": knob}, either)
    bandwidth = np.array([[5.0], [10.0], [20.0]])
    hw = load_platform("hilos-a100").machine().with_values({"gpu_link.bandwidth": bandwidth})
    work = Workload(np.array([[1.0, 2.0]]), 10.0, 1.0)
    answer = resolve_knobs(system, hw, model("opt-30b"), work, {"on": "auto"})
    assert np.broadcast_to(answer.knobs["on"], (3, 2)).tolist() == [[0, 0], [0, 0], [1, 1]]
    assert np.broadcast_to(answer.estimate.step.seconds, (3, 2))[:, 0].tolist() == [3.0, 3.0, 1.5]

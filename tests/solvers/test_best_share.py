"""Where weights live by `auto`: cases counted by hand, and the bound."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, machine_of, model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import KnobSetting, Resolved, resolve_knobs
from nearkv.sweeps.explore.knob import find_best_knob
from nearkv.sweeps.study.study import Study

STORAGE = 4.0


def placed(
    name: str, llm: str, work: Workload, host: float = 0.0, **knobs: KnobSetting
) -> Resolved:
    system = SYSTEMS[name]
    hw = load_platform(system.platform).machine()
    hw = hw.with_values({"host.memory": host}) if host else hw
    return resolve_knobs(system, hw, model(llm, hw), work, {**system.defaults, **knobs})


def test_weights_leave_dram_to_the_whole_batch() -> None:
    """As many as the cache of 16 sequences leaves room for; one sequence left 16 rounds."""
    work = Workload(16.0, 1024.0, 64.0)
    solved = placed("flexgen-dram", "opt-175b", work)
    rounds = placed("flexgen-dram", "opt-175b", work, weights=0.0)
    assert (solved.estimate.batch_run, rounds.estimate.batch_run) == (16, 1)
    need, memory = solved.estimate.fits.tiers["host"]
    assert need == pytest.approx(memory, rel=1e-6)
    assert solved.estimate.total.seconds < rounds.estimate.total.seconds / 10
    assert solved.placement is not None
    assert solved.placement.gap < 1e-9
    hilos = placed("hilos", "opt-175b", work).estimate
    # HILOS waits for two transfers a page of each head's buffer besides
    assert 1 < hilos.step.seconds / solved.estimate.step.seconds < 1.1


@pytest.mark.parametrize("alpha", [0.172, 0.5, "auto"])
def test_weights_make_room_for_x(alpha: KnobSetting) -> None:
    """X of a stated alpha and weights share 100 GB of DRAM; flash has room for the rest."""
    work = Workload(16.0, 8192.0, 8.0)
    best = placed("inf2", "opt-66b", work, 100e9, alpha=alpha).estimate
    stored = placed("inf2", "opt-66b", work, 100e9, alpha=alpha, weights=STORAGE).estimate
    assert best.fits.ok
    assert best.total.seconds < stored.total.seconds


def test_slow_dram_leaves_weights_to_the_drives() -> None:
    """At 1 GB/s of DRAM and 4 of flash a fifth in DRAM arrives with the rest, whatever alpha."""
    hw = machine_of(SYSTEMS["hilos"]).with_values({"host.bandwidth": 1e9, "gpu.memory": 15e9})
    work, llm = Workload(1.0, 16.0, 64.0), model("opt-66b")
    for alpha in (0.0, "auto"):
        knobs: dict[str, KnobSetting] = {**SYSTEMS["hilos"].defaults, "alpha": alpha}
        best = resolve_knobs(SYSTEMS["hilos"], hw, llm, work, knobs)
        filled = resolve_knobs(SYSTEMS["hilos"], hw, llm, work, {**knobs, "weights": 0.0})
        assert best.estimate.total.seconds < 0.5 * filled.estimate.total.seconds
        busy = best.estimate.step.busy()
        flash = max(seconds for name, seconds in busy.items() if name != "host.dram")
        assert float(busy["host.dram"]) == pytest.approx(float(flash), rel=0.02)


def test_the_best_placement_comes_with_its_bound() -> None:
    study = Study(("flexgen-dram",), ("opt-175b",), context=("1k",))
    answer = find_best_knob(study, "weights")
    assert answer["value"][0] == "filled+ssd_weights"
    assert answer["gap"][0] == 0
    assert answer["bound_s"][0] == pytest.approx(answer["total_s"][0])
    assert np.isfinite(answer["ssd_weights"][0])


def test_activations_may_leave_the_gpu_to_weights() -> None:
    """7.6 GB of weights in 8.5 GB: pages of activations cost less than streaming half of them."""
    uvm = SYSTEMS["deepspeed-uvm"]
    hw = machine_of(uvm).with_values({"gpu.memory": 8.46e9})
    work, llm = Workload(4.0, 107914.0, 1947.0), model("phi3-mini")
    best = resolve_knobs(uvm, hw, llm, work, dict(uvm.defaults))
    filled = resolve_knobs(uvm, hw, llm, work, {**uvm.defaults, "weights": 0.0})
    assert uvm.knobs["weights"].choices[int(best.knobs["weights"])] == "gpu"
    assert best.estimate.total.seconds < 0.95 * filled.estimate.total.seconds

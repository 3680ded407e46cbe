"""Where weights go that nobody places: they fill the GPU, then host memory, then drives."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Requested, Resolved, resolve_knobs

BED = load_platform("zero-a6000").machine()
OPT = model("opt-66b", BED)
"""132 GB of weights, 2.36 MB of cache a token."""
WORK = Workload(8.0, 2048.0, 32.0)


def filled(hw: Machine, work: Workload = WORK, **knobs: Requested) -> Resolved:
    system = SYSTEMS["flexgen-percent"]
    return resolve_knobs(system, hw, OPT, work, {**system.defaults, **knobs})


def with_memory(gpu: Real, host: Real) -> Machine:
    return BED.with_values({"gpu.memory": gpu, "host.memory": host})


@pytest.mark.parametrize("tensors", [0.0, 1.0])
@pytest.mark.parametrize("gpu_memory", [16e9, 48e9, 90e9])
def test_no_larger_share_fits_the_gpu(gpu_memory: float, tensors: float) -> None:
    """Of 1,001 shares none that fits puts more bytes there; whole tensors come in twelfths."""
    hw = with_memory(gpu_memory, 1e12)
    chosen = filled(hw, tensors=tensors)
    shares = np.linspace(0.0, 1.0, 1001)
    tried = filled(hw, tensors=tensors, cache=chosen.knobs["cache"], gpu_weights=shares)
    used = np.asarray(tried.estimate.fits.tiers["gpu"][0])
    most = np.max(used[used <= gpu_memory])
    own = float(np.max(chosen.estimate.fits.tiers["gpu"][0]))
    assert np.all(chosen.estimate.fits.ok)
    assert own >= most
    assert own == pytest.approx(most, rel=0.01)


@pytest.mark.parametrize(("system", "waiting"), [("flexgen-percent", 0.02), ("zero-inference", 0)])
def test_more_memory_never_makes_a_step_longer(system: str, waiting: float) -> None:
    """But for weights that come from DRAM beside the CPU's attention, which reads it, too."""
    gpus, hosts = np.geomspace(12e9, 400e9, 40)[:, None], np.geomspace(20e9, 800e9, 40)
    spec = SYSTEMS[system]
    hw = with_memory(gpus, hosts)
    estimate = resolve_knobs(spec, hw, OPT, WORK, spec.defaults).estimate
    fits = np.broadcast_to(estimate.fits.ok, (40, 40))
    seconds = np.where(fits, estimate.step.seconds, 1e9)
    assert np.all(seconds[1:] <= seconds[:-1] + 1e-9)
    assert np.all(seconds[:, 1:] <= (1 + waiting) * seconds[:, :-1] + 1e-9)
    assert np.min(seconds) < 0.9 * np.max(seconds[fits])


@pytest.mark.parametrize("tensors", [0.0, 1.0])
def test_drives_hold_what_host_memory_does_not(tensors: float) -> None:
    hosts = np.linspace(60e9, 200e9, 41)
    chosen = filled(with_memory(48e9, hosts), tensors=tensors)
    assert np.all(chosen.estimate.fits.ok)
    stored = np.broadcast_to(chosen.knobs["ssd_weights"], hosts.shape)
    assert np.all(np.diff(stored) <= 0)
    assert stored[0] > 0
    assert stored[-1] == 0


def test_what_is_stated_stays() -> None:
    knobs = filled(BED, gpu_weights=0.25, cache=2.0, ssd_weights=0.5).knobs
    assert [knobs[name] for name in ("gpu_weights", "ssd_weights", "cache")] == [0.25, 0.5, 2]

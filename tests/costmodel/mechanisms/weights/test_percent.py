"""FlexGen's shares of weights: whole tensors, and as many as a memory holds."""

from __future__ import annotations

import numpy as np
import pytest
from support.offloading import bed
from support.systems import SYSTEMS, model
from support.tiny import TINY, WORK as TINY_WORK

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.weights.percent import gpu_breaks, whole_tensors
from nearkv.costmodel.mechanisms.weights.residency import Residency, beside_gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import KnobSetting, Resolved, resolve_knobs

BED = load_platform("zero-a6000").machine()


OPT = model("opt-66b", BED)
"""132 GB of weights, 2.36 MB of cache a token."""


WORK = Workload(8.0, 2048.0, 32.0)


def filled(hw: Machine, work: Workload = WORK, **knobs: KnobSetting) -> Resolved:
    """As requested, of prompts that pass whole."""
    system = SYSTEMS["flexgen-percent"]
    whole: dict[str, KnobSetting] = {"chunk": 0.0}
    return resolve_knobs(system, hw, OPT, work, {**system.defaults, **whole, **knobs})


def with_memory(gpu: Real, host: Real) -> Machine:
    return BED.with_values({"gpu.memory": gpu, "host.memory": host})


@pytest.mark.parametrize("tensors", [0.0, 1.0])
@pytest.mark.parametrize("gpu_memory", [16e9, 48e9, 90e9])
def test_no_larger_share_fits_the_gpu(gpu_memory: float, tensors: float) -> None:
    """Of 1,001 shares none that fits puts more bytes there; whole tensors come in twelfths."""
    hw = with_memory(gpu_memory, 1e12)
    chosen = filled(hw, tensors=tensors)
    shares = np.linspace(0.0, 1.0, 1001)
    tried = filled(hw, tensors=tensors, gpu_weights=shares)
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
    knobs = filled(BED, gpu_weights=0.25, ssd_cache=1.0, ssd_weights=0.5).knobs
    assert [knobs[name] for name in ("gpu_weights", "ssd_weights", "ssd_cache")] == [0.25, 0.5, 1]


@pytest.mark.parametrize(
    ("asked", "placed"),
    [
        # centres of Q, K, V, O at 1/8, 3/8, 5/8, 7/8, of up and down at 1/4 and 3/4
        ((0.2, 0.0), (1 / 12, 0.0)),
        ((0.55, 0.0), (1 / 2, 0.0)),
        ((0.0, 0.5), (0.0, 1 / 2)),
        ((0.0, 0.2), (0.0, 1 / 12)),
        ((1.0, 0.0), (1.0, 0.0)),
    ],
)
def test_shares_are_of_whole_tensors(
    asked: tuple[float, float], placed: tuple[float, float]
) -> None:
    on_gpu, ssd = asked
    tiers = whole_tensors(model("opt-30b", bed("t4-box")), beside_gpu(on_gpu, ssd), 0.0)
    assert (tiers.gpu, tiers.storage) == pytest.approx(placed)
    divided = whole_tensors(model("opt-30b", bed("t4-box")), beside_gpu(on_gpu, ssd), 1.0)
    assert (divided.gpu, divided.storage) == pytest.approx((on_gpu, (1 - on_gpu) * ssd))


def test_prompts_of_many_tokens_visit_every_expert() -> None:
    """400 tokens choose 2 of 8 experts each: one that none chooses is less than 1e-40 likely."""
    system = SYSTEMS["zero-inference"]
    hw = bed("zero-a6000")
    llm = model("mixtral-8x7b", hw)
    prefill = system(hw, llm, Workload(4.0, 100.0, 2.0), {"ssd_weights": 0.0}).prefill
    moved = prefill.parts["layers"].traffic()["gpu_link.in", "move"]
    layers = llm.weight_bytes - llm.head_bytes
    assert moved == pytest.approx(layers, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "storage", "placed"),
    [
        # Q, K, V and the output are 144, 48, 48 and 144 of 384 elements: their centres lie at
        # 3/16, 7/16, 9/16 and 13/16; those of three matrices of 152 at 1/6, 1/2 and 5/6
        (0.2, 0.0, (144 + 152, 240 + 304, 0)),
        (0.0, 0.2, (0, 240 + 304, 144 + 152)),
        (0.45, 0.45, (192 + 152, 152, 192 + 152)),
    ],
)
def test_whole_tensors_go_where_their_centres_lie(
    gpu: float, storage: float, placed: tuple[float, float, float]
) -> None:
    tiers = whole_tensors(TINY, Residency(gpu, 1 - gpu - storage, storage), 0.0)
    assert (840 * tiers.gpu, 840 * tiers.host, 840 * tiers.storage) == pytest.approx(placed)
    divided = whole_tensors(TINY, Residency(0.25, 0.5, 0.25), 1.0)
    assert (divided.gpu, divided.host, divided.storage) == pytest.approx((0.25, 0.5, 0.25))


def test_tensors_leave_the_drives_for_the_gpu_from_the_other_end() -> None:
    """Of the weights beside the GPU half are stored: a tensor leaves the drives where its middle
    lies at half of what is beside the GPU, and host memory where it lies at all of that."""
    to_gpu = [13 / 16, 9 / 16, 7 / 16, 3 / 16, 5 / 6, 1 / 2, 1 / 6]
    hw = load_platform("t4-flexgen").machine()
    stated = {"ssd_weights": 0.5, "gpu_weights": 0.0}
    breaks = [float(share) for share in gpu_breaks(hw, TINY, TINY_WORK, stated)]
    assert sorted(breaks[:7]) == pytest.approx(sorted(to_gpu))
    assert sorted(breaks[7:]) == pytest.approx(sorted(1 - 2 * (1 - share) for share in to_gpu))

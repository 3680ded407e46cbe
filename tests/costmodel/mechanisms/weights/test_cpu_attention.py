"""Systems that offload, on models that cache latents: rates by hand, memory, which unit attends."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.knobs import resolve_knobs

DEEPSEEK = model("deepseek-v3")


TOKEN = 61 * (512 + 64) * 2  # bytes of one token's latents in all layers


FAST = {
    "gpu.flops": np.inf,
    "gpu.bandwidth": np.inf,
    "host.bandwidth": np.inf,
    "host.memory": 1e13,
}
"""Leaves the link of the GPU, and whatever else a test does not set free."""


FREE_DRIVES = {"ssd.read": np.inf, "ssd.write": np.inf}


SLOPES = {
    "flexgen-ssd": (0.29, {"ssd_link.bandwidth": np.inf}, {}),
    "flexgen-dram": (0.29, {"ssd_link.bandwidth": np.inf}, {}),
    "flexgen-raid": (0.29, {"uplink.bandwidth": np.inf}, {}),
    "flexgen-percent": (0.8, {"ssd_link.bandwidth": np.inf}, {"attend": 0.0, "gpu_cache": 0.0}),
    "zero-inference": (0.29, {"ssd_link.bandwidth": np.inf}, {"cache": 0.0}),
    "inf2": (0.066, {"uplink.bandwidth": np.inf}, {"alpha": 0.0, "ssd_weights": 0.0}),
}
"""Derate of copies to the GPU (pinned buffers of the percent form, which a free host fills)."""


def step(name: str, context: float, **knobs: Real) -> Real:
    system = SYSTEMS[name]
    _, free, own = SLOPES[name]
    roles = machine_of(system).roles
    drives = FREE_DRIVES if "ssd" in roles else {}
    files = {f"{role}.file_read": np.inf for role in roles.keys() & {"ssd", "raid", "csd"}}
    hw = machine_of(system).with_values({**FAST, **drives, **files, **free})
    work = Workload(16.0, context, 64.0).at_context(context)
    chosen = {**middle(system), **own, **knobs}
    return system(hw, DEEPSEEK, work, chosen).step.seconds


@pytest.mark.parametrize("name", SLOPES)
def test_a_token_more_of_context_is_its_latents_over_the_link(name: str) -> None:
    """No CPU attends: 70,272 B a token and sequence come to the GPU at the rate of its link."""
    derate = SLOPES[name][0]
    link = machine_of(SYSTEMS[name]).gpu_link
    rate = derate * link.count * link.bandwidth
    # contexts at which the cache, not the weights, holds the link
    longer = step(name, 2.0**21) - step(name, 2.0**20)
    assert longer == pytest.approx(16 * TOKEN * 2.0**20 / rate, rel=1e-6)


@pytest.mark.parametrize("batches", [1.0, 4.0])
def test_flexgen_holds_latents_of_two_batches_on_the_gpu(batches: float) -> None:
    """The one attended to and the next: 2 x 16 / n sequences x 1,152 B of a layer."""
    system = SYSTEMS["flexgen-ssd"]
    knobs = {**middle(system), "weights": 2.0, "gpu_batches": batches}
    needed: list[Real] = []
    for output in (64.0, 1088.0):
        work = Workload(16.0, 8192.0, output)
        fits = system(machine_of(system), DEEPSEEK, work, knobs).fits
        needed.append(fits.tiers["gpu"][0])
    assert needed[1] - needed[0] == pytest.approx(2 * 16 / batches * 1152 * 1024)


def test_weights_on_the_gpu_leave_room_for_latents() -> None:
    """Weights fill what the working set and the latents on their way leave."""
    system, work = SYSTEMS["flexgen-ssd"], Workload(16.0, 65536.0, 64.0)
    hw = machine_of(system).with_values({"host.memory": 4e12})
    fits = system(hw, DEEPSEEK, work, {**middle(system), "weights": 0.0}).fits
    used, size = fits.tiers["gpu"]
    assert used <= size
    assert fits.ok


def test_bringing_latents_to_the_gpu_beats_attention_near_storage_at_any_alpha() -> None:
    """docs/models.md: a kernel for 5 queries passes each latent 49 times, a GPU need not."""
    work = Workload(16.0, 65536.0, 64.0)
    hilos, flexgen = SYSTEMS["hilos"], SYSTEMS["flexgen-ssd"]
    anywhere = {**middle(hilos), "weights": 0.0, "alpha": np.linspace(0.0, 1.0, 101)}
    near_storage = hilos(machine_of(hilos), DEEPSEEK, work, anywhere).step.seconds
    knobs = {**middle(flexgen), "weights": 0.0, "gpu_batches": 1.0}
    to_gpu = flexgen(machine_of(flexgen), DEEPSEEK, work, knobs).step.seconds
    assert to_gpu < 0.75 * np.min(near_storage)


def test_the_best_share_knows_that_latents_take_gpu_memory_from_weights() -> None:
    """Where the share bends depends on the weights that the GPU holds beside passing latents."""
    system = SYSTEMS["flexgen-raid"]
    hw = machine_of(system).with_values({"host.memory": 335e9})
    work = Workload(70.0, 97_700.0, 1.0)
    stated = {"weights": 0.0, "split": 1.0, "gpu_batches": 3.0}
    solved = resolve_knobs(system, hw, DEEPSEEK, work, {**stated, "ssd_weights": "auto"})
    shares = np.linspace(0.0, 1.0, 2001)
    tried = resolve_knobs(system, hw, DEEPSEEK, work, {**stated, "ssd_weights": shares}).estimate
    lowest = np.min(np.where(tried.fits.ok, tried.total.seconds, np.inf))
    assert solved.estimate.total.seconds <= lowest * (1 + 1e-9)
    assert solved.choice is not None
    assert solved.choice.bound == pytest.approx(solved.estimate.total.seconds, rel=1e-9)

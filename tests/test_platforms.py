"""Every platform runs the systems it is for, over a grid of batches and prompts at once."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import SYSTEMS, model

from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform, names
from nearkv.sweeps.validation.more_hardware import Trial

OFFLOADING = [
    "accelerate",
    "deepspeed-uvm",
    "flexgen-dram",
    "flexgen-percent",
    "flexgen-ssd",
    "zero-inference",
]
"""What runs on a GPU, a host and drives, each with a link."""
EVICTING = ["full-cache", "h2o", "infinigen", "leoam"]
"""What needs a bound on the KV cache in DRAM too, and rates of scoring and gathering."""
SERVING = ["tensor-parallel", "gpu-only", "cpu-offload"]
FOR = {
    "workstation-5090": OFFLOADING + EVICTING,
    "h100-8nvme": OFFLOADING + EVICTING,
    "gh200": OFFLOADING + EVICTING,
    "a6000-box": OFFLOADING + EVICTING,
    "h200-node": OFFLOADING + EVICTING + SERVING,
    "hilos-pcie5": [*OFFLOADING, "hilos", "flexgen-raid", "flexgen-16ssd"],
    "aipc-5090": [*OFFLOADING, *EVICTING, "hillinfer"],
    "lia-h100": OFFLOADING,
    "t4-box": OFFLOADING,
    "zero-a6000": OFFLOADING,
    "hgx-a100": ["tensor-parallel"],
    "dgx-spark": ["tensor-parallel"],
    "a100-slora": ["gpu-only"],
    "hilos-h100": ["hilos"],
    "hilos-h200": ["hilos"],
    "hilos-isp": ["hilos"],
}
"""Platform -> systems; those that a system's paper names follow from the system itself."""
NO_SYSTEM = {"t4-flexgen"}
"""Constants of FlexGen's placement problem, which `nearkv solve placement` reads."""
BATCHES = np.array([[1.0], [4.0]])
PROMPTS = np.array([[512.0, 4096.0]])


@pytest.mark.parametrize("platform", sorted(set(names("platform")) - NO_SYSTEM))
def test_a_platform_runs_the_systems_it_is_for(platform: str) -> None:
    home = [name for name, system in SYSTEMS.items() if system.platform == platform]
    hw = load_platform(platform).machine()
    work = Workload(BATCHES, PROMPTS, 32.0)
    systems = home + FOR.get(platform, [])
    assert systems, "name the systems it is for"
    for name in systems:
        estimate = Trial(SYSTEMS[name], hw, model("opt-6.7b", hw), work).at()
        fits = np.broadcast_to(estimate.fits.ok, (2, 2))
        seconds = np.broadcast_to(estimate.step.seconds, (2, 2))
        assert fits[0, 0], name
        assert np.all(np.isfinite(seconds[fits])), name
        assert np.all(seconds[fits] > 0), name


@pytest.mark.parametrize("name", ["hilos-pcie5", "gh200", "h100-8nvme", "workstation-5090"])
def test_a_faster_link_shortens_what_waits_for_it(name: str) -> None:
    """Weights that stream from the host wait for its link: half its rate makes a step longer."""
    hw = load_platform(name).machine()
    halved = hw.with_values({"gpu_link.bandwidth": hw.gpu_link.bandwidth / 2})
    trial = Trial(SYSTEMS["accelerate"], hw, model("opt-66b", hw), Workload(1.0, 512.0, 32.0))
    assert trial.at(hw=halved).step.seconds > 1.2 * trial.at().step.seconds

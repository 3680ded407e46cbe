"""Every platform runs the systems it is for, over a grid of batches and prompts at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.systems import SYSTEMS, model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_part, load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine, Role
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.bands import draws_of
from nearkv.sweeps.validation.contracts import ContractCase

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
SERVING = ["gpu", "cpu-offload"]
BESIDE_CPU = ["expert-offload", "cpu-only"]
FOR = {
    "workstation-5090": [*OFFLOADING, *EVICTING, "gpu"],
    "h100-8nvme": [*OFFLOADING, *EVICTING, *BESIDE_CPU, "gpu"],
    "gh200": [*OFFLOADING, *EVICTING, "gpu"],
    "a6000-box": [*OFFLOADING, *EVICTING, *BESIDE_CPU, "gpu"],
    "t4-flexgen": OFFLOADING,
    "hilos-a100": ["inf2", *BESIDE_CPU, "gpu"],
    "inf2-a100": [*BESIDE_CPU, "gpu"],
    "common": [
        *OFFLOADING,
        *EVICTING,
        *SERVING,
        *BESIDE_CPU,
        "flexgen-16ssd",
        "flexgen-raid",
        "hilos",
        "inf2",
        "hillinfer",
        "l3",
        "rank-pim",
        "h2m2",
        "asymmetric",
        "hierarchical",
        "lpddr-only",
        "hbf",
    ],
    "h200-node": OFFLOADING + EVICTING + SERVING,
    "hilos-pcie5": [*OFFLOADING, "hilos", "flexgen-raid", "flexgen-16ssd"],
    "aipc-4090": [*OFFLOADING, *BESIDE_CPU, "hilos", "gpu"],
    "aipc-5090": [*OFFLOADING, *EVICTING, "hillinfer", "hilos"],
    "lia-h100": [*OFFLOADING, *BESIDE_CPU, "gpu"],
    "t4-box": OFFLOADING,
    "zero-a6000": OFFLOADING,
    "ktransformers-4090": BESIDE_CPU,
    "threadripper-a6000": BESIDE_CPU,
    "threadripper-5090": BESIDE_CPU,
    "desktop-14900k": BESIDE_CPU,
    "colibri-5070ti": BESIDE_CPU,
    "colibri-5090": BESIDE_CPU,
    "strix-halo": [*BESIDE_CPU, "gpu"],
    "mac-studio-m3-ultra": [*BESIDE_CPU, "gpu"],
    "ryzen-7950x": ["cpu-only"],
    "m2-max": ["cpu-only"],
    "xeon-8468": ["cpu-only"],
    "titan-rtx-2": ["accelerate"],
    "hgx-a100": ["gpu"],
    "dgx-spark": ["gpu"],
    "hgx-h100": ["gpu"],
    "hgx-b200": ["gpu"],
    "hgx-b300": ["gpu"],
    "hgx-h800": ["gpu"],
    "hgx-h20-3e": ["gpu"],
    "gb200-tray": ["gpu"],
    "gb300-tray": ["gpu"],
    "mi355x-server": ["gpu"],
    "macbook-m4-max": [*BESIDE_CPU, "gpu"],
    "macbook-m5": ["gpu"],
    "mi300x-server": ["gpu"],
    "mi325x-server": ["gpu"],
    "mi250x": ["gpu"],
    "rtx-pro-6000-server": ["gpu"],
    "rtx-5090-server": ["gpu"],
    "rtx-4090-box": ["gpu"],
    "titan-rtx-pcie": ["gpu"],
    "hilos-cluster": ["gpu"],
    "dgx-spark-nvme": OFFLOADING + EVICTING,
    "a100-slora": ["gpu"],
    "hilos-h100": ["hilos"],
    "hilos-h200": ["hilos"],
    "hilos-isp": ["hilos"],
    "pcie-node": ["gpu", "flexgen-dram"],
    "gh-decoders": ["h2m2", "lpddr-only"],
}
"""Platform -> systems; those that a system's paper names follow from the system itself."""
BATCHES = np.array([[1.0], [4.0]])
PROMPTS = np.array([[512.0, 4096.0]])


@pytest.mark.parametrize("platform", names("platform"))
def test_a_platform_runs_the_systems_it_is_for(platform: str) -> None:
    own = [name for name, system in SYSTEMS.items() if system.platform == platform]
    hw = load_platform(platform).machine()
    work = Workload(BATCHES, PROMPTS, 32.0)
    systems = own + FOR.get(platform, [])
    assert systems, "name the systems it is for"
    for name in systems:
        estimate = ContractCase(SYSTEMS[name], hw, model("opt-6.7b", hw), work).at()
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
    trial = ContractCase(
        SYSTEMS["accelerate"], hw, model("opt-66b", hw), Workload(1.0, 512.0, 32.0)
    )
    assert trial.at(hw=halved).step.seconds > 1.2 * trial.at().step.seconds


ON_DRIVES = ["flexgen-ssd", "hilos", "inf2", "accelerate", "deepspeed-uvm", "zero-inference"]
NOT_FOR_OFFLOADING = ["dgx-a100-pim", "dgx-spark", "a100-slora", "hgx-h200"]


@pytest.mark.parametrize("name", ON_DRIVES)
@pytest.mark.parametrize("platform", NOT_FOR_OFFLOADING)
def test_a_refusal_names_all_that_has_to_be_added(platform: str, name: str) -> None:
    """With what it names, taken from the bed of the system's paper, the system runs."""
    system, work = SYSTEMS[name], Workload(1.0, 512.0, 32.0)
    hw, bed = load_platform(platform).machine(), load_platform(system.platform).machine()
    llm, knobs = model("llama2-7b", bed), system.defaults
    with pytest.raises(InputError, match=f"'{platform}' lacks what {name} reads: ") as refusal:
        resolve_knobs(system, hw, llm, work, knobs)
    lacks = str(refusal.value).partition(" reads: ")[2].partition(";")[0].split(", ")
    added = Machine(platform, {role: part.values for role, part in hw.roles.items()})
    for address in lacks:
        role, dot, key = address.partition(".")
        if dot:
            place = added.roles.setdefault(role, Role(platform, role, {}))
            place.values[key] = bed[role].values[key]
        else:
            added.roles[role] = Role(platform, role, bed[role].values)
    assert np.isfinite(resolve_knobs(system, added, llm, work, knobs).estimate.step.seconds)


def test_numbers_of_parts_that_are_missing_are_stated_with_set() -> None:
    """No H100 computes in its HBM."""
    hw = load_platform("common").machine()
    llm, work = model("llama2-7b", hw), Workload(1.0, 512.0, 32.0)
    with pytest.raises(InputError, match=r"reads: gpu\.pim_bandwidth; state it, as in --set gpu"):
        resolve_knobs(SYSTEMS["hbm-pim"], hw, llm, work, SYSTEMS["hbm-pim"].defaults)


def test_links_and_hbm_follow_the_gpus() -> None:
    common = load_platform("common")
    four = common.machine().with_values({"gpu.count": 4.0, "gpu.bandwidth": 1e12})
    assert (four.gpu_link.count, four.hbm.count, four.lpddr.count) == (4.0, 4.0, 4.0)
    assert (four.hbm.bandwidth, four.hbm.memory) == (1e12, four.gpu.memory)
    assert common.override("gpu.count", 2.0).machine().nvlink.count == 2.0
    a100 = common.with_part("gpu", load_part("a100-40gb"), "a100-40gb")
    assert a100.machine().hbm.memory == load_part("a100-40gb").si["memory"]
    assert not {"hbm.memory", "hbm.count"} & draws_of(common).keys()


def test_what_is_stated_follows_no_longer() -> None:
    common = load_platform("common")
    stated = common.machine().with_values({"gpu_link.count": 2.0, "gpu.count": 4.0})
    assert (stated.gpu_link.count, stated.nvlink.count) == (2.0, 4.0)
    assert stated.with_values({"gpu.count": 8.0}).gpu_link.count == 2.0
    overridden = common.override("gpu_link.count", 2.0).override("gpu.count", 4.0)
    assert overridden.machine().gpu_link.count == 2.0


def test_a_number_may_be_that_of_another_platform() -> None:
    hilos, inf2 = load_platform("hilos-a100"), load_platform("inf2-a100")
    shared = hilos.roles["derate"].numbers["tile_loads"]
    assert shared == inf2.roles["derate"].numbers["tile_loads"]
    assert load_platform("common").roles["derate"].numbers["tile_loads"] == shared


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[gpu]\nfollows = { count = "csd.cuont" }', r"follows: unknown number 'csd\.cuont'"),
        ('[csd]\nlaunch = { like = "nowhere" }', r"launch: like: .*'nowhere'"),
        ('[csd]\nlaunch = { like = "inf2-a100" }', r"like = 'inf2-a100': unknown number 'launch'"),
        ('[csd]\nlaunch = { like = "./mine.toml" }', r"is its own base"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "mine.toml"
    own = text.replace("./mine.toml", str(file))
    file.write_text(f'base = "hilos-a100"\n{own}\n')
    with pytest.raises(InputError, match=fault):
        load_platform(str(file))

"""Where the HILOS paper contradicts itself, its tables or physics (docs/errata.md)."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, model

from nearkv.costmodel.mechanisms.near_storage.x_cache import alpha_closed_form
from nearkv.costmodel.model.resources import csd, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_part, load_platform
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.prediction import predict
from nearkv.sweeps.validation.questions import arithmetic
from nearkv.sweeps.validation.validate import row

BED = load_platform("hilos-a100").machine()
STATED = {claim.id: claim for claim in load("hilos")}


def step(name: str, alpha: float, devices: float = 8.0) -> float:
    hw, work = BED.with_values({"csd.count": devices}), Workload(16.0, 32768.0, 64.0)
    knobs = {"alpha": alpha, "interval": 16.0, "writeback": 1.0}
    return float(SYSTEMS["hilos"](hw, model(name), work, knobs).step.seconds)


def test_rebuilding_k_and_v_takes_twice_the_printed_flops() -> None:
    # sec. 4.2 prints 2 a s h^2; two h x h products at two FLOPs a multiply-add are 4
    llm = model("opt-175b")
    assert llm.kv_from_x_flops(1, 1) == 2 * (2 * llm.hidden * llm.hidden)
    # at 175B that is 90 % of moving X at 8 GB/s, and 1.8 times moving it at 16 GB/s
    rebuild = llm.kv_from_x_flops(1, 1) / (312e12 * BED["derate"].gemm)
    assert rebuild / (llm.x_bytes(1, 1) / 8e9) == pytest.approx(0.90, abs=0.01)
    move = llm.x_bytes(1, 1) / link(BED, "uplink", "uplink").inward.rate
    assert rebuild / move == pytest.approx(1.80, abs=0.01)


def test_the_closed_form_exceeds_one_for_few_devices() -> None:
    pci, llm = link(BED, "uplink", "uplink").inward.rate, model("opt-66b")
    one = BED.with_values({"csd.count": 1.0})
    assert 2 * pci / (csd(one, 1.0).read.rate + pci) > 1.4
    assert alpha_closed_form(one, llm, Workload(16.0, 32768.0, 64.0)) == 1.0


@pytest.mark.parametrize(("name", "ratio"), [("mixtral-8x7b", 2.0), ("qwen2.5-32b", 2.5)])
def test_x_is_larger_than_kv_for_grouped_queries(name: str, ratio: float) -> None:
    llm = model(name)
    assert llm.x_bytes(1, 1) / llm.kv_bytes(1, 1) == ratio
    assert step(name, 0.0) < step(name, 0.5)


def test_reads_alone_do_not_explain_what_the_x_cache_gains() -> None:
    # sec. 6.5: flash reads allow 1 / (1 - alpha / 2) = 1.33 at alpha = 0.5; hidden commits add 1.32
    reads, commits = 1 / (1 - 0.5 / 2), float(STATED["hilos-ans-wb"].low)
    assert reads < float(STATED["hilos-ans-x"].low) < reads * commits


def test_the_device_count_of_the_ratio_decides_it() -> None:
    # sec. 6.4: "about 3" without a device count
    pci = link(BED, "uplink", "uplink").inward.rate
    ratios = [csd(BED.with_values({"csd.count": n}), 1.0).read.rate / pci for n in (8.0, 16.0)]
    assert ratios == pytest.approx([1.5, 3.0], rel=1e-3)


def test_endurance_needs_binary_units() -> None:
    decimal = predict(STATED["hilos-endur-175b-long"])[0]
    assert decimal == pytest.approx(3.71, rel=0.005)
    assert decimal * 2**40 / 1e12 == pytest.approx(
        float(STATED["hilos-endur-175b-long"].low), rel=0.005
    )
    assert load_part("smartssd").numbers["endurance"].si == pytest.approx(3.84e12 * 365 * 5)


def test_shapes_of_table_2_but_the_heads_of_opt_30b() -> None:
    table = {
        "opt-30b": (48, 7168, 28672, 64, 64),
        "opt-66b": (64, 9216, 36864, 72, 72),
        "opt-175b": (96, 12288, 49152, 96, 96),
        "qwen2.5-32b": (64, 5120, 27648, 40, 8),
        "mixtral-8x7b": (32, 4096, 14336, 32, 8),
        "glam-143b": (32, 4096, 16384, 32, 32),
    }
    keys = ("layers", "hidden", "ffn", "heads", "kv_heads")
    capacity_check = {name: tuple(load_llm(name).numbers[key].si for key in keys) for name in table}
    assert [name for name in table if capacity_check[name] != table[name]] == ["opt-30b"]
    assert capacity_check["opt-30b"][3:] == (56, 56)
    # with the table's 64 heads one would have 112, which fills no 256-byte entry
    hidden, heads = capacity_check["opt-30b"][1], capacity_check["opt-30b"][3]
    assert hidden / heads == 128


def test_glam_needs_every_other_layer_dense() -> None:
    every = 32 * (4 * 4096**2 + 64 * 2 * 4096 * 16384)
    half = 32 * (4 * 4096**2 + 32.5 * 2 * 4096 * 16384)
    parameters = float(model("glam-143b").parameters)
    assert parameters == pytest.approx(half, rel=0.02)
    assert parameters == pytest.approx(143e9, rel=0.02)
    assert parameters < 0.6 * every


def test_cost_efficiency_leaves_out_the_server() -> None:
    # sec. 6.6: 2.91x; an H100 alone against four SmartSSDs alone
    price = {name: load_part(name).numbers["price"].si for name in ("h100-80gb", "smartssd")}
    alone = (1.29 / 1.39) * price["h100-80gb"] / (4 * price["smartssd"])
    assert alone == pytest.approx(2.91, rel=0.005)
    host, gpu, chassis = (f"hilos-a100:{role}.price" for role in ("host", "gpu", "chassis"))
    drives = "hilos-a100:ssd.count * hilos-a100:ssd.price"
    upgrade = f"( {host} + h100-80gb:price + {drives} )"
    hilos = f"( {host} + {gpu} + {chassis} + 4 * hilos-a100:csd.price )"
    gain = "stated:hilos-hilos-vs-h100-speed / stated:hilos-h100-speedup"
    whole = arithmetic(f"{gain} * {upgrade} / {hilos}")
    assert whole == pytest.approx(
        (1.29 / 1.39) * (15000 + 30000 + 4 * 400) / (15000 + 7000 + 10000 + 4 * 2400)
    )
    assert whole < 1.1


def test_four_channels_of_ddr4_2400_are_not_52() -> None:
    assert 4 * 2400e6 * 8 == 4 * load_part("smartssd").numbers["memory_bandwidth"].si == 76.8e9


def test_a_faster_gpu_cannot_gain_as_much() -> None:
    # sec. 1, 3.1: over 60 % of the baseline's time moves KV; sec. 6.6: 1.39x from the GPU alone
    pcie = load_part("h100-80gb").numbers["flops"].si / load_part("a100-40gb").numbers["flops"].si
    for faster in (pcie, 989.4e12 / 312e12):
        assert 1 / (0.6 + 0.4 / faster) < float(STATED["hilos-h100-speedup"].low)


@pytest.mark.parametrize("name", [name for name, claim in STATED.items() if claim.proof])
def test_rows_with_a_proof_are_inconsistent(name: str) -> None:
    assert row("hilos", STATED[name])["verdict"] == "inconsistent"


def test_h100_moves_no_faster_through_storage() -> None:
    # what is left of the gain once KV comes from storage, every model and context
    steps = []
    for platform in ("hilos-a100", "hilos-h100"):
        hw = load_platform(platform).machine()
        work = Workload(16.0, np.array([16384.0, 131072.0]), 64.0)
        steps.append(SYSTEMS["flexgen-ssd"](hw, model("opt-66b"), work, {}).total.seconds)
    assert np.all(steps[0] / steps[1] < 1.05)

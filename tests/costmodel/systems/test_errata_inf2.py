"""Where the INF² paper contradicts itself, its tables or physics (docs/errata.md)."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import SYSTEMS, model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_part, load_platform
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.prediction import predict
from nearkv.sweeps.validation.validate import row

STATED = {claim.id: claim for claim in load("inf2")}


def test_filling_memory_with_x_loses_on_an_a100() -> None:
    # sec. 7.5 says INF² fully uses main memory for X; OPT-30B at 16K would rebuild all of its KV
    # even with pinned memory and products at the top of their range
    best = (
        load_platform("inf2-a100").override("derate.cache_relay", 0.8).override("derate.gemm", 0.85)
    )
    hw, llm, work = best.machine(), model("opt-30b"), Workload(32.0, 16384.0, 64.0)
    rest = {"interval": 2.0, "writeback": 1.0, "buffering": 0.0, "ssd_weights": 0.0}
    steps = np.ravel(
        SYSTEMS["inf2"](hw, llm, work, {"alpha": np.linspace(0.0, 1.0, 101), **rest}).step.seconds
    )
    assert steps[-1] / steps.min() == pytest.approx(1.33, abs=0.01)


@pytest.mark.slow
def test_the_knee_is_stated_twice() -> None:
    stated = {float(STATED[name].low) for name in ("inf2-raid-knee", "inf2-raid-limit2")}
    assert stated == {2.0, 3.0}
    assert predict(STATED["inf2-raid-knee"])[0] in stated


def test_a_csd_has_two_prices() -> None:
    prices = [float(STATED[name].low) for name in ("inf2-price-csd", "inf2-price-csd-alt")]
    assert prices == [2400, 2000]
    rest = 30000 + 20000 + 10000
    assert [rest + 16 * price == float(STATED["inf2-cost-total"].low) for price in prices] == [
        True,
        False,
    ]


def test_16_over_4133_ms_is_not_3_88() -> None:
    assert predict(STATED["inf2-sq-tput"])[0] == pytest.approx(3.871, abs=5e-4)


def test_a_decoded_token_on_eight_a100_cannot_take_four_seconds() -> None:
    # 350 GB of weights at 8 x 2.04 TB/s
    read = model("opt-175b").weight_bytes / (8 * load_part("a100-80gb").numbers["bandwidth"].si)
    assert read == pytest.approx(0.0214, rel=0.01)
    assert read < 0.01 * float(STATED["inf2-sq-latency"].low) / 1e3


def test_short_contexts_hold_less_than_100_gb_at_batch_16_only() -> None:
    llm = model("opt-175b")
    capacity_check = [
        llm.layers * llm.kv_bytes(batch, tokens) / 1e9 for batch, tokens in ((16, 1088), (32, 1088))
    ]
    assert capacity_check == pytest.approx([82, 164], abs=1)


def test_the_processor_has_24_cores() -> None:
    # Table 1 prints 2 x 48C 96T; HILOS prints 24C 48T for the same processor
    assert "24 cores" in load_platform("inf2-a100").roles["host"].numbers["count"].at


@pytest.mark.parametrize(
    "name", [name for name, claim in STATED.items() if claim.proof and claim.metric != "number"]
)
def test_rows_with_a_proof_are_inconsistent(name: str) -> None:
    assert row("inf2", STATED[name])["verdict"] == "inconsistent"

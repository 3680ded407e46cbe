"""Bytes that HillInfer and the systems beside it keep in each tier, move and write back."""

from __future__ import annotations

import pytest
from support.personal_computer import WORK, machine, solved
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    FINAL_KV,
    HEAD_FLOPS,
    KV,
    LINEAR,
    NEW_KV,
    PROMPT_FLOPS,
    PROMPT_KV,
    STREAMED,
    check,
    estimate,
    needed,
    plus,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Workload


@pytest.mark.parametrize("system", ["full-cache", "h2o", "infinigen", "leoam", "hillinfer"])
def test_where_kv_lives_adds_up(system: str) -> None:
    # Qwen-7B, 4K tokens, batch 8: 17.18 GB of KV (sec. 1 gives 30 GB with weights)
    columns = solved(system, machine(), "qwen-7b", Workload(8.0, 4096.0, 0.0)).estimate.columns
    assert sum(columns.values()) == pytest.approx(17.18, abs=0.01)
    assert set(columns) == {"kv_gpu_gb", "kv_host_gb", "kv_drive_gb"}


@pytest.mark.parametrize("system", ["full-cache", "h2o", "infinigen", "leoam", "hillinfer"])
def test_the_output_head_is_read_once_and_stays_on_the_gpu(system: str) -> None:
    llm, hw = model("qwen-7b"), machine()
    estimate = solved(system, hw, "qwen-7b", WORK).estimate
    for span in (estimate.prefill, estimate.step):
        head = span.parts["head"]
        assert head.traffic() == {
            ("gpu.hbm", "read"): llm.vocab * llm.hidden * 2,
            ("gpu.tensor", "run"): 2 * 8 * llm.vocab * llm.hidden,
        }


def test_baselines_follow_their_flows() -> None:
    work, llm, hw = Workload(10.0, 1920.0, 128.0), model("opt-6.7b"), machine()
    kv = llm.kv_bytes(10, work.context)
    # 20 % of the KV cache on the SSD, read at 5.5 GB/s; as much is demoted at 3 GB/s
    cold, off, demoted = 0.2 * kv / 5.5e9, 0.8 * kv / (31.5e9 * 0.8), 0.2 * kv / 3e9
    gpu = (llm.layer_weight_bytes(10) + kv) / (1008e9 * 0.8)
    head = llm.vocab * llm.hidden * 2 / (1008e9 * 0.8)
    full = solved("full-cache", hw, "opt-6.7b", work).estimate.step.seconds - head
    assert full == pytest.approx(32 * max(gpu, cold, off) + min(gpu, max(cold, off)), rel=1e-3)
    h2o = solved("h2o", hw, "opt-6.7b", work).estimate.step.seconds - head
    assert h2o == pytest.approx(32 * (gpu + cold + off + demoted), rel=1e-2)
    infinigen = solved("infinigen", hw, "opt-6.7b", work).estimate.step.traffic()
    assert infinigen["gpu_link.in", "move"] == pytest.approx(32 * 0.2 * 0.8 * kv)
    assert infinigen["ssd.flash", "read"] == pytest.approx(32 * (0.15 + 0.2) * 0.2 * kv)
    leoam = solved("leoam", hw, "opt-6.7b", work).estimate.step.traffic()
    assert leoam["ssd.flash", "read"] == pytest.approx(32 * (1 / 64 + 0.2) * 0.2 * kv)
    new_token = 32 * 0.2 * llm.kv_bytes(10, 1.0)
    for step in (infinigen, leoam):
        assert step["ssd.flash", "write"] == pytest.approx(32 * 0.2 * kv + new_token)


def test_demoted_kv_is_what_fig_4_measures_and_nothing_where_dram_holds_all() -> None:
    # fig. 4: 20 to 50 % of the KV cache moves a step; 20 % up and 20 % down are 40 %
    work, llm = Workload(10.0, 1920.0, 128.0), model("opt-6.7b")
    kv = 32 * llm.kv_bytes(10, work.context)
    for system in ("h2o", "infinigen", "leoam"):
        moved = solved(system, machine(), "opt-6.7b", work).estimate.step.traffic("write")
        assert 0.2 <= 2 * moved["ssd.flash", "write"] / kv <= 0.5
        filled = solved(system, machine(), "opt-6.7b", work, placement=1.0).estimate.step
        assert filled.traffic("write")["ssd.flash", "write"] == 0
    # HKM halves it (sigma 0.5), and HillInfer demotes what it promotes
    half = solved("infinigen", machine(), "opt-6.7b", work, sigma=0.5).estimate.step
    assert half.traffic("write")["ssd.flash", "write"] == pytest.approx(0.1 * kv, rel=0.01)


# --- Bytes and FLOPs of KV eviction on one PC, counted by hand for a small model ---


GPU, HOST, DRIVE = 0.2, 0.6, 0.2
"""Where sec. 3.2 puts the cache."""


def stored(amount: float) -> dict[str, Real]:
    """New K and V on their way: 80 % leave the GPU, 20 % go on to the drive."""
    leaves = {"gpu_link.out move": (HOST + DRIVE) * amount}
    return {**leaves, "ssd_link.out move": DRIVE * amount, "ssd.flash write": DRIVE * amount}


def demoted(share: float) -> dict[str, Real]:
    """Bytes that DRAM gives up for promoted tokens."""
    return {"ssd_link.out move": share * KV, "ssd.flash write": share * KV}


def on_gpu(attended: float) -> dict[str, Real]:
    """Weights once, and the attended share of the cache, by a GPU that holds all weights."""
    flops = LINEAR + HEAD_FLOPS + attended * ATTEND
    return {"gpu.hbm read": STREAMED + attended * KV, "gpu.tensor run": flops}


@pytest.mark.parametrize("name", ["full-cache", "h2o"])
def test_who_evicts_nothing_fetches_all_that_is_not_on_the_gpu(name: str) -> None:
    migration = {"migration": 0.1} if name == "h2o" else {}
    answer = estimate(name, placement=0, **migration)
    moves = {
        "ssd.flash read": DRIVE * KV,
        "ssd_link.in move": DRIVE * KV,
        "gpu_link.in move": (HOST + DRIVE) * KV,
    }
    step = plus(moves | on_gpu(1.0), stored(NEW_KV))
    check(answer.step, plus(step, demoted(0.1) if migration else {}))
    prompt = {"gpu.hbm read": STREAMED, "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS}
    check(answer.prefill, plus(prompt, stored(PROMPT_KV)))
    on = ALL_WEIGHTS + ACTIVATIONS + GPU * FINAL_KV
    tiers = {"gpu": on, "host": HOST * FINAL_KV, "ssd": DRIVE * FINAL_KV}
    assert needed(answer) == pytest.approx(tiers)
    in_gb = {"kv_gpu_gb": GPU, "kv_host_gb": HOST, "kv_drive_gb": DRIVE}
    assert answer.columns == pytest.approx({key: a * FINAL_KV / 1e9 for key, a in in_gb.items()})


def test_no_more_is_demoted_than_host_and_drive_can_swap() -> None:
    """The drive holds 20 % of the cache, so 30 % cannot come up in exchange."""
    most, beyond = [estimate("h2o", placement=0, migration=share) for share in (0.2, 0.3)]
    for answer in (most, beyond):
        written = answer.step.traffic("write")[("ssd.flash", "write")]
        assert written == pytest.approx(DRIVE * NEW_KV + 0.2 * KV)


def test_infinigen_scores_part_of_the_keys_and_fetches_the_retained() -> None:
    """30 % of each key is 15 % of K and V; half of what leaves the drive is served by the host."""
    answer = estimate(
        "infinigen", retention=0.25, partial=0.3, sigma=0.5, placement=0, migration=0.1
    )
    proxy = 0.15 * KV
    fetched = 0.5 * 0.25 * DRIVE * KV
    moves = {
        "ssd.flash read": DRIVE * proxy + fetched,
        "ssd_link.in move": DRIVE * proxy + fetched,
        "host.dram read": (HOST + DRIVE) * proxy,
        "gpu_link.in move": 0.25 * (HOST + DRIVE) * KV,
    }
    step = plus(moves | on_gpu(GPU + 0.25 * (HOST + DRIVE)), stored(NEW_KV))
    check(answer.step, plus(step, demoted(0.5 * 0.1)))


def test_leoam_reads_two_keys_a_chunk() -> None:
    """Two keys are one token's K and V: one of 64 tokens is read to score them."""
    answer = estimate("leoam", retention=0.25, abstract=64, placement=0, migration=0.1)
    proxy = KV / 64
    moves = {
        "ssd.flash read": DRIVE * (proxy + 0.25 * KV),
        "ssd_link.in move": DRIVE * (proxy + 0.25 * KV),
        "host.dram read": (HOST + DRIVE) * proxy,
        "gpu_link.in move": 0.25 * (HOST + DRIVE) * KV,
    }
    step = plus(moves | on_gpu(GPU + 0.25 * (HOST + DRIVE)), stored(NEW_KV))
    check(answer.step, plus(step, demoted(0.1)))


def test_gigabytes_of_a_cache_are_its_bytes_in_units_of_1e9() -> None:
    columns = estimate("full-cache").columns
    parts = [columns[f"kv_{tier}_gb"] for tier in ("gpu", "host", "drive")]
    assert sum(parts) == pytest.approx(FINAL_KV / 1e9, rel=1e-12, abs=0)

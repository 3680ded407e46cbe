"""What HillInfer and the systems beside it keep in each tier, move and write back."""

from __future__ import annotations

import pytest
from support.personal_computer import WORK, machine, solved
from support.systems import model

from nearkv.costmodel.model.workload import Workload


@pytest.mark.parametrize("system", ["full-cache", "h2o", "infinigen", "leoam", "hillinfer"])
def test_where_kv_lives_adds_up(system: str) -> None:
    # Qwen-7B, 4K tokens, batch 8: 17.18 GB of KV (sec. 1 gives 30 GB with weights)
    also = solved(system, machine(), "qwen-7b", Workload(8.0, 4096.0, 0.0)).estimate.also
    assert sum(also.values()) == pytest.approx(17.18, abs=0.01)
    assert set(also) == {"kv_gpu_gb", "kv_host_gb", "kv_drive_gb"}


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

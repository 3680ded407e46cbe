"""Where the L3 paper contradicts itself, its tables or arithmetic (docs/errata.md)."""

import numpy as np
import pytest
from numpy.typing import NDArray
from support.systems import model

from nearkv.costmodel.mechanisms.serving.dimm import (
    bank_bandwidth,
    bus_bandwidth,
    dimms,
    rank_unit_area,
    unit_power,
)
from nearkv.costmodel.mechanisms.serving.parallel import kv_token_bytes
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_part, load_platform
from nearkv.solvers.calibrate import fit
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.traces import load_trace
from nearkv.sweeps.validation.claims import load

HW = load_platform("dgx-a100-pim").machine()
STATED = {claim.id: claim for claim in load("l3")}
GPT175 = model("gpt-175b", HW)


def prompt_cache_over_feed_forward(flops: float) -> float:
    sent = GPT175.kv_bytes(1, 1.0) / (HW.gpu_link.count * HW.gpu_link.bandwidth * HW.derate.link)
    return float(sent / (GPT175.ffn_flops(1.0) / (flops * HW.derate.gemm)))


def test_156_tflops_is_the_fp32_rate() -> None:
    fp32 = 19.5e12  # of one A100 (its datasheet); 8 of them make the 156 TFLOP/s of sec. 5.1
    assert HW.gpu.count * fp32 == 156e12
    assert HW.gpu.count * HW.gpu.flops == 2496e12
    assert prompt_cache_over_feed_forward(2496e12) == pytest.approx(0.16, abs=0.02)  # sec. 5.1
    assert prompt_cache_over_feed_forward(156e12) < 0.011


def test_capacities_are_binary_in_one_place_and_decimal_in_another() -> None:
    a_request = kv_token_bytes(GPT175) * 8000.0
    assert 80 * 2**30 / a_request == pytest.approx(2.28, abs=0.01)  # sec. 1
    assert 80e9 / a_request == pytest.approx(2.12, abs=0.01)
    llama = model("llama2-7b", HW)
    beside = [
        (memory - llama.weight_bytes) / (2048 * kv_token_bytes(llama))
        for memory in (80e9, 80 * 2**30)
    ]
    assert beside == pytest.approx([62.0, 67.5], abs=0.1)  # sec. 2.3: about 62
    left = HW.gpu.count * 80.0 * 2**30 - GPT175.weight_bytes
    assert left / 2**30 == pytest.approx(310, rel=0.02)  # sec. 6.2
    assert (640e9 - GPT175.weight_bytes) / 1e9 == pytest.approx(291, abs=1)


def test_four_ranks_a_channel_are_a_tenth_of_the_gpus_bandwidth() -> None:
    gpus = HW.gpu.count * HW.gpu.bandwidth
    assert HW.dimm.ranksets * bus_bandwidth(HW) / gpus == pytest.approx(
        0.10, abs=0.005
    )  # sec. 2.6: one fourth
    assert 0.25 * gpus / bus_bandwidth(HW) == pytest.approx(
        10, abs=0.1
    )  # ranks a channel that would need


def test_mean_answers_of_openr1_are_6k_in_section_1_and_12k_in_table_4() -> None:
    assert load_part("openr1", "trace").numbers["output_mean"].si / 2 == pytest.approx(6342, abs=1)
    assert load_trace("openr1").output.mean() > 12_000


def test_units_at_the_banks_take_3_percent_of_a_dimm_not_a_thousandth() -> None:
    of_rank = HW.dimm.relayout_power + HW.dimm.adder_power + HW.dimm.softmax_power
    assert of_rank / HW.dimm.power == pytest.approx(0.00064, rel=0.01)  # sec. 6.4: negligible
    assert unit_power(HW) / HW.dimm.power == pytest.approx(0.03, abs=0.001)
    assert rank_unit_area(HW) / HW.dimm.buffer_area == pytest.approx(0.000229, rel=0.01)


def test_gains_of_figure_10_do_not_multiply() -> None:
    # the gains of sec. 6.2, 1.3 and 1.7, would make 2.2 together; the axis ends at 1.8
    both = {"interleave": "on,off", "overlap_comm": "on,off", "placement": "balanced,random"}
    fitted = table(Study(("l3",), ("gpt-175b",), traces=("openr1",), knobs=both))[
        "throughput_tok_s"
    ].astype(float)
    assert 1.5 < fitted.max() / fitted.min() < 1.8


def test_full_host_memory_does_not_keep_the_time_between_tokens() -> None:
    # sec. 1 and 9: no worse than GPUs; reading 2 TB at 13 TB/s takes 170 ms, GPUs read theirs in 42
    memory = dimms(HW)
    assert memory.capacity / bank_bandwidth(HW) == pytest.approx(0.168, abs=0.002)
    assert HW.gpu.count * HW.gpu.memory / (HW.gpu.count * HW.gpu.bandwidth) == pytest.approx(
        0.042, abs=0.001
    )


def test_kernels_started_one_by_one_are_what_figure_2_shows() -> None:
    # fig. 2b: 27.7 ms at 1k tokens; weights and KV cache alone take 9.0 ms
    llm, work = model("llama2-7b", HW), Workload(4.0, 1024.0, 1.0).at(1024.0)
    step = find_system("gpu-only")(
        load_platform("a100-slora").machine(), llm, work, {"policy": 0.0}
    ).step
    waits = sum(took for name, took in step.breakdown().items() if name.endswith("launch"))
    assert step.seconds - waits == pytest.approx(9.0e-3, rel=0.01)
    assert step.seconds == pytest.approx(27.7e-3, rel=0.1)


def test_the_two_launch_times_are_the_fit_of_six_statements() -> None:
    # fig. 2b: shares of attention at 1k to 16k tokens [%], and the latency at 1k [ms]
    llm, contexts = model("llama2-7b", HW), np.array([1024.0, 2048.0, 4096.0, 8192.0, 16384.0])
    stated = np.array([*(float(STATED[f"l3-mha-share-{k}k"].low) for k in (1, 2, 4, 8, 16)), 27.7])
    bed, keys = load_platform("a100-slora"), ("launch", "attention_launch")
    numbers = [bed.roles["gpu"].numbers[key] for key in keys]
    low, high = (np.array([getattr(number, end) for number in numbers]) for end in ("low", "high"))

    def residuals(points: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = []
        for launch, attention_launch in 1e-3 * (low + points * (high - low)):
            hw = bed.machine().with_values(
                {"gpu.launch": launch, "gpu.attention_launch": attention_launch}
            )
            step = find_system("gpu-only")(
                hw, llm, Workload(4.0, contexts, 1.0).at(contexts), {"policy": 0.0}
            ).step
            attention = sum(took for name, took in step.breakdown().items() if "attention" in name)
            rows.append(
                np.append(100 * attention / step.seconds, 1e3 * np.ravel(step.seconds)[0]) / stated
            )
        return np.log(rows)

    fitted = low + fit(residuals, np.array([0.5, 0.5])).at * (high - low)
    assert [number.value for number in numbers] == pytest.approx(fitted, rel=5e-3)

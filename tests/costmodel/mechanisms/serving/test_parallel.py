"""Replicas in use, prompts on one of them, and sequences that decode alone (L3 sec. 5.2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.systems import model
from support.tiny import ALL_WEIGHTS, HEAD, LAYERS, TINY, amounts

import nearkv
from nearkv.costmodel.mechanisms.serving.experts import MOVES
from nearkv.costmodel.mechanisms.serving.parallel import (
    beside_weights,
    gpu_attention,
    in_use,
    linear,
    paired,
    prefill_attention,
    prompts_alone,
    tensor_parallel,
)
from nearkv.costmodel.model.workload import Load, Workload
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study


def steps(system: str, batch: str, interleave: str, context: str = "32k") -> list[float]:
    """Decode steps of OPT-66B on four replicas [ms]."""
    study = Study((system,), ("opt-66b",), batch, context, "2", knobs={"interleave": interleave})
    seconds: list[float] = table(study)["step_ms"].astype(float).tolist()
    return seconds


@pytest.mark.parametrize(("system", "context"), [("l3", "32k"), ("hbm-pim", "2k")])
def test_turns_begin_with_the_second_request_of_a_replica(system: str, context: str) -> None:
    """Four replicas: of 4 requests each has one, of 8 two; between, some have a second."""
    turns = steps(system, "4:8:+1", "on", context)
    whole = steps(system, "4:8:+1", "off", context)
    assert turns[0] == pytest.approx(whole[0], rel=1e-12)
    gains = 1 - np.divide(turns, whole)
    assert abs(gains[-1]) > 0.001
    weights = gains * whole / (gains[-1] * whole[-1])
    assert np.all(np.diff(np.abs(weights)) > 0)


def test_a_mean_between_one_and_two_is_a_mix() -> None:
    sequences = np.array([2.0, 4.0, 5.0, 8.0, 12.0])
    assert np.asarray(paired(sequences, 4.0)).tolist() == [0, 0, 0.25, 1, 1]
    assert np.asarray(paired(np.array([8.0, 9.0]), 4.0)).tolist() == [1, 1]


def test_a_lone_request_takes_what_its_proven_division_takes() -> None:
    """No division of one request beats one batch, so no choice of the fluid model does."""
    proven = nearkv.solve("subbatch", "gpt-175b", requests="128k")
    optimum = proven.query("load == 'modelled' and method == 'optimal'")["decode_ms"].item()
    # both divide its cache evenly over the ranksets, which no layer of it does
    even = {"homes": "balanced"}
    one = Study(("l3",), ("gpt-175b",), "1", str(2**17 - 1), "2", knobs=even)
    assert table(one)["step_ms"][0] == pytest.approx(optimum, rel=1e-9)


def test_a_simulated_request_has_no_second_sub_batch_either(tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("input_tokens,output_tokens\n2000,400\n")
    times = {}
    for interleave in ("on", "off"):
        knobs = {"interleave": interleave}
        one = Study(("l3",), ("opt-66b",), traces=(str(trace),), knobs=knobs, method="simulate")
        times[interleave] = float(table(one)["tpot_ms"][0])
    assert times["on"] == pytest.approx(times["off"], rel=1e-12)


@pytest.mark.parametrize("system", ["gpu", "cpu-offload", "hbm-pim", "rank-pim", "l3"])
def test_others_do_not_shorten_the_longest_answer(tmp_path: Path, system: str) -> None:
    """299 short answers beside one of 8,000 tokens, each of which takes an iteration."""
    alone, beside = tmp_path / "alone.csv", tmp_path / "beside.csv"
    alone.write_text("input_tokens,output_tokens\n10,8000\n")
    beside.write_text(alone.read_text() + 299 * "50,25\n")
    one, many = [
        table(Study((system,), ("gpt-89b",), traces=(str(file),))) for file in (alone, beside)
    ]
    assert many["total_s"][0] > one["total_s"][0] * 0.99
    assert many["tpot_ms"][0] > one["tpot_ms"][0] * 0.99


HW = load_platform("dgx-a100-pim").machine()


FOUR = {"policy.weights_per_gpu": 2_000.0}
"""They need 2.75 GPUs, so 4: two replicas of 8 GPUs."""


LAUNCH, HOP = HW.gpu.launch, HW.nvlink.hop


def test_a_prompt_visits_one_replica() -> None:
    hw = in_use(HW.with_values(FOUR), TINY)
    load = Load(0.0, 0.0, 0.0, prompt=100.0, squares=100.0**2)
    span = amounts(prompts_alone(hw, TINY, 0.0, 1.0, TINY, load))
    assert span["gpu.hbm read"] == pytest.approx((LAYERS + HEAD) / 3)
    assert span["gpu.launch wait"] == pytest.approx(LAUNCH / 2)


@pytest.mark.parametrize(("tokens", "share"), [(1.0, 0.5), (2.0, 1.0), (9.0, 1.0)])
def test_a_replica_without_a_token_reads_no_weights(tokens: float, share: float) -> None:
    """One token in a pass is on one of two replicas, each of which reads 3 layers' weights."""
    hw = in_use(HW.with_values(FOUR), TINY)
    span = amounts(linear(hw, TINY, tokens, 1.0))
    assert span["gpu.hbm read"] == pytest.approx(share * 2 * LAYERS / 3)


@pytest.mark.parametrize("prompts", [1.0, 2.0, 32.0])
def test_the_tokens_of_one_pass_decide_which_experts_it_reads(prompts: float) -> None:
    """Two tokens a prompt use 4 (1 - 0.75^2) = 1.75 of 4 experts, however many prompts come."""
    mixture = replace(TINY, experts=4.0, active_experts=1.0)
    hw = in_use(HW.with_values(FOUR), TINY, most=2.0)
    load = Load(0.0, 0.0, 0.0, prompt=2 * prompts)
    read = amounts(prompts_alone(hw, mixture, 0.0, prompts, mixture, load))["gpu.hbm read"]
    gathered = 8 * MOVES * 2 * 8 * 2  # by each of eight GPUs, which the mixture needs
    weights = (384 + 1.75 * 456) * 2 + HEAD / 3
    assert read == pytest.approx(prompts * (weights + gathered))


def test_prompts_attend_at_a_rate_of_their_own() -> None:
    rate = 8 * HW.gpu.flops * HW.gpu.prefill_attention
    assert prefill_attention(HW, TINY, 1000.0).seconds == pytest.approx(2 * 1000 * 18 / rate)


@pytest.mark.parametrize(("served", "gpus"), [(1.0, 4.0), (1.9, 4.0), (2.0, 8.0), (9.0, 8.0)])
def test_gpus_in_use_are_whole_replicas_that_have_a_request(served: float, gpus: float) -> None:
    hw = in_use(HW.with_values(FOUR), TINY, most=served)
    assert hw.gpu.count == gpus
    assert hw.nvlink.count == gpus


def test_gpus_hold_what_replicas_of_the_weights_leave() -> None:
    hw = load_platform("dgx-a100-pim").machine().with_values({"gpu.memory": 10_000.0})
    assert beside_weights(hw, TINY, Workload(1.0, 10.0, 1.0)) == pytest.approx(
        80_000 - 8 * ALL_WEIGHTS
    )
    none = hw.with_values({"gpu.memory": 1000.0})
    assert beside_weights(none, TINY, Workload(1.0, 10.0, 1.0)) == 0


def test_attention_reads_all_gpus_at_the_share_of_its_kernel() -> None:
    box = load_platform("dgx-a100-pim").machine()
    attention = 8 * box.gpu.bandwidth * box.gpu.decode_attention
    assert gpu_attention(box).rate == attention


def test_degrees_are_powers_of_two_that_the_gpus_hold() -> None:
    """OPT-66B, 131 GB, at most 40 GB a GPU: four GPUs, and two of three."""
    hw, llm = load_platform("dgx-a100-pim").machine(), model("opt-66b")
    hw = hw.with_values({"policy.weights_per_gpu": 40e9})
    degrees = [tensor_parallel(hw.with_values({"gpu.count": n}), llm) for n in (1, 2, 3, 4, 7, 8)]
    assert degrees == [1, 2, 2, 4, 4, 4]

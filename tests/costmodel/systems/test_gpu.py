"""GPUs that share a model, counted by hand for a small one, and their splits by brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.configs import FP8, quantised_llama
from support.systems import SYSTEMS, machine_of, model
from support.tiny import (
    ALL_WEIGHTS,
    HEAD,
    HEAD_FLOPS,
    KV,
    LAYERS,
    LINEAR,
    PROMPT_FLOPS,
    STREAMED,
    TINY,
    WORK,
    amounts,
    check,
    estimate,
    needed,
    split,
    waited_for,
)

import nearkv
from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs

GPU = SYSTEMS["gpu"]


def resolved(llm: LLM, work: Workload, hw: Machine, **stated: Real | str) -> dict[str, Real]:
    """Knobs of the best split, and its whole batch."""
    knobs = {name: knob.default for name, knob in GPU.knobs.items()}
    answer = resolve_knobs(GPU, hw, llm, work, {**knobs, **stated})
    return {**answer.knobs, "seconds": answer.estimate.total.seconds}


# --- counted by hand --------------------------------------------------------------------------


def test_tensor_parallel_gpus_share_weights_and_reduce_twice_a_layer() -> None:
    """Eight GPUs and two KV heads: each head is kept by four of them."""
    hw = load_platform("hgx-h200").machine()
    answer = estimate("gpu", **split(8.0))
    reduced = 3 * 2 * 2 * 7 / 8 * 8 * (8 * 5 * 2)
    step: dict[str, Real] = {
        "gpu.hbm read": STREAMED + 4 * KV,
        "gpu.tensor run": LINEAR + HEAD_FLOPS,
        "gpu.launch wait": 3 * hw.gpu.launch,
        "nvlink.latency wait": 3 * 2 * 2 * 7 / 8 * hw.nvlink.latency,
        "nvlink.out move": reduced,
    }
    check(answer.step, step)
    prompt: dict[str, Real] = {
        "gpu.hbm read": 5 * (LAYERS + HEAD),
        "gpu.tensor run": PROMPT_FLOPS + HEAD_FLOPS,
        "gpu.launch wait": 5 * 3 * hw.gpu.launch,
        "nvlink.latency wait": 5 * 3 * 2 * 2 * 7 / 8 * hw.nvlink.latency,
        "nvlink.out move": 100 * reduced,
    }
    check(answer.prefill, prompt)
    assert needed(answer) == {"gpu": ALL_WEIGHTS + 4 * KV}


def test_stages_pass_micro_batches_on() -> None:
    """Two stages of four GPUs: micro-batches of 2.5, weights read for each, KV heads kept twice.

    Of three layers the fuller stage has two, 4/3 of the mean, and the other waits for it.
    """
    answer = estimate("gpu", **split(4.0, pp=2.0))
    step = amounts(answer.step)
    assert step["gpu.hbm read"] == pytest.approx(4 / 3 * (2 * STREAMED + 2 * KV))
    assert step["gpu.tensor run"] == pytest.approx(4 / 3 * (LINEAR + HEAD_FLOPS))
    # two all-reduces of 2 x 3 / 4 of the activations on each of four GPUs, then one hand-over
    activations = 5 * 8 * 2
    assert step["nvlink.out move"] == pytest.approx((4 / 3 * 3 * 2 * 2 * 3 + 1) * activations)
    # each stage starts the kernels of its layers once a micro-batch, beside the other
    one = waited_for("gpu.launch", estimate("gpu", **split(8.0)).step)
    assert waited_for("gpu.launch", answer.step) == pytest.approx(4 / 3 * one)
    assert needed(answer) == {"gpu": ALL_WEIGHTS + 2 * KV}


def test_stages_without_a_micro_batch_idle() -> None:
    """Five sequences on eight stages: five micro-batches of one keep five of eight busy."""
    eight = replace(TINY, layers=8)
    step, alone = (
        amounts(estimate("gpu", {}, eight, **split(1.0, pp=pp)).step) for pp in (8.0, 1.0)
    )
    assert step["gpu.tensor run"] == pytest.approx(8 / 5 * alone["gpu.tensor run"])
    # a token meets all stages one by one, each of which reads its eighth of the weights alone
    weights = STREAMED + 5 / 3 * LAYERS
    assert step["gpu.hbm read"] == pytest.approx(8 * weights + 8 / 5 * 8 / 3 * KV)


def test_prompts_that_arrive_are_not_timed_over_stages() -> None:
    """A prompt alone passes all stages one by one, which no iteration of the queue shows."""
    table = nearkv.compare(
        "gpu", "llama3.1-70b", platform="hgx-h200", rate=1, knobs={"tp": 1, "pp": [1, 8]}
    )
    assert "pp=1" in table["reason"].iloc[-1]


def test_one_sequence_passes_stage_after_stage() -> None:
    """On eight stages a lone sequence waits for all weights at the rate of one GPU."""
    hw, one = load_platform("hgx-h200").machine(), replace(WORK, batch=1.0)
    llm = replace(TINY, layers=8)
    answer = GPU(hw, llm, one, split(1.0, pp=8.0))
    alone = GPU(hw, llm, one, split(1.0))
    assert amounts(answer.step)["gpu.hbm read"] / 8 == pytest.approx(
        amounts(alone.step)["gpu.hbm read"]
    )
    assert waited_for("gpu.launch", answer.step) == pytest.approx(
        waited_for("gpu.launch", alone.step)
    )


def test_a_gpu_that_attends_alone_holds_the_matrices_of_attention() -> None:
    """Of four GPUs each has all heads: 384 weights a layer four times, no copies of KV heads."""
    answer = estimate("gpu", **split(4.0, attention=1.0))
    again = 3 * 3 * 384 * 2
    step = amounts(answer.step)
    assert step["gpu.hbm read"] == pytest.approx(STREAMED + again + KV)
    # one all-reduce a layer
    assert step["nvlink.out move"] == pytest.approx(3 * 2 * 3 * (5 * 8 * 2))
    assert needed(answer) == {"gpu": ALL_WEIGHTS + again + KV}


def test_one_prompt_is_divided_over_no_gpus_that_attend_alone() -> None:
    """Four GPUs: of one prompt, attention and its projections take as long as on one of them."""
    hw, llm = load_platform("hgx-h200").machine(), model("llama2-7b")
    degrees = {"pp": 1.0, "ep": 1.0, "offload": 0.0, "mtp": 0.0, "policy": 0.0, "chunk": 0.0}

    def seconds(batch: float, **split: float) -> float:
        work = Workload(batch, 4096.0, 1.0)
        answer = GPU(hw, llm, work, {"dp": 1.0, **degrees, **split})
        return float(answer.prefill.seconds)

    one = seconds(1.0, tp=4.0, attention=1.0)
    four = seconds(4.0, tp=4.0, attention=1.0)
    assert one > 1.2 * seconds(1.0, tp=4.0, attention=0.0)
    assert one < seconds(1.0, tp=1.0, attention=0.0)
    assert one <= four


def test_one_prompt_of_wide_expert_parallelism_is_answered() -> None:
    """Experts lie on all GPUs; a prompt of one replica reads no less, and takes no longer."""
    hw, llm = load_platform("hgx-h200").machine(), model("gpt-oss-120b")
    wide = {"tp": 1.0, "pp": 1.0, "dp": 8.0, "ep": 8.0, "attention": 0.0, "offload": 0.0}
    knobs = wide | {"mtp": 0.0, "policy": 0.0, "chunk": 0.0}
    times = []
    for batch in (1.0, 4.0, 8.0):
        answer = GPU(hw, llm, Workload(batch, 8192.0, 1.0), knobs)
        assert np.all(answer.fits.ok)
        times.append(float(answer.prefill.seconds))
    assert times == sorted(times)
    assert times[0] > times[2] / 8


def test_experts_on_all_gpus_travel_and_are_held_once() -> None:
    """Two replicas of two GPUs share eight experts, two each: tokens go there and back."""
    llm = LLM(**vars(TINY_MOE))
    apart = estimate("gpu", {}, llm, **split(2.0, 2.0, ep=1.0))
    shared = estimate("gpu", {}, llm, **split(2.0, 2.0, ep=4.0))
    experts = 3 * 8 * 3 * 8 * 19 * 2
    assert needed(apart)["gpu"] - needed(shared)["gpu"] == pytest.approx(experts)
    # one all-reduce a layer over two GPUs, then each token to the others of 4 x (1 - (3/4)^2)
    activations = 5 * 8 * 2
    places = 4 * (1 - 0.75**2) * 0.75
    fullest = imbalance(10.0, 4.0, 1.0)
    sent = 3 * (2 * 1 + 2 * places * fullest) * activations
    assert amounts(shared.step)["nvlink.out move"] == pytest.approx(sent)


TINY_MOE = replace(
    model("llama2-7b"),
    layers=3.0,
    hidden=8.0,
    ffn=19.0,
    heads=6.0,
    kv_heads=2.0,
    head_size=3.0,
    vocab=11.0,
    positions=7.0,
    experts=8.0,
    active_experts=2.0,
)


def test_offloaded_weights_come_over_pcie_in_every_pass_and_before_it() -> None:
    """Two of the GPU's gigabytes in host memory: 2 GB more over the link, in step and prompt."""
    hw, llm = load_platform("hgx-h100").machine(), model("llama2-7b")
    work = Workload(1.0, 512.0, 32.0)
    all_on_gpu = GPU(hw, llm, work, split(1.0))
    answer = GPU(hw, llm, work, split(1.0, offload=2.0))
    pcie = hw.gpu_link.bandwidth * hw.derate.pcie
    streamed = llm.layers * llm.layer_bytes(1.0) / llm.weight_bytes
    late = answer.step.seconds - all_on_gpu.step.seconds
    assert late == pytest.approx(2e9 * streamed / pcie)
    assert needed(answer)["host"] == 2e9
    assert needed(all_on_gpu)["gpu"] - needed(answer)["gpu"] == pytest.approx(2e9)


def test_a_latent_is_kept_by_every_gpu_or_by_the_one_that_attends() -> None:
    """DeepSeek-V3 on 8 GPUs: 70,272 B of a token, 8 times under tensor parallelism."""
    llm, hw = model("deepseek-v3"), load_platform("hgx-h200").machine()
    for attention, copies in ((0.0, 8), (1.0, 1)):
        rows = [
            GPU(hw, llm, Workload(8.0, prompt, 64.0), split(8.0, attention=attention)).fits.tiers[
                "gpu"
            ][0]
            for prompt in (8192.0, 16384.0)
        ]
        assert rows[1] - rows[0] == pytest.approx(8 * copies * 70_272 * 8192)


# --- splits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "platform", "gpus", "batch"),
    [
        ("llama3.1-70b", "hgx-h200", 8, 16.0),
        ("llama3.1-70b", "rtx-pro-6000-server", 8, 64.0),
        ("mixtral-8x7b", "hgx-h100", 6, 64.0),
        ("deepseek-v3", "hgx-b200", 8, 256.0),
        ("llama3.1-8b", "titan-rtx-pcie", 2, 1.0),
        ("llama3.1-70b", "hgx-h200", 16, 4.0),
        ("mixtral-8x7b", "hgx-b200", 16, 64.0),
    ],
)
def test_no_split_is_faster(name: str, platform: str, gpus: int, batch: float) -> None:
    """Brute force over all degrees whose product the GPUs allow, in one node and in two."""
    hw = load_platform(platform).machine().with_values({"gpu.count": float(gpus)})
    llm, work = model(name, hw), Workload(batch, 8192.0, 128.0)
    best = resolved(llm, work, hw)
    degrees = range(1, gpus + 1)
    tried = np.array(list(product(degrees, degrees, degrees, degrees, (0.0, 1.0))))
    tp, pp, dp, ep, attention = tried[tried[:, :3].prod(axis=1) <= gpus].T
    answer = GPU(hw, llm, work, split(tp, dp, pp=pp, ep=ep, attention=attention))
    seconds = np.where(answer.fits.ok, answer.total.seconds, np.inf)
    assert float(best["seconds"]) == pytest.approx(np.min(seconds), rel=1e-12)


@pytest.mark.parametrize("limits", [("ttft_s=1", "tpot_ms=60"), ("ttft_s=0.7", "tpot_ms=60"), ()])
def test_under_load_no_split_serves_more_within_the_limits(limits: tuple[str, ...]) -> None:
    """All GPUs in replicas of a stated size, five requests per second; no limits: least TPOT."""
    knobs: dict[str, Any] = {"tp": [1, 2, 4, 8, "auto"], "dp": "remaining", "pp": 1, "attention": 0}
    *stated, chosen = nearkv.compare(
        "gpu", "llama3.1-70b", platform="hgx-b200", context="8k", output_tokens=512, rate=5,
        slo=limits, knobs=knobs,
    ).to_dict("records")  # fmt: skip
    if limits:
        most = max(one["goodput_req_s"] for one in stated if one["status"] == "ok")
        assert chosen["goodput_req_s"] >= most * (1 - 1e-6) > 0
    else:
        least = min(one["tpot_ms"] for one in stated if one["status"] == "ok")
        assert chosen["tpot_ms"] <= least * (1 + 1e-6)


def test_of_users_the_split_that_answers_most_is_taken() -> None:
    """Two GPUs a replica have the shortest step, and no room for 64 users beside the weights."""
    table = nearkv.compare(
        "gpu", "llama3.1-70b", platform="hgx-h100", context="8k", output_tokens=512, users=64,
        knobs={"tp": [2, 8, "auto"]},
    )  # fmt: skip
    by_two, by_eight, chosen = table["throughput_tok_s"]
    assert chosen >= by_eight > 0
    assert not by_two > by_eight / 2


def test_a_stated_degree_stays_and_the_others_follow() -> None:
    hw, llm = load_platform("hgx-h200").machine(), model("llama3.1-70b")
    best = resolved(llm, WORK, hw, tp=2.0)
    assert best["tp"] == 2.0
    assert 2.0 < best["tp"] * best["dp"] * best["pp"] <= 8.0


def test_several_stated_degrees_each_get_the_best_of_the_others() -> None:
    hw, llm = load_platform("hgx-h200").machine(), model("llama3.1-70b")
    degrees = np.array([2.0, 4.0, 8.0])
    together = resolved(llm, WORK, hw, tp=degrees)
    apart = [resolved(llm, WORK, hw, tp=degree)["seconds"] for degree in degrees]
    assert together["seconds"] == pytest.approx(apart)


def test_rules_of_papers_are_names() -> None:
    """HILOS: tensor parallel in a node, a stage a node; L3: the fewest GPUs by their weights."""
    hw, llm = load_platform("hilos-cluster").machine(), model("opt-66b")
    hilos = resolved(llm, WORK, hw, tp="node", pp="nodes", dp="remaining", ep=1.0, attention=0.0)
    assert (hilos["tp"], hilos["pp"], hilos["dp"]) == (4.0, 2.0, 1.0)
    hw = load_platform("dgx-a100-pim").machine()
    l3 = resolved(llm, WORK, hw, tp="l3", dp="remaining", pp=1.0, ep=1.0, attention=0.0)
    assert (l3["tp"], l3["dp"]) == (2.0, 4.0)


# --- widths and drafts ------------------------------------------------------------------------


def test_products_in_8_bits_shorten_the_compute_of_a_prompt_but_not_its_attention(
    tmp_path: Path,
) -> None:
    hw, work = machine_of(GPU), Workload(8.0, 16384.0, 64.0)

    def compute(llm: LLM) -> tuple[Real, Real]:
        layers = GPU(hw, llm, work, split(8.0)).prefill.parts["layers"]
        products = layers.parts["linear"].parts["on_gpu"].parts["products"].parts["compute"]
        return products.parts["layer"].seconds, layers.parts["attention"].seconds

    wide, narrow = compute(quantised_llama(tmp_path)), compute(quantised_llama(tmp_path, FP8))
    assert narrow[0] == pytest.approx(wide[0] * 0.77 / (2 * 0.51))
    assert narrow[1] == wide[1]


def test_blackwell_multiplies_mxfp4_as_it_is_stored_and_hopper_unpacks_it() -> None:
    """Experts of 4.25 bits: on B200 at the rate of 8 bits, on H200 at that of 16, unpacked."""
    work = Workload(64.0, 8192.0, 64.0)
    llm = model("gpt-oss-120b")
    rates = {}
    for platform in ("hgx-b200", "hgx-h200"):
        hw = load_platform(platform).machine()
        experts = [
            leaf
            for path, leaf, _ in GPU(hw, llm, work, split(8.0)).step.leaves()
            if "experts" in path and leaf.resource in ("gpu.hbm", "gpu.tensor")
        ]
        rates[platform] = {leaf.verb: leaf.amount / leaf.seconds for leaf in experts[1:]}
    hbm, tensor = ({p: r[verb] for p, r in rates.items()} for verb in ("read", "run"))
    assert hbm["hgx-b200"] == pytest.approx(8 * 7.7e12 * 0.85)
    assert hbm["hgx-h200"] == pytest.approx(8 * 4.8e12 * 0.6)
    assert tensor["hgx-b200"] == pytest.approx(8 * 4500e12 * 0.51)
    assert tensor["hgx-h200"] == pytest.approx(8 * 989.5e12 * 0.54)


def test_a_draft_costs_a_layer_and_a_head_and_saves_a_pass() -> None:
    """A pass checks two tokens: caches are read once, products double; a draft is one layer."""
    llm = replace(model("llama2-7b"), mtp_layers=1.0)
    hw = load_platform("hgx-h200").machine()
    plain = GPU(hw, llm, WORK, split(8.0))
    half = GPU(hw, llm, WORK, split(8.0, mtp=1.0, accepted=0.5))

    def moved(answer: Estimate, place: str) -> float:
        carried = answer.step.traffic().items()
        return sum(float(amount) for key, amount in carried if key[0] == place)

    # two tokens in each of 32 layers and in the head, then one in a draft's layer and its head
    launches = waited_for("gpu.launch", half.step) / waited_for("gpu.launch", plain.step)
    assert launches == pytest.approx((32 + 1) / 32 / 1.5)
    tensor = moved(half, "gpu.tensor") / moved(plain, "gpu.tensor")
    head = llm.vocab * llm.hidden
    layers = llm.sum_over_layers(lambda kind: kind.linear_flops(1) / 2)
    # the draft's layer has its part of the head, too
    assert tensor == pytest.approx(
        (2 * (layers + head) + (layers + head) / 32 + head) / (layers + head) / 1.5
    )
    assert needed(half)["gpu"] > needed(plain)["gpu"]
    nothing = GPU(hw, model("llama2-7b"), WORK, split(8.0, mtp=1.0))
    assert not np.any(nothing.fits.ok)


def test_the_layer_that_drafts_keeps_a_cache_too() -> None:
    """Of 33 caches in place of 32 fewer fit, beside the same weights and those of the draft."""
    llm = replace(model("llama2-7b"), mtp_layers=1.0)
    hw = load_platform("hgx-h200").machine()
    many = Workload(100_000.0, 2048.0, 64.0)
    plain = GPU(hw, llm, many, split(8.0)).batch_run
    drafting = GPU(hw, llm, many, split(8.0, mtp=1.0)).batch_run
    usable = hw.gpu.count * hw.gpu.memory - llm.weight_bytes
    drafted = llm.mtp_parameters * llm.weight_width
    assert drafting / plain == pytest.approx(32 / 33 * (1 - drafted / usable), rel=2e-3)


def test_a_prompt_behind_a_prefix_takes_what_a_longer_prompt_takes_more() -> None:
    """Chunks of 10 tokens: 110 tokens less 100 of them, and its own logits; a step sees all."""
    hw = machine_of(GPU)
    windowed = model("gpt-oss-20b", hw)
    for llm in (TINY, windowed):

        def asked(tokens: float, before: float = 0.0, llm: LLM = llm) -> Estimate:
            work = Workload(1.0, tokens, 21.0)
            one = {"tp": 1.0, "pp": 1.0, "dp": 1.0, "ep": 1.0, "attention": 0.0}
            return GPU(hw, llm, work, {**one, "chunk": 10.0, "prefix": before})

        flops = {
            tokens: asked(tokens).prefill.traffic("run")["gpu.tensor", "run"]
            for tokens in (110.0, 100.0)
        }
        behind = asked(10.0, before=100.0)
        computed = behind.prefill.traffic("run")["gpu.tensor", "run"]
        assert computed == pytest.approx(flops[110.0] - flops[100.0] + 2 * llm.head_parameters)
        assert behind.step.seconds == pytest.approx(asked(110.0).step.seconds)
        assert behind.fits.tiers["gpu"][0] == pytest.approx(asked(110.0).fits.tiers["gpu"][0])


def test_degrees_are_columns_of_the_answer() -> None:
    answer = estimate("gpu", **split(4.0, 2.0))
    assert {name: answer.columns[name] for name in ("tp", "dp", "pp", "ep")} == {
        "tp": 4.0,
        "dp": 2.0,
        "pp": 1.0,
        "ep": 1.0,
    }

"""Prompts in chunks: nothing changes in one chunk, K and V are conserved, memory falls with chunks.

Hand values are of Llama 3.1 70B at 262,144 tokens: 80 layers of h = 8,192, f = 28,672, 64 heads of
128 elements and 8 KV heads, so P = 855,638,016 weights and 4,096 B of K and V a token and layer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import SYSTEMS, machine_of, model

from nearkv.costmodel.algebra.span import Real, total
from nearkv.costmodel.mechanisms.prompt_chunks import (
    held_bytes,
    hidden_bytes,
    kept_share,
    largest_chunk,
    tokens_before,
)
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.resources import gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import KnobSetting, resolve_knobs

CHUNKED = [name for name, system in SYSTEMS.items() if "chunk" in system.knobs]
LAYER_BY_LAYER = ["flexgen-ssd", "flexgen-dram", "flexgen-raid", "hilos", "inf2"]
ON_ONE_PC = ["hillinfer", "full-cache", "h2o", "infinigen", "leoam"]
WORK = Workload(2.0, 4096.0, 16.0)
LLAMA = model("llama3.1-70b")
LONG = Workload(1.0, 262_144.0, 64.0)
ATTENDED: dict[str, dict[str, KnobSetting]] = {
    "hilos": {"weights": 2.0, "alpha": 0.0},
    "flexgen-ssd": {"weights": 2.0},
    "flexgen-dram": {"weights": 2.0},
}
"""Weights by the paper's rule, none of the batch as X."""
P, KV, HIDDEN = 855_638_016, 4096, 8192


def asked(
    name: str, knobs: dict[str, KnobSetting], hw: Machine | None = None, work: Workload = WORK
) -> Estimate:
    system = SYSTEMS[name]
    machine = hw or machine_of(system)
    llm = model("llama3.1-8b" if work is WORK else "llama3.1-70b", machine)
    return resolve_knobs(system, machine, llm, work, {**system.defaults, **knobs}).estimate


def test_every_system_that_computes_prompts_takes_a_chunk() -> None:
    assert {*SYSTEMS} == {*CHUNKED}


@pytest.mark.parametrize("name", CHUNKED)
def test_a_prompt_in_one_chunk_is_the_whole_prompt(name: str) -> None:
    whole, one = (asked(name, {"chunk": chunk}) for chunk in (0.0, 2 * WORK.prompt))
    assert one.prefill.seconds == pytest.approx(whole.prefill.seconds, rel=1e-12)
    assert one.step.seconds == pytest.approx(whole.step.seconds, rel=1e-12)
    if name != "gpu":  # an engine keeps memory for as many tokens as it may take
        for memory, (needed, _) in whole.fits.tiers.items():
            assert one.fits.tiers[memory][0] == pytest.approx(needed, rel=1e-12)


@pytest.mark.parametrize("name", CHUNKED)
def test_smaller_chunks_take_no_more_gpu_memory_and_no_less_time(name: str) -> None:
    chunks = np.array([2.0**power for power in range(6, 13)])
    stated: dict[str, KnobSetting] = {"weights": 2.0} if name in LAYER_BY_LAYER else {}
    if name == "flexgen-percent":  # whole tensors fill what chunks leave
        stated = {"gpu_weights": 0.0, "ssd_weights": 0.0}
    answer = asked(name, {**stated, "chunk": chunks})
    memory = next(
        key for key in ("gpu", "both", "lpddr", "hbm8", "host") if key in answer.fits.tiers
    )
    needed = np.broadcast_to(answer.fits.tiers[memory][0], chunks.shape)
    seconds = np.broadcast_to(answer.prefill.seconds, chunks.shape)
    if name not in ("l3", "rank-pim"):  # which hold an unfinished prompt's K and V of all layers
        assert np.all(np.diff(needed) >= -1e-6 * needed[:-1])
    assert np.all(np.diff(seconds) <= 1e-9 * seconds[:-1])


# --- K and V of earlier chunks ----------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1.0, 7.0, 1000.0, 1024.0, 4095.0, 4096.0])
def test_later_chunks_attend_to_all_tokens_before_them(chunk: float) -> None:
    work = replace(WORK, chunk=chunk)
    begins = np.arange(0, 4096, chunk)
    assert work.chunks == len(begins)
    assert (work.chunks - 1) * tokens_before(work) == pytest.approx(np.sum(begins))


def test_a_prompt_is_divided_where_it_is_longer_than_a_chunk() -> None:
    assert [replace(WORK, chunk=chunk).together for chunk in (0.0, 4095.0, 9000.0)] == [
        4096,
        4095,
        4096,
    ]
    assert Workload(1.0, 0.0, 1.0).chunks == 1


def test_kept_and_returned_are_all_of_it() -> None:
    """Of K (s - c) a layer that does not fit, what stays and what comes back add up to all."""
    hw = load_platform("hilos-a100").machine()
    work = replace(LONG, chunk=1024.0)
    everything = KV * 1024 * sum(range(256))
    for room in (0.0, 3e8, 1e12):
        kept = kept_share(LLAMA, work, room)
        memory = working_set(hw) + room
        answer = asked("hilos", {"chunk": 1024.0, **ATTENDED["hilos"]}, at_memory(hw, memory), LONG)
        back = amount(answer, "earlier")
        assert back == pytest.approx(80 * (1 - kept) * everything, rel=1e-9)
        held = answer.fits.contents["gpu"]["K and V of the layer"]
        assert held == pytest.approx(min(room, KV * (262_144 - 1024)), rel=1e-9)


def at_memory(hw: Machine, memory: Real) -> Machine:
    return hw.with_values({"gpu.memory": memory, "csd.count": 16.0})


def working_set(hw: Machine) -> float:
    """Bytes of a chunk of 1,024 tokens beside K and V: activations, weights in transfer [B]."""
    weights = LLAMA.weight_buffer_bytes()
    return float(LLAMA.activation_bytes(1024.0) + weights)


def amount(answer: Estimate, branch: str) -> float:
    """Bytes of a branch of the prompts' layers that cross the GPU's link [B]."""
    leaves = [
        (path, leaf, times) for path, leaf, times in answer.prefill.leaves() if branch in path
    ]
    return float(
        total(times * leaf.amount for _, leaf, times in leaves if leaf.resource == "gpu_link.in")
    )


# --- by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hilos", "flexgen-ssd", "flexgen-dram"])
@pytest.mark.parametrize("chunk", [8192.0, 65_536.0])
def test_at_256k_prompts_in_chunks_take_what_their_products_take(name: str, chunk: float) -> None:
    """2 P s + 2 s^2 H d FLOPs a layer: 4.49e14 + 1.126e15, 80 times, at 0.83 of 312 TFLOP/s."""
    hw = load_platform("hilos-a100").machine()
    answer = asked(name, {**ATTENDED[name], "chunk": chunk}, hw, LONG)
    s = 262_144
    seconds = 80 * (2 * P * s + 2 * s**2 * 8192) / (0.83 * 312e12)
    assert answer.prefill.seconds == pytest.approx(seconds, rel=1e-3)
    assert seconds == pytest.approx(486.4, abs=0.1)
    held = answer.fits.contents["gpu"]
    assert held["activations"] == 147_456 * chunk
    assert held["K and V of the layer"] == KV * (s - chunk)
    assert hidden_bytes(LLAMA, 1.0, replace(LONG, chunk=chunk)) == 2 * s * HIDDEN


@pytest.mark.parametrize(
    ("name", "narrowest"),
    [("hilos", ("uplink", "uplink", "read")), ("flexgen-ssd", ("gpu_link", "pageable", "read"))],
)
def test_at_256k_small_chunks_wait_for_k_and_v_that_the_gpu_cannot_keep(
    name: str, narrowest: tuple[str, str, str]
) -> None:
    """4096 s (s - c) / 2 c = 1.37e11 B a layer at c = 1,024, 10.95 TB in all."""
    hw = at_memory(load_platform("hilos-a100").machine(), 0.0)
    hw = at_memory(hw, working_set(hw) * (1 + 1e-12))
    answer = asked(name, {**ATTENDED[name], "chunk": 1024.0}, hw, LONG)
    back = 80 * KV * 262_144 * (262_144 - 1024) / 2048
    assert back == pytest.approx(10.95e12, rel=1e-3)
    role, derate, _ = narrowest
    own = back / link(hw, role, derate).inward.rate
    weights = 80 * (2 * P + 2 * 262_144 * HIDDEN) / link(hw, "gpu_link", "pcie").inward.rate
    queued = own + (weights if role == "gpu_link" else 0.0)
    assert answer.prefill.seconds == pytest.approx(queued, rel=1e-3)


# --- the largest, and the best ----------------------------------------------------------------


def test_the_whole_prompt_or_a_power_of_two() -> None:
    each = LLAMA.activation_bytes(1.0)
    rooms = np.array([0.0, 1.0, 1023.0, 1024.0, 262_143.0, 262_144.0, 1e9]) * each
    assert np.ravel(largest_chunk(LLAMA, LONG, rooms)).tolist() == [
        1,
        1,
        512,
        1024,
        131_072,
        262_144,
        262_144,
    ]


def test_a_model_without_k_and_v_keeps_all_of_none() -> None:
    work = replace(LONG, prompt=np.array([262_144.0, 1024.0]), chunk=1024.0)
    assert np.ravel(held_bytes(LLAMA, work)).tolist() == [KV * 261_120, 0]
    assert np.ravel(kept_share(LLAMA, work, 0.0)).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["hilos", "flexgen-ssd"])
def test_auto_is_the_best_of_all_chunks(name: str) -> None:
    """A GPU that the whole prompt would fill holds more weights beside a part of it."""
    hw = load_platform("hilos-a100").machine().with_values({"gpu.memory": 8e9})
    llm, work, system = model("llama3.1-8b", hw), Workload(1.0, 32_768.0, 64.0), SYSTEMS[name]
    knobs: dict[str, KnobSetting] = {**system.defaults, "weights": 0.0, "ssd_weights": 0.0}
    if name == "hilos":
        knobs["alpha"] = 0.0
    solved = resolve_knobs(system, hw, llm, work, {**knobs, "chunk": "auto"}).estimate
    every = resolve_knobs(
        system, hw, llm, work, {**knobs, "chunk": np.arange(1.0, 32_769)}
    ).estimate
    assert solved.total.seconds == pytest.approx(np.min(every.total.seconds), rel=1e-4)
    whole = resolve_knobs(system, hw, llm, work, {**knobs, "chunk": 0.0}).estimate
    assert solved.total.seconds < 0.99 * whole.total.seconds
    assert gpu(hw).memory >= np.max(solved.fits.tiers["gpu"][0]) * (1 - 1e-9)


@pytest.mark.parametrize("name", ON_ONE_PC)
def test_a_model_larger_than_the_gpu_leaves_weights_in_host_memory(name: str) -> None:
    """LLaMA-13B, 26 GB at 16 bits on a card of 24 GiB: the rest crosses its link in each step."""
    system = SYSTEMS[name]
    hw = machine_of(system)
    llm, work = model("llama-13b", hw), Workload(1.0, 4096.0, 64.0)
    filled, resident = (
        resolve_knobs(system, hw, llm, work, {**system.defaults, "weights": choice}).estimate
        for choice in (0.0, 1.0)
    )
    assert not np.any(resident.fits.ok)
    assert np.all(filled.fits.ok)
    # what neither holds is an answer, too: 132 GB of OPT-66B on 24 and 64 GiB
    large = resolve_knobs(system, hw, model("opt-66b", hw), work, system.defaults).estimate
    assert str(large.fits.short_of) == "host"
    away = llm.weight_bytes - np.max(filled.fits.contents["gpu"]["weights"])
    crossing = away / link(hw, "gpu_link", "pcie").inward.rate
    assert (
        filled.step.seconds
        >= 0.95 * crossing * llm.layers * llm.layer_weight_bytes(1) / llm.weight_bytes
    )

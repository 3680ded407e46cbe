"""Queues of requests on models of several layer types: what is kept, read and admitted."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    HEAD,
    HEAD_FLOPS,
    SHAPE,
    STREAMED,
    WORK,
    amounts,
    estimate,
    gpus_of_l3,
    needed,
    split,
    two_kinds,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.request_bytes import seen_by_type
from nearkv.costmodel.model.chosen import Sparse
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Mixed, Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Load, Workload
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.study.traces import Trace, load_trace

FOUR: dict[str, Real] = {"policy.weights_per_gpu": 2_000.0}
"""They need 2.75 GPUs, so 4: two replicas of 8 GPUs."""


ROW = 2 * 6 * 2
"""K and V of a token in a layer: 2 heads of 3 elements, 2 bytes each [B]."""


# a step sees contexts of 100 to 121 tokens. A window of 110.5 holds all of them in the first half
# of a request's life, 105.25 on average, and 110.5 in the second half
WINDOW = 110.5


HALFWAY = (105.25 + 110.5) / 2


def state(layers: float) -> Recurrent:
    """A layer with a state of 1,000 elements in place of a cache."""
    sizes = {**SHAPE, "layers": layers}
    return Recurrent(**sizes, mixer_parameters=384.0, state_size=1000.0, state_flops=5000.0)


def latent(layers: float) -> Latent:
    """A layer whose heads share a row of 4 + 2 elements."""
    sizes = {**SHAPE, "layers": layers, "kv_heads": 0.5, "head_size": 6}
    return Latent(**sizes, kv_rank=4.0, rope_size=2.0, key_size=3.0, value_size=3.0)


def parts(numbers: list[Real]) -> np.ndarray:
    return np.array(numbers, float)


def mixed(**kinds: LLM) -> Mixed:
    layers = sum(float(np.asarray(kind.layers)) for kind in kinds.values())
    return Mixed(**{**SHAPE, "layers": layers}, types_by_name=kinds)


CACHE = 5 * (110.5 + 2 * HALFWAY) * ROW
"""K and V that five requests keep on average in the layers of two kinds [B]."""


COPIES = 2
"""Four GPUs keep each of two KV heads twice [1]."""


def test_a_window_ends_what_a_step_reads() -> None:
    read = amounts(gpus_of_l3(split(4.0, 2.0), FOUR, two_kinds(WINDOW)).step)["gpu.hbm read"]
    cache = COPIES * 5 * (110.5 + 2 * HALFWAY) * ROW
    assert read == pytest.approx(2 * STREAMED + cache)


def test_a_window_ends_the_memory_of_residents_and_of_the_longest() -> None:
    weights = 2 * ALL_WEIGHTS
    answer = gpus_of_l3(split(4.0, 2.0), FOUR, two_kinds(WINDOW))
    assert needed(answer)["gpu"] == pytest.approx(weights + COPIES * CACHE)
    # one request at its end in each of five replicas is more than five at their mean
    alone = gpus_of_l3(split(1.0, 8.0), {}, two_kinds(WINDOW))
    assert needed(alone)["gpu"] == pytest.approx(5 * ALL_WEIGHTS + 5 * (121 + 2 * WINDOW) * ROW)


def test_a_window_ends_the_attention_of_a_prompt() -> None:
    """A band of 2 x 100 x 60 - 60^2 of the 100^2 pairs of a prompt, in two of three layers."""
    prefill = gpus_of_l3(split(4.0, 2.0), FOUR, two_kinds(60.0)).prefill
    linear = 2 * 500 * 3 * 840 + HEAD_FLOPS
    assert amounts(prefill)["gpu.tensor run"] == pytest.approx(
        linear + 2 * 5 * 18 * (10_000 + 2 * 8_400)
    )


def test_memory_holds_requests_of_their_mean_or_of_their_final_size() -> None:
    """Room for 3.5 of them: half of one stays idle, so 3 decode at a time."""
    sizes = {0.0: (110.5 + 2 * HALFWAY) * ROW, 1.0: (121 + 2 * WINDOW) * ROW}
    for policy, size in sizes.items():
        memory = {"gpu.memory": (ALL_WEIGHTS + 3.5 * COPIES * size) / 4}
        answer = gpus_of_l3(split(4.0, policy=policy), memory, two_kinds(WINDOW))
        assert answer.batch_run == pytest.approx(3)


def test_a_state_is_read_and_written_and_does_not_grow() -> None:
    llm = mixed(full=two_kinds(1.0).layer_types["full"], state=state(2.0))
    answer = gpus_of_l3(split(4.0, 2.0), FOUR, llm)
    weights = 2 * ALL_WEIGHTS  # the mixer has as many parameters as the attention
    kept = 5 * (COPIES * 110.5 * ROW + 2 * 1000 * 2)
    assert needed(answer)["gpu"] == pytest.approx(weights + kept)
    moved = 5 * (COPIES * 110.5 * ROW + 2 * 2 * 1000 * 2)
    assert amounts(answer.step)["gpu.hbm read"] == pytest.approx(2 * STREAMED + moved)


def test_a_latent_row_is_on_every_gpu_and_its_products_are_counted() -> None:
    """Four GPUs a replica keep four copies of 6 elements; 6 heads multiply with 2 x 4 + 2."""
    llm = mixed(latent=latent(3.0))
    answer = gpus_of_l3(split(4.0, 2.0), FOUR, llm)
    rows = 4 * 3 * 5 * 110.5 * 6 * 2
    assert needed(answer)["gpu"] == pytest.approx(2 * np.asarray(llm.weight_bytes) + rows)
    run = amounts(answer.step)["gpu.tensor run"]
    attended = 3 * 2 * 5 * 110.5 * 6 * (2 * 4 + 2)
    linear = 3 * llm.layer_types["latent"].linear_flops(5.0)
    assert run == pytest.approx(linear + HEAD_FLOPS + attended)


PIM: list[tuple[str, str, str]] = [
    ("hbm-pim", "gpu.banks read", "gpu"),
    ("rank-pim", "dimm.ranks read", "dimm"),
    ("l3", "dimm.banks read", "dimm"),
]


def knobs_of(name: str) -> dict[str, Real]:
    knobs: dict[str, dict[str, Real]] = {
        "gpu": split(8.0),
        "hbm-pim": {"interleave": 1.0},
        "rank-pim": {"homes": 1.0},
        "l3": {"interleave": 1.0, "overlap_comm": 1.0, "homes": 1.0},
    }
    return {"policy": 0.0, **knobs.get(name, {})}


@pytest.mark.parametrize(("name", "units", "memory"), PIM)
def test_attention_units_read_what_windows_keep(name: str, units: str, memory: str) -> None:
    answer = estimate(name, FOUR, two_kinds(WINDOW), **knobs_of(name))
    weights = 2 * ALL_WEIGHTS
    if memory == "gpu":
        assert amounts(answer.step)[units] == pytest.approx(COPIES * CACHE)
        assert needed(answer) == pytest.approx({"gpu": weights + COPIES * CACHE})
    else:
        assert amounts(answer.step)[units] == pytest.approx(CACHE)
        assert needed(answer) == pytest.approx({"gpu": weights + 2 * ACTIVATIONS, "dimm": CACHE})


@pytest.mark.parametrize("name", ["rank-pim", "l3"])
def test_of_prompts_only_what_windows_keep_goes_to_the_dimms(name: str) -> None:
    """100 tokens in one layer, the last 60 in two."""
    prefill = estimate(name, FOUR, two_kinds(60.0), **knobs_of(name)).prefill
    assert amounts(prefill)["dimm.bus move"] == pytest.approx(5 * (100 + 2 * 60) * ROW)


@pytest.mark.parametrize(("name", "units", "memory"), PIM)
def test_states_stay_with_the_gpus(name: str, units: str, memory: str) -> None:
    llm = mixed(full=two_kinds(1.0).layer_types["full"], state=state(2.0))
    answer = estimate(name, FOUR, llm, **knobs_of(name))
    step, cache, states = amounts(answer.step), 5 * 110.5 * ROW, 5 * 2 * 1000 * 2
    passes = 1 if name == "rank-pim" else 2
    copies = COPIES if memory == "gpu" else 1
    assert step[units] == pytest.approx(copies * cache)
    assert step["gpu.hbm read"] == pytest.approx(passes * 2 * STREAMED + 2 * states)
    on_gpus = 2 * ALL_WEIGHTS + states
    if memory == "gpu":
        assert needed(answer) == pytest.approx({"gpu": on_gpus + COPIES * cache})
    else:
        assert needed(answer) == pytest.approx({"gpu": on_gpus + 2 * ACTIVATIONS, "dimm": cache})


def test_states_end_how_many_requests_the_dimms_serve() -> None:
    """Room for the states of 3.5 requests beside the weights: half of one idle, 3 run."""
    llm = mixed(full=two_kinds(1.0).layer_types["full"], state=state(2.0))
    memory = (ALL_WEIGHTS + 3.5 * 2 * 1000 * 2) / 8
    one_replica: dict[str, Real] = {"gpu.memory": memory, "policy.weights_per_gpu": 700.0}
    assert estimate("rank-pim", one_replica, llm, policy=0.0).batch_run == pytest.approx(3)


def test_requests_that_fill_a_window_load_ranksets_evenly() -> None:
    """Of a trace whose contexts differ, nearly all windows of 64 tokens are full."""
    work, llm = load_trace("dolphin").workload, two_kinds(64.0)
    seen = seen_by_type(llm, work)
    assert seen["window"].sizes == pytest.approx(1, rel=0.01)
    assert seen["full"].sizes == pytest.approx(work.spread.context_square)
    load = Load(4.0, 4 * work.context, 0.0).on_layer_types(seen, lambda sequences, sizes: 2 * sizes)
    assert load.by_type["window"].hottest == pytest.approx(2 * 4 * 64, rel=0.02)


def test_a_share_of_what_windows_keep_is_the_cpus() -> None:
    answer = estimate("cpu-offload", FOUR, two_kinds(WINDOW), cpu_share=0.4)
    assert amounts(answer.step)["host.dram read"] == pytest.approx(0.4 * CACHE)
    assert amounts(answer.step)["gpu.hbm read"] == pytest.approx(
        2 * STREAMED + 0.6 * COPIES * CACHE
    )
    memories = {"gpu": 2 * ALL_WEIGHTS + 0.6 * COPIES * CACHE, "host": 0.4 * CACHE}
    assert needed(answer) == pytest.approx(memories)


def test_states_of_the_cpus_requests_stay_with_the_gpus() -> None:
    llm = mixed(full=two_kinds(1.0).layer_types["full"], state=state(2.0))
    answer = estimate("cpu-offload", FOUR, llm, cpu_share=0.4)
    cache, states = 5 * 110.5 * ROW, 5 * 2 * 1000 * 2
    read = amounts(answer.step)
    assert read["host.dram read"] == pytest.approx(0.4 * cache)
    assert read["gpu.hbm read"] == pytest.approx(2 * STREAMED + 0.6 * COPIES * cache + 2 * states)
    memories = {"gpu": 2 * ALL_WEIGHTS + 0.6 * COPIES * cache + states, "host": 0.4 * cache}
    assert needed(answer) == pytest.approx(memories)


def test_two_kinds_wait_for_the_slower_side_each() -> None:
    """A layer takes the longer of its two sides, and no average of all layers does."""
    llm = two_kinds(60.0)
    answer = estimate("cpu-offload", FOUR, llm, cpu_share=0.9)
    layers = answer.step.parts
    assert set(layers) == {"full", "window"}
    sides = [
        max(layer.parts["gpu"].seconds, layer.parts["cpu"].seconds) * times
        for layer, times in ((layers["full"], 1), (layers["window"], 2))
    ]
    assert answer.step.seconds == pytest.approx(sum(sides))


def test_an_indexer_reads_all_keys_and_multiplies_with_what_it_chose() -> None:
    """Its keys of 5 elements, 2 heads, of all 110.5 tokens; latents of 60 of them."""
    sizes = {**vars(latent(3.0)), "index_heads": 2.0, "index_size": 5.0, "chosen": 60.0}
    llm = mixed(sparse=Sparse(**sizes))
    answer = gpus_of_l3(split(4.0, 2.0), FOUR, llm)
    kept = 4 * 3 * 5 * 110.5 * (6 + 5) * 2
    assert needed(answer)["gpu"] == pytest.approx(2 * np.asarray(llm.weight_bytes) + kept)
    read = 4 * 3 * 5 * (60 * 6 + 110.5 * 5) * 2
    weights = 2 * (3 * llm.layer_types["sparse"].layer_bytes(1.0) + HEAD)
    assert amounts(answer.step)["gpu.hbm read"] == pytest.approx(weights + read)
    attended = 3 * 2 * 5 * (110.5 * 2 * 5 + 60 * 6 * (2 * 4 + 2))
    linear = 3 * llm.layer_types["sparse"].linear_flops(5.0)
    run = amounts(answer.step)["gpu.tensor run"]
    assert run == pytest.approx(linear + HEAD_FLOPS + attended)


def test_parts_of_a_life_make_its_mean() -> None:
    assert np.mean(parts(WORK.contexts)) == pytest.approx(110.5)
    assert WORK.at_context(64.0).contexts == [64.0]
    assert (WORK.finals, WORK.prompts) == ([121.0], [100.0])


def test_parts_of_a_trace_are_near_its_requests_one_by_one() -> None:
    drawn = load_trace("openr1")
    trace = Trace("some", drawn.prompt[:100], drawn.output[:100])
    work = trace.workload
    requests = zip(trace.prompt, trace.output, strict=True)
    lives = [prompt + np.arange(1, output) for prompt, output in requests]
    contexts = np.concatenate(lives)
    assert np.mean(parts(work.contexts)) == pytest.approx(float(np.asarray(work.context)))
    for window in (128.0, 1024.0, 4096.0, 1e9):
        exact = float(np.mean(np.minimum(contexts, window)))
        assert np.mean(np.minimum(parts(work.contexts), window)) == pytest.approx(exact, rel=0.01)


def test_a_trace_of_equal_requests_is_the_workload_of_one() -> None:
    trace = Trace("equal", np.full(5, 100.0), np.full(5, 21.0))
    reserved = split(1.0, 8.0, policy=1.0)
    of_trace = gpus_of_l3(reserved, {}, two_kinds(WINDOW), trace.workload)
    of_work = gpus_of_l3(reserved, {}, two_kinds(WINDOW))
    assert of_trace.total.seconds == pytest.approx(of_work.total.seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("gpu", "gpt-oss-120b"),
        ("cpu-offload", "jamba-v0.1"),
        ("hbm-pim", "gemma3-27b"),
        ("rank-pim", "jamba-v0.1"),
        ("l3", "gpt-oss-120b"),
    ],
)
def test_a_longer_context_admits_fewer_and_decodes_no_faster(system: str, name: str) -> None:
    hw, llm = load_platform("dgx-a100-pim").machine(), model(name)
    work = Workload(4000.0, np.geomspace(256.0, 131_072.0, 12), 512.0)
    knobs = {"cpu_share": 0.3} if system == "cpu-offload" else knobs_of(system)
    answer = find_system(system)(hw, llm, work, knobs)
    assert np.all(np.diff(answer.batch_run) <= 0)
    steps = np.asarray(answer.step.seconds)
    assert np.all(np.diff(steps) >= -1e-9 * steps[1:])

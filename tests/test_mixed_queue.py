"""Queues of requests on models of several kinds of layer: what is kept, read and admitted."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import model
from tiny import (
    ALL_WEIGHTS,
    LAYERS,
    SHAPE,
    WORK,
    amounts,
    estimate,
    needed,
    two_kinds,
)

from nearkv.costmodel.latent import Latent
from nearkv.costmodel.layers import Mixed, Recurrent
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.registry import find_system
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.evaluation.evaluate import table
from nearkv.sweeps.space.study import Study
from nearkv.sweeps.space.traces import Trace, load_trace

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
    return Mixed(**{**SHAPE, "layers": layers}, layer_kinds=kinds)


def test_a_window_ends_what_a_step_reads() -> None:
    read = amounts(estimate("gpu-only", FOUR, two_kinds(WINDOW), policy=0.0).step)["gpu.hbm read"]
    cache = 5 * (110.5 + 2 * HALFWAY) * ROW
    assert read == pytest.approx(2 * LAYERS + cache)


def test_a_window_ends_the_memory_of_residents_and_of_the_longest() -> None:
    weights = 2 * ALL_WEIGHTS
    answer = estimate("gpu-only", FOUR, two_kinds(WINDOW), policy=0.0)
    assert needed(answer)["gpu"] == pytest.approx(weights + 5 * (110.5 + 2 * HALFWAY) * ROW)
    # one request at its end in each of eight replicas is more than five at their mean
    alone = estimate("gpu-only", {}, two_kinds(WINDOW), policy=0.0)
    assert needed(alone)["gpu"] == pytest.approx(8 * ALL_WEIGHTS + 8 * (121 + 2 * WINDOW) * ROW)


def test_a_window_ends_the_attention_of_a_prompt() -> None:
    """A band of 2 x 100 x 60 - 60^2 of the 100^2 pairs of a prompt, in two of three layers."""
    prefill = estimate("gpu-only", FOUR, two_kinds(60.0), policy=0.0).prefill
    linear = 2 * 500 * 3 * 840
    assert amounts(prefill)["gpu.tensor run"] == linear + 2 * 5 * 18 * (10_000 + 2 * 8_400)


def test_memory_holds_requests_of_their_mean_or_of_their_final_size() -> None:
    """Room for 3.5 of them: half of one stays idle, so 3 decode at a time."""
    sizes = {0.0: (110.5 + 2 * HALFWAY) * ROW, 1.0: (121 + 2 * WINDOW) * ROW}
    for policy, size in sizes.items():
        memory = (ALL_WEIGHTS + 3.5 * size) / 8
        one_replica: dict[str, Real] = {"gpu.memory": memory, "policy.weights_per_gpu": 700.0}
        answer = estimate("gpu-only", one_replica, two_kinds(WINDOW), policy=policy)
        assert answer.batch_run == pytest.approx(3)


def test_a_state_is_read_and_written_and_does_not_grow() -> None:
    llm = mixed(full=two_kinds(1.0).kinds["full"], state=state(2.0))
    answer = estimate("gpu-only", FOUR, llm, policy=0.0)
    weights = 2 * ALL_WEIGHTS  # the mixer has as many parameters as the attention
    kept = 5 * (110.5 * ROW + 2 * 1000 * 2)
    assert needed(answer)["gpu"] == pytest.approx(weights + kept)
    moved = 5 * (110.5 * ROW + 2 * 2 * 1000 * 2)
    assert amounts(answer.step)["gpu.hbm read"] == pytest.approx(2 * LAYERS + moved)


def test_a_latent_row_is_on_every_gpu_and_its_products_are_counted() -> None:
    """Four GPUs a replica keep four copies of 6 elements; 6 heads multiply with 2 x 4 + 2."""
    llm = mixed(latent=latent(3.0))
    answer = estimate("gpu-only", FOUR, llm, policy=0.0)
    rows = 4 * 3 * 5 * 110.5 * 6 * 2
    assert needed(answer)["gpu"] == pytest.approx(2 * np.asarray(llm.weight_bytes) + rows)
    run = amounts(answer.step)["gpu.tensor run"]
    attended = 3 * 2 * 5 * 110.5 * 6 * (2 * 4 + 2)
    assert run == pytest.approx(3 * llm.kinds["latent"].linear_flops(5.0) + attended)


def test_parts_of_a_life_make_its_mean() -> None:
    assert np.mean(parts(WORK.contexts)) == pytest.approx(110.5)
    assert WORK.at(64.0).contexts == [64.0]
    assert (WORK.finals, WORK.prompts) == ([121.0], [100.0])


def test_parts_of_a_trace_are_near_its_requests_one_by_one() -> None:
    trace = load_trace("openr1")
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
    hw = load_platform("dgx-a100-pim").machine()
    gpu_only = find_system("gpu-only")
    of_trace = gpu_only(hw, two_kinds(WINDOW), trace.workload, {"policy": 1.0})
    of_work = gpu_only(hw, two_kinds(WINDOW), WORK, {"policy": 1.0})
    assert of_trace.total.seconds == pytest.approx(of_work.total.seconds, rel=1e-3)


@pytest.mark.parametrize("name", ["gemma3-27b", "gpt-oss-120b", "jamba-v0.1"])
def test_a_longer_context_admits_fewer_and_decodes_no_faster(name: str) -> None:
    hw, llm = load_platform("dgx-a100-pim").machine(), model(name)
    work = Workload(4000.0, np.geomspace(256.0, 131_072.0, 40), 512.0)
    answer = find_system("gpu-only")(hw, llm, work, {"policy": 0.0})
    assert np.all(np.diff(answer.batch_run) <= 0)
    assert np.all(np.diff(answer.step.seconds) >= 0)


def test_a_simulation_has_no_answer_for_layers_that_keep_fewer_tokens() -> None:
    models = ("gemma3-27b", "llama2-7b")
    rows = table(Study(("gpu-only",), models, traces=("dolphin",), method="simulate"))
    assert rows["status"].tolist() == ["not-modelled", "ok"]
    sentence = "sliding-window attention is not modelled: a simulation counts all tokens"
    assert rows["reason"][0].startswith(sentence)
    assert np.isnan(rows["total_s"].astype(float)).tolist() == [True, False]

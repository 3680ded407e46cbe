"""Formulas at their limits, by hand: what solvers refuse, what memory and links are left with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import model
from support.tiny import SHAPE, WORK, needed

from nearkv.costmodel.algebra.span import Leaf, Port, Real
from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.costmodel.mechanisms.serving.fluid import decoding, resident
from nearkv.costmodel.mechanisms.weights.percent import relay
from nearkv.costmodel.mechanisms.weights.residency import Residency, most_in_host
from nearkv.costmodel.mechanisms.weights.streaming import PageableStream
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import _chosen, _unstated
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.resources import gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.inf2 import alpha_breaks
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.placement import placement
from nearkv.solvers.placement.linear import Optimum, Program, reference
from nearkv.solvers.uncertainty.quantiles import quantiles

ONE_KV_HEAD = LLM(**{**SHAPE, "kv_heads": 1})
"""K and V of 3 elements each in 3 layers of 2 bytes: 36 B a token, where X takes 48 B."""


@pytest.mark.parametrize("times", [None, 1.001, 0.999])
def test_an_answer_that_a_second_solver_does_not_share_is_refused(
    times: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(program: Program) -> Optimum | None:
        optimum = reference(program)
        if times is None or optimum is None:
            return None
        return replace(optimum, value=times * optimum.value)

    monkeypatch.setattr(placement, "reference", second)
    hw = load_platform("t4-flexgen").machine()
    with pytest.raises(InputError, match="two solvers disagree on 4 x 2 sequences"):
        placement.place(
            hw, model("opt-30b", hw), Workload(1.0, 512.0, 32.0), gpu_batch=4, num_batches=2
        )


def test_host_memory_ends_where_x_displaces_k_and_v() -> None:
    """5 x 121 tokens: K and V take 21,780 B, X takes 29,040 B; two layers' K and V are copied,
    14,520 B. A quarter of the 7,260 B between them is reached at a quarter of the batch."""
    hw = load_platform("inf2-a100").machine().with_values({"host.memory": 38_115.0})
    assert alpha_breaks(hw, ONE_KV_HEAD, WORK, {}) == pytest.approx((0.25,))
    assert most_in_host(ONE_KV_HEAD, WORK, 0.25) == pytest.approx(38_115 - 14_520)
    # with three elements of each of two heads, K and V take more than X: nothing ends
    assert alpha_breaks(hw, LLM(**SHAPE), WORK, {}) == ()


def test_weights_that_are_not_pinned_leave_the_others_to_the_pinned_path() -> None:
    """Of 80 B a quarter is on the GPU, half in host memory, of which three quarters, 30 B."""
    hw = load_platform("zero-a6000").machine()
    weights = PageableStream(
        llm=LLM(**SHAPE),
        gpu=gpu(hw),
        host=host(hw),
        link=link(hw, "gpu_link", "pcie"),
        tiers=Residency(0.25, 0.5, 0.25),
        storage={},
        pageable=Port("slow", "move", 1.0),
        unpinned=0.75,
    )
    leaves = {leaf.resource: leaf.amount for _, leaf, _ in weights.over_link(80.0).leaves()}
    assert leaves == {"gpu_link.in": 80 - 20 - 30, "slow": 30}


def queue(room: float, chunk: float) -> Serving:
    """A server whose iterations take a second, whatever they carry."""
    return Serving(
        iteration=lambda load: second(load.sequences),
        prefill=lambda requests, load: second(requests),
        capacity=room,
        replicas=1.0,
        chunked=1.0,
        minimum_chunk=chunk,
    )


def second(of: Real) -> Leaf:
    return Leaf("gpu", "run", np.ones(np.shape(of)), 1.0, "s")


@pytest.mark.parametrize(
    ("chunk", "decode"),
    [
        # 10 tokens of prompts a token decoded come in chunks of 200: of each 21 places one loads
        (200.0, 11.5 / 1.05),
        # in chunks of 20 one of three would, but one prompt loads at a time
        (20.0, 11.5 - 1),
    ],
)
def test_requests_load_before_they_decode(chunk: float, decode: float) -> None:
    """Memory for 12 requests, half of one idle."""
    work = Workload(batch=1000.0, prompt=200.0, output=21.0)
    serving = queue(12 * 210.5, chunk)
    assert resident(work, serving) == pytest.approx(11.5)
    assert decoding(work, serving) == pytest.approx(decode)


def test_a_head_of_its_own_width_is_counted_apart() -> None:
    """840 elements in each of 3 layers of one byte; (11 + 11 + 7) x 8 of embeddings at 2 bytes."""
    narrow = LLM(**SHAPE, weight_width=1.0)
    assert narrow.weight_bytes == 3 * 840 + 29 * 8
    assert replace(narrow, head_width=2.0).weight_bytes == 3 * 840 + 2 * 29 * 8
    # 384 of each layer's are of attention
    assert replace(narrow, dense_width=2.0).weight_bytes == 3 * (840 + 384) + 29 * 8


def test_flexgen_in_dram_holds_passing_latents_too() -> None:
    """One layer's 1,152 B a token of all sequences, and of the next batch."""
    hw = load_platform("hilos-a100").machine().with_values({"host.memory": 1e13})
    work = Workload(2.0, 100.0, 28.0)
    system = find_system("flexgen-dram")
    once, twice = [
        needed(system(hw, model("deepseek-v3"), work, {"gpu_batches": n, "weights": 2.0}))["gpu"]
        for n in (2.0, 1.0)
    ]
    assert twice - once == pytest.approx(2 * 1 * 128 * 1152)


@pytest.mark.parametrize(("platform", "share"), [("hilos-a100", 1.0), ("t4-box", 0.8)])
def test_a_copy_runs_at_the_rate_of_memory_where_none_is_stated(
    platform: str, share: float
) -> None:
    """Read, filled and written: three times the bytes, over both hosts' 1 GB/s."""
    hw = load_platform(platform).machine()
    two = hw.with_values({"host.count": 2, "host.bandwidth": 1e9})
    assert relay(two, 1e9).seconds == pytest.approx(1.5 / share)


def test_a_cache_on_the_gpu_leaves_no_latents_to_pass() -> None:
    """70,272 B a token in 61 layers; where host memory keeps them one layer's 1,152 B pass."""
    system = find_system("zero-inference")
    hw, work = load_platform("zero-a6000").machine(), Workload(2.0, 100.0, 28.0)
    knobs = {"ssd_weights": 0.0, "prefetch": 0.0, "pin": 2.0}
    in_host, on_gpu = [
        needed(system(hw, model("deepseek-v3"), work, {**knobs, "cache": cache}))["gpu"]
        for cache in (0.0, 1.0)
    ]
    assert on_gpu - in_host == pytest.approx(2 * 128 * (61 * 1152 - 1152))


def test_half_a_request_lies_on_one_rankset() -> None:
    assert imbalance(0.5, 8.0, 1.0) == 8


def test_a_quantile_beside_an_infinite_one_is_itself() -> None:
    assert quantiles(np.array([1.5, np.inf]), [0.0]) == [1.5]


def test_what_no_memory_alone_cures_is_added_to_each() -> None:
    hw = load_platform("t4-flexgen").machine()
    work = Workload(1.0, 512.0, 32.0)
    huge = placement.place(hw, model("opt-30b", hw), work, gpu_batch=10**12)
    short = replace(huge, short=dict.fromkeys(huge.short, np.inf), short_each=3.0 * 2**30)
    assert "add 3.000 GiB to each of" in short.reason


def test_a_model_that_states_nothing_has_the_widths_of_the_platform() -> None:
    own = _unstated(LLM(**SHAPE, weight_width=0.5, kv_width=1.0, activation_width=4.0))
    widths = {name: width for name, width in own.items() if name.endswith("width")}
    of_weights = dict.fromkeys(("weight_width", "dense_width", "head_width"), 0.5)
    of_activations = dict.fromkeys(("activation_width", "operand_width"), 4.0)
    assert widths == {**of_weights, **of_activations, "kv_width": 1.0}
    assert (own["shared_parameters"], own["longest"]) == (0, np.inf)


def test_a_width_that_varies_over_points_is_that_of_the_model_of_each() -> None:
    varied = np.array([1.0, 2.0, 3.0])
    assert np.ravel(_chosen([varied], np.zeros(3, int))).tolist() == [1, 2, 3]
    assert np.ravel(_chosen([varied, 5.0], np.array([0, 1, 0]))).tolist() == [1, 5, 3]

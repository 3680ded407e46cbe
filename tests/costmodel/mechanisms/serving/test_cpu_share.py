"""The share of requests that the CPU attends to, against a fine grid over the catalogue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.systems import model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.cpu_share import (
    Capacities,
    at_share,
    balanced_share,
    beyond_gpus,
    host_attention,
    least,
    least_of,
    least_share,
    shared_layer,
    takes_excess,
    with_requests,
)
from nearkv.costmodel.mechanisms.serving.parallel import (
    data_parallel,
    in_use,
    kv_token_bytes,
    tensor_parallel,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import seen_by_type
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Load, Workload, even
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

HW = load_platform("dgx-a100-pim").machine()


MODELS = ("opt-66b", "gpt-175b", "chinchilla-70b", "mixtral-8x7b", "llama2-7b")


LLMS = {name: model(name, HW) for name in MODELS}


SHARES = np.linspace(0.0, 1.0, 2001)


def at(hw: Machine, llm: LLM, work: Workload, share: Real) -> Estimate:
    return find_system("cpu-offload")(hw, llm, work, {"cpu_share": share})


def check_best(hw: Machine, llm: LLM, work: Workload) -> None:
    """The rule's share fits wherever one of a fine grid does, and none of them is faster."""
    points = np.broadcast_shapes(np.shape(work.batch), np.shape(work.prompt))
    shares = SHARES.reshape(-1, *(1 for _ in points))
    best = at(hw, llm, work, balanced_share(hw, llm, work))
    grid = at(hw, llm, work, shares)
    fastest = np.min(np.where(grid.fits.ok, grid.step.seconds, np.inf), axis=0)
    some_fit = np.isfinite(fastest)
    assert np.shape(fastest) == points
    assert np.all(best.fits.ok | ~some_fit)
    assert np.all((best.step.seconds <= fastest * (1 + 1e-9)) | ~some_fit)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_no_share_is_faster_over_the_catalogue(name: str) -> None:
    batches = np.array([1.0, 4.0, 7.0, 64.0, 700.0])
    contexts = np.array([512.0, 4096.0, 32768.0, 131072.0])
    check_best(HW, LLMS[name], Workload(batches[:, None], contexts, 512.0))


@settings(max_examples=40)
@given(
    st.sampled_from(MODELS),
    st.integers(1, 2000),
    st.integers(100, 100_000),
    st.floats(1e10, 1e13),
    st.floats(1e10, 5e12),
    st.floats(0.0, 1e-3),
)
def test_no_share_is_faster_on_any_machine(
    name: str, batch: int, context: int, memory: float, bandwidth: float, launch: float
) -> None:
    hw = HW.with_values(
        {"host.memory": memory, "host.bandwidth": bandwidth, "gpu.attention_launch": launch}
    )
    check_best(hw, LLMS[name], Workload(float(batch), float(context), 512.0))


@pytest.mark.parametrize("held", [0.7, 0.9, 0.97, 0.999, 1.0, 1.001, 1.03, 1.1])
@pytest.mark.parametrize("name", ["llama2-7b", "opt-66b"])
def test_no_share_is_faster_where_requests_grow_beyond_the_gpus(name: str, held: float) -> None:
    """A replica holds a request of mean size, or nearly so; some of its life is too long."""
    llm, work = LLMS[name], Workload(64.0, 60_000.0, 6_000.0)
    tp = HW.gpu.count / float(np.ravel(data_parallel(HW, llm))[0])
    cache = held * llm.kv_cache_bytes(1, work.context)
    hw = HW.with_values({"gpu.memory": (llm.weight_bytes + cache) / tp})
    check_best(hw, llm, work)


def test_shares_of_a_grid_are_those_of_its_points() -> None:
    llm, batches = LLMS["opt-66b"], np.array([1.0, 40.0, 900.0])
    together = balanced_share(HW, llm, Workload(batches, 6000.0, 512.0))
    alone = [balanced_share(HW, llm, Workload(float(b), 6000.0, 512.0)) for b in batches]
    assert np.asarray(together).tolist() == alone


def test_cpu_and_gpu_take_as_long_where_no_memory_binds() -> None:
    work = Workload(40.0, 6000.0, 512.0)
    share = balanced_share(HW, LLMS["opt-66b"], work)
    layer = at(HW, LLMS["opt-66b"], work, share).step.parts
    assert 0 < share < 1
    assert layer["gpu"].seconds == pytest.approx(layer["cpu"].seconds, rel=1e-7)


def test_weights_beyond_the_gpus_are_an_answer_at_any_share() -> None:
    small = HW.with_values({"gpu.memory": 1e9})
    for share in (0.0, 0.5, 1.0):
        estimate = at(small, LLMS["chinchilla-70b"], Workload(4.0, 32768.0, 64.0), share)
        assert not estimate.fits.ok
        assert estimate.fits.short_of == "gpu"
        assert np.isfinite(estimate.step.seconds)


CONTEXT = 4000.0


def with_replicas(llm: LLM, count: float) -> tuple[Machine, float]:
    """The machine with so many replicas, and the GPUs of each."""
    tp = float(np.ravel(tensor_parallel(HW, llm))[0])
    return HW.with_values({"gpu.count": count * tp, "nvlink.count": count * tp}), tp


def holding(llm: LLM, gpu: Real, host: Real) -> Machine:
    """One replica whose memories hold so many bytes beside the weights; attention takes no time."""
    hw, tp = with_replicas(llm, 1.0)
    memories = {"gpu.memory": (llm.weight_bytes + gpu) / tp, "host.memory": host}
    return hw.with_values({**memories, "gpu.decode_attention": 1e6, "host.bandwidth": 1e20})


def test_states_stay_on_the_gpus_at_any_share() -> None:
    """Half a request's cache of states beside what the CPU leaves of the cache."""
    room = Capacities(gpu=10.0, host=3.0, batch=100.0, replicas=1.0, state=0.5)
    assert [float(room.on_gpus(share)) for share in (0.0, 0.25, 1.0)] == [1.5, 1.25, 0.5]
    assert [float(room.holding(share)) for share in (0.25, 0.5)] == [8, 6]


@pytest.mark.parametrize(("gpu", "host"), [(4.0, 100.0), (100.0, 4.0)])
def test_a_memory_that_is_just_full_holds_its_share(gpu: float, host: float) -> None:
    assert Capacities(gpu=gpu, host=host, batch=8.0, replicas=1.0).fits(0.5)


@pytest.mark.parametrize("name", ["opt-66b", "jamba-v0.1"])
@pytest.mark.parametrize(("tokens", "beyond"), [(900.0, False), (1100.0, True)])
def test_a_request_longer_than_the_memory_of_a_replica(
    name: str, tokens: float, beyond: bool
) -> None:
    """Each of three replicas holds a thousand tokens and its states."""
    llm = model(name, HW)
    hw, tp = with_replicas(llm, 3.0)
    cache = llm.kv_cache_bytes(1, 1000.0) + llm.all_state_bytes(1)
    hw = hw.with_values({"gpu.memory": (llm.weight_bytes + cache) / tp})
    assert beyond_gpus(hw, llm, Workload(8.0, tokens - 10, 10.0)) == beyond


@pytest.mark.parametrize("name", ["opt-66b", "jamba-v0.1"])
def test_the_cpu_takes_what_the_gpus_cannot_hold_of_one_request(name: str) -> None:
    """Six tenths of its cache and its state fit beside the weights; the CPU is slow."""
    llm, work = model(name, HW), Workload(1.0, CONTEXT, 2.0)
    cache, state = llm.kv_cache_bytes(1, work.context), llm.all_state_bytes(1)
    hw = holding(llm, 0.6 * cache + state, 1e13).with_values({"host.bandwidth": 1.0})
    assert balanced_share(hw, llm, work) == pytest.approx(0.4)


@pytest.mark.parametrize("name", ["opt-66b", "jamba-v0.1"])
def test_what_grows_beyond_the_gpus_is_the_cpus(name: str) -> None:
    """Memory for 4,000 of 3,000 to 5,000 tokens: in half a life 500 too many, 1/16 of the mean."""
    llm, work = model(name, HW), Workload(1.0, 3000.0, 2000.0)
    hw = holding(llm, llm.kv_cache_bytes(1, 4000.0) + llm.all_state_bytes(1), 1e13)
    share = least_share(hw, llm, work)
    assert share == pytest.approx(1 / 16)
    assert takes_excess(hw, llm, work, share)
    assert not takes_excess(hw, llm, work, 0.99 * share)
    assert not takes_excess(hw, llm, Workload(1.0, 3000.0, 1.0), 0.0)


@pytest.mark.parametrize(("batch", "part"), [(1.0, 1.0), (8.0, 0.125)])
def test_the_end_of_the_longest_request_is_the_cpus(batch: float, part: float) -> None:
    """40 tokens too many at the end of one request: a quarter of that in an eighth of its life."""
    llm, work = model("opt-66b", HW), Workload(batch, 3000.0, 2000.0)
    hw = holding(llm, llm.kv_cache_bytes(1, 4960.0), 1e13)
    tokens = 40 / 4 / 8
    assert least_share(hw, llm, work) == pytest.approx(part * tokens / 4000)


@pytest.mark.parametrize("name", ["opt-66b", "jamba-v0.1"])
def test_a_fast_cpu_fills_both_memories(name: str) -> None:
    """Weights take the time, so most requests at once are best: 40, a quarter in host memory."""
    llm, work = model(name, HW), Workload(1000.0, CONTEXT, 2.0)
    cache, state = llm.kv_cache_bytes(1, work.context), llm.all_state_bytes(1)
    hw = holding(llm, 30 * cache + 40 * state, 10 * cache)
    assert balanced_share(hw, llm, work) == pytest.approx(0.25)


@pytest.mark.parametrize(("host", "holds"), [(8.0, True), (4.0, False)])
def test_a_share_fits_only_where_its_memory_holds_it(host: float, holds: bool) -> None:
    """Eight requests that the CPU all attends to are eight in host memory."""
    room = Capacities(gpu=100.0, host=host, batch=8.0, replicas=8.0)
    assert room.fits(1.0) == holds


def test_more_than_the_rest_on_the_gpu_needs_its_memory() -> None:
    room = Capacities(gpu=3.0, host=100.0, batch=8.0, replicas=8.0)
    assert room.fits(0.75)
    assert not room.fits(0.5)


def test_only_layers_with_a_cache_move_to_the_cpu() -> None:
    """A quarter of the requests leave the GPUs' attention, but none of their states."""
    hw = load_platform("dgx-a100-pim").machine()
    llm, work = model("jamba-v0.1", hw), Workload(4.0, 4000.0, 2.0)
    load = Load(4.0, 16_000.0, 16_000.0).on_layer_types(seen_by_type(llm, work), even)
    for name, kind in llm.layer_types.items():
        stays = isinstance(kind, Recurrent)
        apart = [
            shared_layer(hw, llm, share, kind, load.by_type[name]).parts for share in (0.0, 0.25)
        ]
        reads = [parts["gpu"].parts["attention"].parts["read"].seconds for parts in apart]
        assert reads[1] == pytest.approx(reads[0] * (1.0 if stays else 0.75))
        assert (apart[1]["cpu"].seconds > 0) == (not stays)


def test_a_share_of_nothing_needs_no_room() -> None:
    assert at_share(12.0, np.array([0.0, 0.25, 1.0])) == pytest.approx([np.inf, 48, 12])


def test_host_memory_for_two_requests_serves_two_replicas() -> None:
    """Requests longer than a GPU's memory live in host memory, which all replicas share."""
    hw = load_platform("dgx-a100-pim").machine()
    llm, work = model("opt-66b", hw), Workload(64.0, 100_000.0, 100.0)
    tp = float(np.ravel(in_use(hw, llm, most=1.0).gpu.count)[0])
    roomy = hw.with_values({"gpu.count": 4 * tp, "gpu.memory": 1.01 * llm.weight_bytes / tp})
    longest = kv_token_bytes(llm) * work.longest
    counts = [
        float(
            np.ravel(
                with_requests(
                    roomy.with_values({"host.memory": held * longest}), llm, work
                ).gpu.count
            )[0]
        )
        for held in (2.5, 3.5, 100.0)
    ]
    assert counts == [2 * tp, 3 * tp, 4 * tp]


LOWEST = np.array([0.1, 0.37, 0.8])


def test_golden_sections_end_at_the_least_of_a_convex_function() -> None:
    """Three parabolas at once; rounding of their values hides 1e-8 of an argument."""
    where = least(lambda x: (x - LOWEST) ** 2, np.zeros(3), np.ones(3))
    assert where == pytest.approx(LOWEST, abs=1e-7)
    slopes = np.array([1.0, -1.0])
    at_ends = least(lambda x: slopes * x, np.zeros(2), np.ones(2))
    assert at_ends == pytest.approx([0, 1], abs=1e-7)


def test_each_section_costs_one_look() -> None:
    """One of two points inside is kept, so 52 sections look at 54 points."""
    looks: list[Real] = []

    def absolute(x: Real) -> Real:
        looks.append(x)
        distance: Real = np.abs(np.subtract(x, 0.3))
        return distance

    assert least(absolute, 0.0, 1.0) == pytest.approx(0.3, abs=1e-10)
    assert len(looks) == 54


def test_more_host_memory_takes_no_longer_where_the_least_is_at_a_bend() -> None:
    """The best share is 0.0045: the width of the last section counts against that."""
    hw = load_platform("dgx-a100-pim").machine()
    rates = {"gpu.memory": 107.905257e9, "gpu.bandwidth": 4.35960306e12}
    slow = hw.with_values(rates | {"host.bandwidth": 51.0291189e9})
    llm, work = model("opt-66b", slow), Workload(43.0, 3006.0, 178.0)
    memory = {"host.memory": np.array([283.210896e9, 849.632688e9])}
    larger = slow.with_values(memory)
    share = balanced_share(larger, llm, work)
    answer = find_system("cpu-offload")(larger, llm, work, {"cpu_share": share})
    less, more = np.asarray(answer.step.seconds)
    assert more <= less * (1 + 1e-9)


def test_of_equal_points_the_first_is_taken() -> None:
    points = np.array([1.0, 3.0, 5.0])
    assert least_of(lambda x: np.abs(np.subtract(x, 2.0)), points) == 1
    assert least_of(lambda x: np.abs(np.subtract(x, 4.0)), points) == 3
    assert least_of(lambda x: np.full(np.shape(x), np.inf), points) == 1


def test_processors_lose_a_share_of_their_bandwidth() -> None:
    box = load_platform("dgx-a100-pim").machine()
    assert host_attention(box).rate == box.host.bandwidth * box.derate.cpu_attention

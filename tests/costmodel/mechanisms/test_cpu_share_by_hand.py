"""The CPU's share of requests where it is known by hand: what memories hold, what replicas do."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.cpu_share import (
    Capacities,
    Pace,
    balanced_share,
    beyond_gpus,
    least_share,
    paces,
    takes_excess,
)
from nearkv.costmodel.mechanisms.serving.parallel import data_parallel, linear, tensor_parallel
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

HW = load_platform("dgx-a100-pim").machine()
CONTEXT = 4000.0


def with_replicas(llm: LLM, count: float) -> tuple[Machine, float]:
    """The machine with so many replicas, and the GPUs of each."""
    tp = float(np.ravel(tensor_parallel(HW, llm))[0])
    return HW.with_values({"gpu.count": count * tp, "nvlink.count": count * tp}), tp


def holding(llm: LLM, gpu: Real, host: Real) -> Machine:
    """One replica whose memories hold so many bytes beside the weights; attention takes no time."""
    hw, tp = with_replicas(llm, 1.0)
    memories = {"gpu.memory": (llm.weight_bytes + gpu) / tp, "host.memory": host}
    return hw.with_values({**memories, "derate.decode_attention": 1e6, "host.bandwidth": 1e20})


@pytest.mark.parametrize("name", ["opt-66b", "mixtral-8x7b"])
@pytest.mark.parametrize("requests", [2.0, 4.0, 24.0, 4000.0])
def test_a_pace_is_that_of_the_products_of_all_replicas(name: str, requests: float) -> None:
    """Two requests visit two of four replicas; four thousand multiply longer than weights read."""
    llm = model(name, HW)
    hw, _ = with_replicas(llm, 4.0)
    assert data_parallel(hw, llm) == 4
    (pace,) = paces(hw, llm, Workload(requests, CONTEXT, 2.0))
    assert pace.products(requests) == pytest.approx(
        llm.layers * linear(hw, llm, requests).seconds, rel=1e-12
    )


@pytest.mark.parametrize(
    ("requests", "seconds"),
    [
        # 3 of 4 requests stay at a share of a half, of which half may move: in 3 of 4 replicas
        (4.0, (7 + 0.75 * 7 + 3 * 0.5) / 4),
        (20.0, (23 + 7 + 15 * 0.5) / 20),
    ],
)
def test_an_iteration_launches_attention_where_a_request_is(
    requests: float, seconds: float
) -> None:
    pace = Pace(lambda n: 3 + n, 0.5, 2.0, 7.0, replicas=4.0, movable=0.5)
    assert pace.on_gpus(requests, 0.5) == pytest.approx(seconds)
    assert pace.on_cpu(0.25) == 0.5


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

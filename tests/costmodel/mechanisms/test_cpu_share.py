"""The share of requests that the CPU attends to, against a fine grid over the catalogue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.systems import model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.cpu_share import balanced_share
from nearkv.costmodel.mechanisms.serving.parallel import data_parallel
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
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
    share = balanced_share(hw, llm, work)
    best, grid = at(hw, llm, work, share), at(hw, llm, work, SHARES)
    if np.any(grid.fits.ok):
        assert best.fits.ok
        fastest = np.min(np.where(grid.fits.ok, grid.step.seconds, np.inf))
        assert best.step.seconds <= fastest * (1 + 1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_no_share_is_faster_over_the_catalogue(name: str) -> None:
    for batch in (1.0, 4.0, 7.0, 64.0, 700.0):
        for context in (512.0, 4096.0, 32768.0, 131072.0):
            check_best(HW, LLMS[name], Workload(batch, context, 512.0))


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
    assert layer["gpu"].seconds == pytest.approx(layer["cpu"].seconds, rel=1e-9)


def test_weights_beyond_the_gpus_are_an_answer_at_any_share() -> None:
    small = HW.with_values({"gpu.memory": 1e9})
    for share in (0.0, 0.5, 1.0):
        estimate = at(small, LLMS["chinchilla-70b"], Workload(4.0, 32768.0, 64.0), share)
        assert not estimate.fits.ok
        assert estimate.fits.short_of == "gpu"
        assert np.isfinite(estimate.step.seconds)

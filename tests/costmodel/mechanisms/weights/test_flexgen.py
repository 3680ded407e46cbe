"""FlexGen's decode loop: by hand for one, two and many GPU batches, and against its cost model."""

from __future__ import annotations

import numpy as np
import pytest
from support.offloading import bed
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.weights.flexgen import eager_prompts, relay
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform

BED = load_platform("hilos-a100").machine()


FREE = {
    "gpu.flops": np.inf,
    "gpu.bandwidth": np.inf,
    "ssd.write": np.inf,
    "ssd.read": np.inf,
    "ssd_link.bandwidth": np.inf,
}
"""Leaves weights on the GPU's link, reads on the host's file path, attention on the host."""


PAPER = {"weights": 2.0}
"""Weights where the paper puts them, in host DRAM."""


LINK, FILE, ATTEND = 0.8 * 31.5e9, 10e9, 0.114 * 204.8e9
"""Rates of the three [B/s]."""


def step(batches: Real, context: float = 32768.0, batch: float = 16.0) -> Real:
    """A step of OPT-66B with its cache on drives, without the output head [s]."""
    hw, work = BED.with_values(FREE), Workload(batch, context, 64.0).at_context(context)
    knobs = {"gpu_batches": batches, **PAPER}
    span = SYSTEMS["flexgen-ssd"](hw, model("opt-66b"), work, knobs).step
    return span.parts["layers"].seconds


def terms(context: float = 32768.0, batch: float = 16.0) -> tuple[float, float, float, float]:
    """W_a, W_m, R and C of all layers by hand: 12 h^2 weights of which 4 are attention's [s]."""
    h, kv = 9216, 64 * 4 * 9216 * context * batch
    weights = 64 * 2 * h * h / LINK
    exchange = 64 * 6 * h * batch / LINK
    return 4 * weights, 8 * weights, kv / FILE, kv / ATTEND + exchange


def test_one_batch_hides_weights_behind_reads_and_attention() -> None:
    # load_weight(j+1) and load_cache(j+1) run beside compute_layer(j), then all synchronise
    attention, feed_forward, read, attend = terms()
    expected = max(attention, read) + max(feed_forward, attend)
    # the weights that pass host DRAM meanwhile take a 400th from attention
    assert step(1.0) == pytest.approx(expected, rel=3e-3)


def test_two_batches_overlap_one_read_with_one_attention() -> None:
    attention, feed_forward, read, attend = terms(1024.0)
    first = max(read / 2, attend / 2, feed_forward)
    expected = first + attend / 2 + attention + read / 2
    assert step(2.0, 1024.0) == pytest.approx(expected, rel=1e-3)


def test_many_batches_are_flexgens_cost_model() -> None:
    # the rows ctog_g + dtoc_g and ctog_g + comp_g: T_w + max(R, C)
    attention, feed_forward, read, attend = terms(4096.0, 4096.0)
    expected = attention + feed_forward + max(read, attend)
    assert step(4096.0, 4096.0, 4096.0) == pytest.approx(expected, rel=0.02)


def test_more_batches_never_load_more_weights_over_the_link() -> None:
    hw, work = BED.with_values(FREE), Workload(16.0, 4096.0, 64.0)
    loaded = [
        SYSTEMS["flexgen-ssd"](hw, model("opt-66b"), work, {"gpu_batches": n}).step.traffic()[
            "gpu_link.in", "move"
        ]
        for n in (1.0, 2.0, 16.0)
    ]
    assert loaded == pytest.approx([loaded[0]] * 3)


@pytest.mark.parametrize(
    ("name", "group"), [("qwen2.5-32b", 5), ("mixtral-8x7b", 4), ("opt-66b", 1)]
)
def test_attention_on_the_cpu_grows_with_the_queries_of_a_kv_head(name: str, group: int) -> None:
    # half of the time widens K and V to 32 bits, half multiplies and grows with the query heads
    hw, llm = BED.with_values(FREE), model(name)
    work = Workload(16.0, 65536.0, 64.0).at_context(65536.0)
    step = SYSTEMS["flexgen-dram"](hw, llm, work, {}).step
    attended = llm.layers * llm.kv_bytes(16.0, 65536.0)
    paths = [s for path, s in step.breakdown().items() if path.endswith("attend/attend")]
    assert sum(paths) == pytest.approx(attended / ATTEND * (0.5 + 0.5 * group))


@pytest.mark.parametrize(("name", "times"), [("opt-30b", 1.306), ("opt-66b", 1.580)])
def test_pinned_weights_fill_buffers_of_powers_of_two(name: str, times: float) -> None:
    # h^2 16-bit weights: 7168^2 x 2 B = 102.8 MB in 134.2 MB, 9216^2 x 2 B = 169.9 MB in 268.4 MB
    llm, work = model(name), Workload(1.0, 1024.0, 16.0)
    exact = BED.with_values({"policy.pinned_rounding": 0.0})
    weights = []
    for hw in (BED, exact):
        needed, _ = SYSTEMS["hilos"](hw, llm, work, {"alpha": 0.0, **PAPER}).fits.tiers["host"]
        buffered = 16 * llm.layers * llm.kv_bytes(1.0, 1.0)
        weights.append(needed - buffered)
    assert weights[1] == pytest.approx(llm.weight_bytes)
    assert weights[0] / weights[1] == pytest.approx(times, abs=0.001)


def test_rounded_weights_of_175b_exceed_host_memory() -> None:
    # sec. 6.1 puts weights above 100B on storage, where 350 GB would fit 550 GB
    hw = BED.with_values({"policy.weights_in_dram_up_to": 1e12})
    llm, work = model("opt-175b"), Workload(1.0, 1024.0, 16.0)
    fits = SYSTEMS["hilos"](hw, llm, work, {"alpha": 0.0, **PAPER}).fits
    needed, size = fits.tiers["host"]
    assert 350e9 < size < 600e9 < needed < 630e9


@pytest.mark.parametrize("system", ["flexgen-ssd", "flexgen-16ssd", "flexgen-dram"])
@pytest.mark.parametrize("role", ["gpu", "host"])
def test_more_memory_for_weights_never_slows_flexgen_down(system: str, role: str) -> None:
    hw = BED.with_values({f"{role}.memory": np.geomspace(60e9, 2e12, 60)})
    work = Workload(1.0, 8192.0, 64.0)
    estimate = SYSTEMS[system](hw, model("opt-175b"), work, {"weights": 0.0})
    seconds = np.ravel(estimate.total.seconds)
    assert np.all(np.diff(seconds) <= 1e-9 * seconds[1:])
    assert seconds[-1] < seconds[0]


def test_prompts_of_flexgen_write_the_whole_square_of_scores() -> None:
    hw = bed("t4-box")
    llm = model("opt-6.7b", hw)
    span = eager_prompts(llm, 2.0, 512.0, gpu(hw))
    scores = 2 * 32 * 512**2
    assert span.parts["scores"].seconds == pytest.approx(13 * scores / (hw.gpu.hbm * 320e9))
    linear = 2 * 2 * 512 * 12 * 4096**2
    square = 4 * 2 * 512**2 * 4096
    assert span.parts["products"].seconds == pytest.approx((linear + square) / (0.37 * 65e12))


@pytest.mark.parametrize(("platform", "share"), [("hilos-a100", 1.0), ("t4-box", 0.8)])
def test_a_copy_runs_at_the_rate_of_memory_where_none_is_stated(
    platform: str, share: float
) -> None:
    """Read, filled and written: three times the bytes, over both hosts' 1 GB/s."""
    hw = load_platform(platform).machine()
    two = hw.with_values({"host.count": 2, "host.bandwidth": 1e9})
    assert relay(two, 1e9).seconds == pytest.approx(1.5 / share)

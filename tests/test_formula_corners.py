"""Corners of formulas by hand: units, defaults, what missing memory and hops cost."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import SYSTEMS, model
from tiny import FINAL_KV, WORK, estimate

from nearkv.costmodel.mechanisms.accelerator import attend_prompt, side
from nearkv.costmodel.mechanisms.cpu_share import at_share
from nearkv.costmodel.mechanisms.placement import cpu_attention_rate
from nearkv.costmodel.metrics import Answer, energy
from nearkv.costmodel.plugins import Plugin
from nearkv.costmodel.registry import check_knobs
from nearkv.costmodel.span import Leaf, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.placement.placement import place
from nearkv.solvers.shares.lines import envelope

T4 = load_platform("t4-flexgen").machine()
BLOCK = Workload(1.0, 512.0, 32.0)


def test_gigabytes_of_a_cache_are_its_bytes_in_units_of_1e9() -> None:
    also = estimate("full-cache").also
    parts = [also[f"kv_{tier}_gb"] for tier in ("gpu", "host", "drive")]
    assert sum(parts) == pytest.approx(FINAL_KV / 1e9, rel=1e-12)


def test_half_the_width_costs_the_cpu_what_its_fit_says() -> None:
    """Batches of 64 lose nothing; each halving of 4,096 loses c3 of the rate (FlexGen's fit)."""
    narrow = replace(model("opt-30b", T4), hidden=2048.0)
    lost = T4.offload.cpu_small_model
    rate = cpu_attention_rate(T4, narrow, 64.0)
    assert rate == pytest.approx(T4.offload.cpu_attention * (1 - lost), rel=1e-12)
    joint = T4.offload.cpu_joint - T4.offload.cpu_small_batch
    both = cpu_attention_rate(T4, narrow, 32.0)
    assert both == pytest.approx(T4.offload.cpu_attention * (1 - lost + joint), rel=1e-12)


def test_what_fits_is_short_of_nothing_and_what_does_not_makes_no_tokens() -> None:
    fitting = place(T4, model("opt-30b", T4), BLOCK, gpu_batch=4, num_batches=2)
    assert (fitting.status, fitting.short_each) == ("optimal", 0.0)
    huge = place(T4, model("opt-30b", T4), BLOCK, gpu_batch=10**12)
    assert huge.status == "infeasible"
    assert huge.throughput_tok_s == huge.bound_tok_s == 0.0
    assert np.isnan([huge.prefill, huge.decode, *huge.shares.values()]).all()


def test_a_share_of_nothing_needs_no_room() -> None:
    assert at_share(12.0, np.array([0.0, 0.25, 1.0])) == pytest.approx([np.inf, 48, 12])


def test_prompts_attend_causally_on_full_arrays() -> None:
    """b s^2 H d multiply-adds, half of a full square's: 2 FLOPs each, so half of the FLOPs."""
    hw = load_platform("gh-asymmetric").machine()
    chip = side(hw, "hbm", "hbm_chip")
    llm = model("gpt3-175b", hw)
    span = attend_prompt(chip, llm, 2.0, 100.0, llm.heads)
    (compute,) = [leaf for _, leaf, _ in span.leaves() if leaf.eq.startswith("b s^2 H d")]
    multiply_adds = 2 * 100**2 * llm.hidden
    assert compute.amount == pytest.approx(multiply_adds / (chip.rows * chip.columns), rel=1e-12)


def test_messages_climb_a_tree_of_nodes_and_come_down() -> None:
    """Two nodes are one hop up, one down, of 0.25 s; two all-reduces in each of 32 layers."""
    hw, llm = load_platform("hgx-h200").machine(), model("llama2-7b")
    apart = hw.with_values(
        {"gpu.count": 16, "nvlink.count": 16, "fabric.count": 8, "fabric.latency": 0.25}
    )
    step = SYSTEMS["tensor-parallel"](apart, llm, WORK, {}).step
    assert waited_for("fabric.latency", step) == pytest.approx(32 * 2 * 2 * 0.25)
    alone = hw.with_values({"gpu.count": 8, "fabric.latency": 0.25})
    together = SYSTEMS["tensor-parallel"](alone, llm, WORK, {}).step
    assert waited_for("fabric.latency", together) == 0.0


def waited_for(resource: str, span: Span) -> Real:
    """Seconds of all waits for a resource."""
    return sum(
        times * leaf.seconds for _, leaf, times in span.leaves() if leaf.resource == resource
    )


def test_a_device_that_draws_the_same_at_work_and_idle() -> None:
    """Two of 7 W all the time, for 5 sequences of 21 tokens."""
    answer = estimate("full-cache")
    hw = load_platform("aipc-4090").machine()
    steady = hw.with_values({"gpu.count": 2, "gpu.power": 7.0, "gpu.idle_power": 7.0})
    joules = energy(Answer(answer, steady, ("gpu",)))
    assert joules == pytest.approx(2 * 7.0 * answer.total.seconds / (5 * 21), rel=1e-12)


def test_systems_without_knobs_say_so() -> None:
    without = [SYSTEMS[name] for name in ("lpddr-only", "hbm-8")]
    with pytest.raises(InputError, match=r"lpddr-only has no knobs; leave out 'alpha'"):
        check_knobs(without, ["alpha"])
    with pytest.raises(InputError, match=r"unknown knob 'alpha' of hilos-.*|'alpah'"):
        check_knobs([SYSTEMS["hilos"], SYSTEMS["inf2"]], ["alpah"])
    check_knobs([SYSTEMS["hilos"], without[0]], ["alpha"])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Leaf("b", "read", 2.0, 5.0, "B"), "changes more than its amount"),
        (Leaf("a", "read", 2.0, 6.0, "B"), "changes more than its amount"),
    ],
)
def test_a_line_is_of_one_resource_at_one_rate(other: Leaf, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        envelope(Leaf("a", "read", 1.0, 5.0, "B"), other)


def test_a_plugin_that_fails_leaves_the_module_that_ran_before() -> None:
    good, bad = Plugin("mine.py", "WORTH = 5"), Plugin("mine.py", "1 / 0")
    good.run()
    try:
        with pytest.raises(InputError, match=r"mine\.py"):
            bad.run()
        assert sys.modules["nearkv_plugin_mine"].WORTH == 5
    finally:
        del sys.modules["nearkv_plugin_mine"]

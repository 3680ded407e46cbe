"""Corners of formulas by hand: units, defaults, what missing memory and hops cost."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from support.systems import SYSTEMS, model
from support.tiny import FINAL_KV, TINY, WORK, estimate

from nearkv.costmodel.algebra.span import Leaf, Real, Span
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import attend_prompt, side
from nearkv.costmodel.mechanisms.serving.cpu_share import at_share, served
from nearkv.costmodel.mechanisms.serving.dimm import imbalance
from nearkv.costmodel.mechanisms.serving.parallel import in_use, kv_token_bytes
from nearkv.costmodel.mechanisms.weights.percent import gpu_breaks, whole_tensors
from nearkv.costmodel.mechanisms.weights.placement import cpu_attention_rate
from nearkv.costmodel.mechanisms.weights.residency import Residency
from nearkv.costmodel.model.capacity import fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.metrics import Answer, _seconds_alone, energy
from nearkv.costmodel.model.plugins import Plugin
from nearkv.costmodel.model.registry import Knob, System, check_knobs
from nearkv.costmodel.model.workload import Spread, Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.placement.placement import place
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study

T4 = load_platform("t4-flexgen").machine()
BLOCK = Workload(1.0, 512.0, 32.0)


def test_gigabytes_of_a_cache_are_its_bytes_in_units_of_1e9() -> None:
    also = estimate("full-cache").also
    parts = [also[f"kv_{tier}_gb"] for tier in ("gpu", "host", "drive")]
    assert sum(parts) == pytest.approx(FINAL_KV / 1e9, rel=1e-12, abs=0)


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
    message = WORK.batch * llm.hidden * llm.activation_width  # a ring of two sends it once
    sent = {place: amount for place, amount in step.traffic().items() if "fabric" in place[0]}
    assert max(sent.values()) == pytest.approx(32 * 2 * message)
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


def test_a_plugin_that_fails_leaves_the_module_that_ran_before() -> None:
    good, bad = Plugin("mine.py", "WORTH = 5"), Plugin("mine.py", "1 / 0")
    good.run()
    try:
        with pytest.raises(InputError, match=r"mine\.py"):
            bad.run()
        assert sys.modules["nearkv_plugin_mine"].WORTH == 5
    finally:
        del sys.modules["nearkv_plugin_mine"]


def test_the_end_that_steps_see_weighs_requests_by_their_answers() -> None:
    """Requests of 100 + 10 and 300 + 30 tokens: E[(s + n) n] / E[n] = (1,100 + 9,900) / 40."""
    spread = Spread(product=1.25, output_square=1.25)
    assert Workload(2.0, 200.0, 20.0, spread=spread).final_seen == 275


@pytest.mark.parametrize(
    ("gpu", "storage", "placed"),
    [
        # Q, K, V and the output are 144, 48, 48 and 144 of 384 elements: their centres lie at
        # 3/16, 7/16, 9/16 and 13/16; those of three matrices of 152 at 1/6, 1/2 and 5/6
        (0.2, 0.0, (144 + 152, 240 + 304, 0)),
        (0.0, 0.2, (0, 240 + 304, 144 + 152)),
        (0.45, 0.45, (192 + 152, 152, 192 + 152)),
    ],
)
def test_whole_tensors_go_where_their_centres_lie(
    gpu: float, storage: float, placed: tuple[float, float, float]
) -> None:
    tiers = whole_tensors(TINY, Residency(gpu, 1 - gpu - storage, storage), 0.0)
    assert (840 * tiers.gpu, 840 * tiers.host, 840 * tiers.storage) == pytest.approx(placed)
    divided = whole_tensors(TINY, Residency(0.25, 0.5, 0.25), 1.0)
    assert (divided.gpu, divided.host, divided.storage) == pytest.approx((0.25, 0.5, 0.25))


def test_two_sub_batches_are_each_half_as_even() -> None:
    """Requests of a sub-batch alone fall on the ranksets; of one batch, all of them."""
    system = SYSTEMS["l3"]
    hw = load_platform(system.platform).machine()
    for interleave, sequences in ((1.0, 32.0), (0.0, 64.0)):
        knobs = {"interleave": interleave, "overlap_comm": 1.0, "placement": 0.0, "policy": 0.0}
        serving = system(hw, model("opt-66b", hw), BLOCK, knobs).serving
        assert serving is not None
        expected = imbalance(sequences, hw.dimm.ranksets, 1.0)
        assert serving.skew(64.0, 1.0) == pytest.approx(expected, rel=1e-12)


def test_of_counts_that_do_not_fit_the_one_that_misses_least_is_taken() -> None:
    """Four devices miss 1 of 5 bytes, fewer miss more; none fits."""

    def devices(hw: object, llm: object, work: Workload, *, count: Real) -> Estimate:
        span = Leaf("a", "read", np.asarray(count) * 1.0, 1.0, "B")
        needed = np.asarray(9.0 - count)
        return Estimate(span, span, fits(host=(needed, 4.0)), work, work.batch)

    knob = Knob("devices", low=1, high=4, kind="count")
    short = System("short", "inf2-a100", "inf2", (), {"count": knob}, devices)
    hw = load_platform("inf2-a100").machine()
    answer = resolve_knobs(short, hw, model("opt-30b"), BLOCK, {"count": "auto"})
    assert np.ravel(answer.knobs["count"]) == [4]
    assert not answer.estimate.fits.ok


def test_models_of_experts_are_marked_by_one() -> None:
    assert [float(model(name).is_moe) for name in ("mixtral-8x7b", "opt-66b")] == [1.0, 0.0]
    assert replace(model("mixtral-8x7b"), experts=2.0).is_moe == 1.0


def test_tokens_per_second_of_decoding_are_blank_where_prompts_ride() -> None:
    serving = Study(("l3",), ("gpt-175b",), traces=("dolphin",))
    alone = Study(("l3",), ("gpt-175b",), batch="4", context="8k")
    assert np.isnan(table(serving)["decode_tok_s"].astype(float)).all()
    assert np.isfinite(table(alone)["decode_tok_s"].astype(float)).all()


def test_only_points_whose_steps_carry_prompts_are_blank() -> None:
    answer = estimate("full-cache")
    hw = load_platform("aipc-4090").machine()
    mixed = Answer(replace(answer, step_carries=np.array([0.0, 5.0])), hw, ())
    alone, carrying = np.ravel(_seconds_alone(mixed, answer.step))
    assert alone == answer.step.seconds
    assert np.isnan(carrying)


def test_tensors_leave_the_drives_for_the_gpu_from_the_other_end() -> None:
    """Of the weights beside the GPU half are stored: a tensor leaves the drives where its middle
    lies at half of what is beside the GPU, and host memory where it lies at all of that."""
    to_gpu = [13 / 16, 9 / 16, 7 / 16, 3 / 16, 5 / 6, 1 / 2, 1 / 6]
    hw = load_platform("t4-flexgen").machine()
    stated = {"ssd_weights": 0.5, "gpu_weights": 0.0}
    breaks = [float(share) for share in gpu_breaks(hw, TINY, WORK, stated)]
    assert sorted(breaks[:7]) == pytest.approx(sorted(to_gpu))
    assert sorted(breaks[7:]) == pytest.approx(sorted(1 - 2 * (1 - share) for share in to_gpu))


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
                served(roomy.with_values({"host.memory": held * longest}), llm, work).gpu.count
            )[0]
        )
        for held in (2.5, 3.5, 100.0)
    ]
    assert counts == [2 * tp, 3 * tp, 4 * tp]

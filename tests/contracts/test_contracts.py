"""Contracts of every system: conservation, no double booking, grid = points, monotone, limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.systems import SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.shares.minimum import minimise
from nearkv.sweeps.validation.contracts import (
    CONTRACTS,
    ContractCase,
    hardware_addresses,
    violations,
)

MODELS = ["opt-66b", "mixtral-8x7b", "glam-143b", "gpt-oss-120b", "deepseek-v3"]
"""Layers that are alike, with experts, and of several types."""
CAPACITIES = {"count", "memory", "capacity"}
CONTENTS = {
    "weights",
    "weights in transfer",
    "experts",
    "activations",
    "activations and buffers",
    "KV cache",
    "KV cache and states",
    "X",
    "recurrent states",
    "K and V of the layer",
    "KV cache of a prompt",
    "shared KV cache",
    "activations of all prompts",
    "scores of one prompt",
    "latents in transfer",
    "copies of layers",
    "copies of keys",
    "buffers",
}
GREEDY = {"h2m2", "expert-offload"}
"""More bandwidth lets Algorithm 1 take more for attention; see `test_more_hardware`. A host that
outpaces the GPU in steps takes experts from it, which prompts then miss."""


def solved_shares(system: System) -> list[str]:
    shares = [name for name, knob in system.knobs.items() if knob.kind == "share"]
    return [name for name in shares if system.knobs[name].default == "auto"]


def evaluate(system: System, hw: Machine, llm: LLM, work: Workload) -> Estimate:
    return system(hw, llm, work, middle(system))


@pytest.mark.parametrize("name", MODELS)
def test_every_contract_holds_at_the_middle_of_every_knob(
    system: System, work: Workload, name: str
) -> None:
    trial = ContractCase(system, machine_of(system), model(name), work, middle(system))
    assert [sentence for contract in CONTRACTS for sentence in contract(trial)] == []


@pytest.mark.slow
def test_every_system_keeps_what_a_system_of_ones_own_is_checked_for(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nearkv systems check` at the knobs that it solves, on fewer models and random changes.

    Layers that are alike have grouped heads; those of experts are of several types where the
    system models these.
    """
    monkeypatch.setattr("nearkv.sweeps.validation.contracts.CHANGES", 12)
    experts = "gpt-oss-20b" if "window" in system.attends else "mixtral-8x7b"
    broken = violations(system, ("qwen2.5-32b", experts))
    if system.name in GREEDY:
        broken = [sentence for sentence in broken if "with more of" not in sentence]
    assert broken == []


def test_a_platform_of_ones_own_is_read_anew_by_each_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearkv.sweeps.validation.contracts.CHANGES", 1)
    own = replace(SYSTEMS["lpddr-only"], platform=str(tmp_path / "mine.toml"))
    Path(own.platform).write_text('base = "gh-asymmetric"\nwithout = ["lpddr"]\n')
    assert "lpddr" in " ".join(violations(own, ("opt-66b",)))
    Path(own.platform).write_text('base = "gh-asymmetric"\n')
    assert violations(own, ("opt-66b",)) == []


@pytest.mark.parametrize(
    ("name", "flash", "link"),
    [
        ("flexgen-ssd", "ssd.flash", "ssd_link"),
        ("flexgen-16ssd", "raid.flash", "uplink"),
        ("flexgen-raid", "ssd.flash", "uplink"),
    ],
)
def test_what_leaves_storage_arrives_over_its_link(
    name: str, flash: str, link: str, work: Workload
) -> None:
    """Bytes of drives that only a link reaches equal those on that link, in both phases."""
    estimate = evaluate(SYSTEMS[name], machine_of(SYSTEMS[name]), model("opt-175b"), work)
    for span in (estimate.prefill, estimate.step):
        traffic = span.traffic()
        for verb, direction in (("read", "in"), ("write", "out")):
            arrived = traffic.get((f"{link}.{direction}", "move"), 0.0)
            assert traffic.get((flash, verb), 0.0) == pytest.approx(arrived)


def test_what_a_system_caches_in_prefill_is_what_it_holds(work: Workload) -> None:
    """KV bytes written in prefill and in all steps are the bytes that the drive must hold."""
    hw, llm = machine_of(SYSTEMS["flexgen-ssd"]), model("opt-66b")
    system = SYSTEMS["flexgen-ssd"]
    estimate = system(hw, llm, work, {**middle(system), "ssd_weights": 0.0})
    prefill = estimate.prefill.traffic()["ssd.flash", "write"]
    step = estimate.step.traffic()["ssd.flash", "write"]
    assert prefill + work.output * step == pytest.approx(estimate.fits.tiers["ssd"][0])


def test_every_memory_names_what_lies_in_it(system: System, work: Workload) -> None:
    held = evaluate(system, machine_of(system), model("opt-66b"), work).fits
    assert held.contents.keys() == held.tiers.keys()
    for memory, contents in held.contents.items():
        assert contents.keys() <= CONTENTS
        assert sum(contents.values()) == pytest.approx(held.tiers[memory][0], rel=1e-12)


def test_shares_of_attention_are_shares_of_one(system: System, work: Workload) -> None:
    shares = evaluate(system, machine_of(system), model("opt-66b"), work).attention.values()
    assert np.all([np.greater_equal(share, -1e-12) for share in shares])
    assert np.all(np.abs(sum(shares) - 1) < 1e-12)


def test_traffic_and_busy_agree_on_every_leaf(system: System, work: Workload) -> None:
    step = evaluate(system, machine_of(system), model("opt-66b"), work).step
    by_leaf: dict[str, Real] = {}
    for _, leaf, times in step.leaves():
        by_leaf[leaf.resource] = by_leaf.get(leaf.resource, 0.0) + times * leaf.amount / leaf.rate
    assert by_leaf == pytest.approx(step.busy())


@settings(max_examples=4)
@given(
    points=st.lists(
        st.tuples(st.integers(1, 64), st.integers(256, 131072), st.integers(1, 64)),
        min_size=16,
        max_size=16,
    ),
    name=st.sampled_from(MODELS),
)
@pytest.mark.slow
def test_no_faster_with_more_work(points: list[tuple[int, int, int]], name: str) -> None:
    """Each design point as it is, with a larger batch and with a longer prompt, as one grid."""
    batch, prompt, more = np.array(points, float).T
    batches = np.stack([batch, batch + more, batch])
    prompts = np.stack([prompt, prompt, prompt * (1 + more)])
    for system in SYSTEMS.values():
        hw, llm = machine_of(system), model(name)
        estimate = evaluate(system, hw, llm, Workload(batches, prompts, 64.0))
        step, prefill, batch_run = (
            np.broadcast_to(number, batches.shape)
            for number in (estimate.step.seconds, estimate.prefill.seconds, estimate.batch_run)
        )
        assert np.all(step[1:] >= step[0] * (1 - 1e-9)), system.name
        # fewer that run at once share their prompts' iterations with fewer others
        fewer = batch_run[1:] < batch_run[0]
        assert np.all(fewer | (prefill[1:] >= prefill[0] * (1 - 1e-9))), system.name


def test_infinite_rates_leave_nothing_but_delays(system: System, work: Workload) -> None:
    hw = machine_of(system)
    addresses = hardware_addresses(hw)
    rates = {a: np.inf for a in addresses if a.partition(".")[2] not in CAPACITIES}
    step = evaluate(system, hw.with_values(rates), model("opt-66b"), work).step
    waits = sum((t * leaf.seconds for _, leaf, t in step.leaves() if leaf.verb == "wait"), 0.0)
    assert step.seconds <= waits * (1 + 1e-9)


def test_a_choice_is_one_of_its_names(system: System) -> None:
    for name, knob in system.knobs.items():
        assert knob.kind != "choice" or (knob.low, knob.high) == (0, len(knob.choices) - 1), name


@pytest.mark.slow
def test_decode_at_the_mean_context_equals_the_sum_over_steps(system: System) -> None:
    output, prompt = 65, 8192.0
    hw, llm, work = machine_of(system), model("opt-66b"), Workload(4.0, prompt, float(output))
    steps = evaluate(system, hw, llm, work.at_context(prompt + np.arange(1.0, output)))
    mean = evaluate(system, hw, llm, work)
    assert np.sum(steps.step.seconds) == pytest.approx((output - 1) * mean.step.seconds, rel=0.02)


@pytest.mark.parametrize(
    "name", sorted(name for name, system in SYSTEMS.items() if solved_shares(system))
)
def test_solved_shares_beat_every_rule_and_a_fine_grid(name: str, work: Workload) -> None:
    system = SYSTEMS[name]
    hw, llm, fine = machine_of(system), model("opt-66b"), np.linspace(0.0, 1.0, 1001)
    for share in solved_shares(system):
        requested: dict[str, Real | str] = {**middle(system), share: "auto"}
        solved = resolve_knobs(system, hw, llm, work, requested)
        rules = system.knobs[share].rules.values()
        for tried in [fine, *[rule(hw, llm, work, middle(system)) for rule in rules]]:
            other = system(hw, llm, work, {**middle(system), share: tried})
            feasible = np.where(other.fits.ok, other.step.seconds, np.inf)
            assert np.all(solved.estimate.step.seconds <= feasible * (1 + 1e-9))


@pytest.mark.slow
def test_amounts_are_affine_in_every_solved_share(system: System, work: Workload) -> None:
    hw, llm = machine_of(system), model("opt-66b")
    for name in solved_shares(system):
        low, between, high = (
            system(hw, llm, work, {**middle(system), name: share}).step
            for share in (0.0, 0.37, 1.0)
        )
        leaves = zip(low.leaves(), between.leaves(), high.leaves(), strict=True)
        for (path, start, _), (_, leaf, _), (_, end, _) in leaves:
            interpolated = start.amount + 0.37 * (end.amount - start.amount)
            assert leaf.amount == pytest.approx(interpolated), path
        assert minimise(low, high).gap <= 1e-9

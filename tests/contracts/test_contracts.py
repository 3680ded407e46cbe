"""Contracts of every system: conservation, no double booking, grid = points, monotone, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.systems import SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.hardware.schema import PART_TYPES
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.shares.balance import minimise

MODELS = [
    "opt-30b",
    "opt-66b",
    "qwen2.5-32b",
    "mixtral-8x7b",
    "glam-143b",
    "gpt-oss-120b",
    "deepseek-v3",
]
# Nodes split a fixed number of GPUs between them; more nodes are not more hardware.
NOT_CAPACITY = {("cluster_host", "count")}


def solved_shares(system: System) -> list[str]:
    shares = [name for name, knob in system.knobs.items() if knob.kind == "share"]
    return [name for name in shares if system.knobs[name].default == "auto"]


def evaluate(system: System, hw: Machine, llm: LLM, work: Workload) -> Estimate:
    return system(hw, llm, work, middle(system))


@pytest.mark.parametrize("name", MODELS)
def test_seconds_are_attributed_once_and_none_is_booked_twice(
    system: System, work: Workload, name: str
) -> None:
    estimate = evaluate(system, machine_of(system), model(name), work)
    for span in (estimate.prefill, estimate.step, estimate.total):
        assert sum(span.breakdown().values()) == pytest.approx(span.seconds)
        for resource, busy in span.busy().items():
            assert busy <= span.seconds * (1 + 1e-9), resource


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
    estimate = evaluate(SYSTEMS["flexgen-ssd"], hw, llm, work)
    prefill = estimate.prefill.traffic()["ssd.flash", "write"]
    step = estimate.step.traffic()["ssd.flash", "write"]
    assert prefill + work.output * step == pytest.approx(estimate.fits.tiers["ssd"][0])


def test_traffic_and_busy_agree_on_every_leaf(system: System, work: Workload) -> None:
    step = evaluate(system, machine_of(system), model("opt-66b"), work).step
    by_leaf: dict[str, Real] = {}
    for _, leaf, times in step.leaves():
        by_leaf[leaf.resource] = by_leaf.get(leaf.resource, 0.0) + times * leaf.amount / leaf.rate
    assert by_leaf == pytest.approx(step.busy())


@pytest.mark.slow
def test_a_grid_equals_its_points(system: System) -> None:
    hw = machine_of(system)
    batches, prompts = np.array([1.0, 3.0, 40.0]), np.array([2048.0, 131072.0])
    llm, knobs = model("mixtral-8x7b"), middle(system)
    mesh = system(hw, llm, Workload(batches[:, None], prompts[None, :], 64.0), knobs)
    for i, batch in enumerate(batches):
        for j, prompt in enumerate(prompts):
            point = system(hw, llm, Workload(float(batch), float(prompt), 64.0), knobs)
            for span, one in (
                (mesh.prefill, point.prefill),
                (mesh.step, point.step),
                (mesh.total, point.total),
            ):
                assert np.broadcast_to(span.seconds, (3, 2))[i, j] == one.seconds
            assert np.broadcast_to(mesh.fits.ok, (3, 2))[i, j] == point.fits.ok


def test_scalar_in_scalar_out(system: System, work: Workload) -> None:
    estimate = evaluate(system, machine_of(system), model("opt-66b"), work)
    assert np.ndim(estimate.total.seconds) == 0


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


def resources(hw: Machine) -> list[tuple[str, str]]:
    """All rates, capacities and counts of a machine, as (role, key)."""
    return [
        (role, key)
        for role, part in hw.roles.items()
        for key in part.values
        if is_resource(key) and (role, key) not in NOT_CAPACITY
    ]


def is_resource(key: str) -> bool:
    """Whether more of a number means more hardware."""
    units = {keys[key].unit for keys in PART_TYPES.values() if key in keys}
    rates = {"B/s", "FLOP/s", "Hz", "T/s"}
    return bool(units & rates) or key in ("count", "memory", "capacity")


@pytest.mark.slow
def test_no_slower_with_more_hardware(system: System, work: Workload) -> None:
    """Each number as it is, twice and 16 times as large."""
    hw, llm = machine_of(system), model("opt-66b")
    factors = np.array([1.0, 2.0, 16.0])
    for role, key in resources(hw):
        more = hw.with_values({f"{role}.{key}": hw[role].values[key] * factors})
        estimate = evaluate(system, more, llm, work)
        for span in (estimate.step, estimate.prefill):
            base, *better = np.broadcast_to(span.seconds, factors.shape)
            assert np.all(np.array(better) <= base * (1 + 1e-9)), f"{role}.{key}"


def test_infinite_rates_leave_nothing_but_delays(system: System, work: Workload) -> None:
    hw = machine_of(system)
    rates = {
        f"{r}.{k}": np.inf for r, k in resources(hw) if k not in ("count", "memory", "capacity")
    }
    step = evaluate(system, hw.with_values(rates), model("opt-66b"), work).step
    waits = sum((t * leaf.seconds for _, leaf, t in step.leaves() if leaf.verb == "wait"), 0.0)
    assert step.seconds <= waits * (1 + 1e-9)


def test_a_choice_is_one_of_its_names(system: System) -> None:
    for name, knob in system.knobs.items():
        assert knob.kind != "choice" or (knob.low, knob.high) == (0, len(knob.choices) - 1), name


def test_an_empty_batch_costs_nothing(system: System) -> None:
    hw, work = machine_of(system), Workload(0.0, 4096.0, 64.0)
    for name in ("opt-66b", "mixtral-8x7b"):
        estimate = evaluate(system, hw, model(name), work)
        assert estimate.step.seconds == 0.0
        assert np.isfinite(estimate.total.seconds)


@pytest.mark.slow
def test_decode_at_the_mean_context_equals_the_sum_over_steps(system: System) -> None:
    output, prompt = 65, 8192.0
    hw, llm, work = machine_of(system), model("opt-66b"), Workload(4.0, prompt, float(output))
    steps = evaluate(system, hw, llm, work.at(prompt + np.arange(1.0, output)))
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

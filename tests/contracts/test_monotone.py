"""More work takes no less time, more hardware no more, but where the catalogue lists it."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from support.drawing import POINTS, Design, designs, goods, is_good, seeded, value_of
from support.systems import SYSTEMS, machine_of, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.registry import MONOTONE_COLUMNS, System, find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.knobs import resolve_knobs

CASES = int(os.environ.get("NEARKV_CASES", "10"))
"""Design points a system: every axis of each is evaluated, so few in the tests."""
CLOSE = 1e-8
WORK = ("batch", "context", "output_tokens")


def times(estimate: Estimate) -> dict[str, Real]:
    spans = (estimate.prefill, estimate.step, estimate.total)
    return dict(zip(MONOTONE_COLUMNS, [span.seconds for span in spans], strict=True))


def unlisted(system: System, axes: list[str], less: Estimate, more: Estimate) -> list[str]:
    """Measures that fall from one answer to the next along an axis, one a row, and are not listed.

    Designs that do not fit are left out.
    """
    sentences = []
    for measure in MONOTONE_COLUMNS:
        falls = times(more)[measure] < times(less)[measure] * (1 - CLOSE)
        where = np.broadcast_to(less.fits.ok & more.fits.ok & falls, (len(axes), POINTS))
        for axis, points in zip(axes, where, strict=True):
            if np.any(points) and system.is_monotone(measure, axis):
                sentences.append(f"{measure} in {axis} at {np.flatnonzero(points)}")
    return sentences


@pytest.mark.parametrize("name", sorted(SYSTEMS))
@settings(seeded, max_examples=max(CASES // POINTS, 1))
@given(st.data())
@pytest.mark.slow
def test_what_is_not_listed_is_monotone_at_default_knobs(name: str, data: st.DataObject) -> None:
    """Each number of the machine and of the work in turn, as one more axis of a grid."""
    drawn: Design = data.draw(designs(name))
    design = replace(drawn, knobs=dict(drawn.system.defaults))
    assume(not design.is_refused)
    step = data.draw(st.sampled_from([1.0, 2.0, 30.0]))
    before, work, system = design.estimate, design.work, design.system
    more = step * np.eye(3)[:, :, np.newaxis]
    grown = Workload(work.batch + more[0], work.prompt * (1 + more[1]), work.output + more[2])
    assert not unlisted(system, [*WORK], before, replace(design, work=grown).estimate)

    addresses = [address for address in goods(name) if is_good(name, address)]
    factors = 1 + step * np.eye(len(addresses))[:, :, np.newaxis]
    values = [value_of(design.hw, address) for address in addresses]
    larger = [value * factor for value, factor in zip(values, factors, strict=True)]
    after = design.changed(dict(zip(addresses, larger, strict=True))).estimate
    assert not unlisted(system, addresses, after, before)
    assert not np.any(before.fits.ok & ~np.asarray(after.fits.fit))


def answer_of(name: str, llm: str, work: Workload, **numbers: Real) -> Estimate:
    system = find_system(name)
    hw = machine_of(system).with_values(numbers)
    return resolve_knobs(system, hw, model(llm), work, dict(system.defaults)).estimate


def test_a_context_that_no_longer_fits_at_once_may_be_faster() -> None:
    """Eight requests of 51,616 tokens run at once; with some more tokens each, fewer at a time."""
    contexts = np.array([51616.0, 51648.0])
    answer = answer_of("hbm-pim", "llama2-70b", Workload(8.0, contexts, 64.0))
    assert np.all(np.equal(answer.batch_run, 8) == [True, False])
    assert np.diff(answer.step.seconds) < 0
    assert not find_system("hbm-pim").is_monotone("step_ms", "context")


def test_a_larger_ring_may_be_slower() -> None:
    """A small model on one GPU has no all-reduce; on two, a step of one sequence is mostly that."""
    numbers: dict[str, Real] = {"gpu.count": np.array([1.0, 8.0]), "nvlink.hop": 1e-3}
    small = {"policy.weights_per_gpu": 2e9, **numbers}
    answer = answer_of("rank-pim", "llama2-7b", Workload(1.0, 1024.0, 64.0), **small)
    assert np.diff(answer.step.seconds) > 0
    assert not find_system("rank-pim").is_monotone("step_ms", "gpu.count")


def test_more_gpus_never_slow_a_batch_whose_split_is_chosen() -> None:
    counts: dict[str, Real] = {"gpu.count": np.arange(1.0, 17.0), "nvlink.latency": 1e-3}
    for name in ("llama2-7b", "mixtral-8x7b"):
        answer = answer_of("gpu", name, Workload(16.0, 4096.0, 64.0), **counts)
        batches = np.asarray(answer.total.seconds)[np.asarray(answer.fits.ok)]
        assert np.all(np.diff(batches) <= 1e-12)
    assert find_system("gpu").is_monotone("total_s", "gpu.count")


def test_axes_are_work_or_numbers_of_the_machine() -> None:
    for system in SYSTEMS.values():
        roles = machine_of(system).roles.items()
        numbers = {f"{role}.{key}" for role, part in roles for key in part.values}
        for reversal in system.reversals:
            assert {*reversal.measures} <= {*MONOTONE_COLUMNS, "status"}
            assert {*reversal.axes} <= {*WORK, "any", *numbers}, system.name

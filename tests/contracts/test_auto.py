"""`auto` is the best: against values drawn from a knob's whole range, on random machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from support.drawing import POINTS, Design, Points, designs, seeded
from support.systems import SYSTEMS

from nearkv.costmodel.algebra.span import Booleans
from nearkv.costmodel.model.registry import Knob
from nearkv.costmodel.model.workload import ENDLESS_TOKENS, Arrivals
from nearkv.solvers.objective import objective

VALUES = 33
CLOSE = 1e-8
NOT_BEST = {"mapping-greedy", "mapping-a-major", "mapping-q-major", "mapping-f-major"}
"""Policies of the H2M2 paper, which are what their systems are named after."""
KNOBS = [
    (system.name, knob.solver or name, knob)
    for system in SYSTEMS.values()
    for name, knob in system.knobs.items()
    if not (knob.sets or knob.is_given) and knob.solver not in NOT_BEST
]
CASES = sorted({(system, solved) for system, solved, _ in KNOBS})
"""A system and a knob, or the solver of several that are solved together."""
ONCE = sorted(set({id(knob): (system, solved) for system, solved, knob in KNOBS}.values()))
"""Each knob with one of the systems that share it."""
QUEUES = ("gpu", "cpu-offload", "l3", "hbm-pim", "rank-pim")
"""Systems that answer requests at a rate; users may ask any."""


def drawn(points: Points, knob: Knob) -> np.ndarray:
    """Random values of a knob at every design point: (values, points)."""
    return np.stack([points.knob(knob) for _ in range(VALUES)])


def together(design: Design, name: str) -> list[str]:
    """The knob of a name, or all knobs of a solver."""
    knobs = design.system.knobs
    return [name] if name in knobs else [own for own in knobs if knobs[own].solver == name]


def with_auto(design: Design, names: list[str], points: Points) -> Design:
    """The design with some knobs at `auto`; others at their defaults at half the draws."""
    asked = {**design.knobs}
    if points.random.integers(0, 2):
        asked |= design.system.defaults
    for other, value in asked.items():
        # two shares are not solved together
        knob = design.system.knobs[other]
        is_auto = isinstance(value, str) and value == "auto"
        if is_auto and knob.kind in ("share", "number") and other not in names:
            asked[other] = design.knobs[other]
    if share := design.system.knobs[names[0]].share:
        # only the first value of the choice keeps a share that is stated
        asked[share] = design.system.defaults[share]
    return replace(design, knobs=asked).having(**dict.fromkeys(names, "auto"))


def beaten(best: Design, other: Design, tolerance: float = CLOSE) -> Booleans:
    """Where another choice has an answer and the best has none, or one that costs more."""
    cost = objective(best.work)
    ours, theirs = best.estimate, other.estimate
    least = np.asarray(cost(theirs))
    costlier = np.greater(cost(ours), least + tolerance * np.abs(least))
    where: Booleans = theirs.fits.ok & (~np.asarray(ours.fits.ok) | costlier)
    return where


def arriving(design: Design, points: Points, at_a_rate: bool) -> Design:
    """Requests at about what one replica answers, or users, with limits that some choices keep."""
    work, random = design.work, points.random
    total = np.asarray(design.estimate.total.seconds)
    latency = design.estimate.latency
    slack = 10 ** random.uniform(-0.5, 1, (2, POINTS))
    limits = {"ttft_slo": slack[0] * latency.ttft, "tpot_slo": slack[1] * latency.tpot}
    # shares of one batch are solved for its seconds, which their notes say
    if random.integers(0, 2) or design.system.name not in QUEUES:
        limits = {}
    if at_a_rate:
        rate = 10 ** random.uniform(-2, 0.5, POINTS) / np.where(design.estimate.fits.ok, total, 1.0)
        arrivals = Arrivals(rate=rate, **limits)
        return replace(design, work=replace(work, batch=ENDLESS_TOKENS, arrivals=arrivals))
    return replace(design, work=replace(work, arrivals=Arrivals(users=work.batch, **limits)))


def compare(name: str, knob: str, data: st.DataObject, load: str = "") -> None:
    design = data.draw(designs(name))
    points = data.draw(st.integers(0, 2**32 - 1).map(np.random.default_rng).map(Points))
    if data.draw(st.booleans()):  # prompts alone, or nearly
        work = replace(design.work, output=points.wholes(1, 8))
        design = replace(design, work=work)
    if load:
        assume(not design.is_refused)
        design = arriving(design, points, load == "rate")
    names = together(design, knob)
    if names != [
        knob
    ]:  # the mapping of an answer of one token is that of the step that would follow
        design = replace(
            design, work=replace(design.work, output=np.maximum(design.work.output, 2))
        )
    best = with_auto(design, names, points)
    assume(not best.is_refused)
    values = {own: drawn(points, best.system.knobs[own]) for own in names}
    other = best.having(**values)
    assume(not other.is_refused)
    where = beaten(best, other)
    assert not np.any(where), (best.knobs, best.resolved.knobs, values)


@pytest.mark.parametrize(("name", "knob"), ONCE)
@settings(seeded, max_examples=1)
@given(st.data())
def test_no_value_beats_auto(name: str, knob: str, data: st.DataObject) -> None:
    compare(name, knob, data)


SOME_LOADS = [
    ("gpu", "attention", "users"),
    ("cpu-offload", "cpu_share", "rate"),
    ("l3", "homes", "rate"),
    ("hilos", "weights", "users"),
]
LOADS = [
    (*case, load)
    for case in CASES
    for load in ("users", "rate")
    if load == "users" or case[0] in QUEUES
]


@pytest.mark.parametrize(("name", "knob", "load"), SOME_LOADS)
@settings(seeded, max_examples=1)
@given(st.data())
def test_no_value_beats_auto_where_requests_arrive(
    name: str, knob: str, load: str, data: st.DataObject
) -> None:
    compare(name, knob, data, load)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "knob"), CASES)
@settings(seeded, max_examples=200 // POINTS)
@given(st.data())
def test_no_value_beats_auto_on_200_machines(name: str, knob: str, data: st.DataObject) -> None:
    compare(name, knob, data)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "knob", "load"), LOADS)
@settings(seeded, max_examples=20 // POINTS)
@given(st.data())
def test_no_value_beats_auto_on_20_machines_where_requests_arrive(
    name: str, knob: str, load: str, data: st.DataObject
) -> None:
    compare(name, knob, data, load)

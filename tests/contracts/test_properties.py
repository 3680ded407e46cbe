"""Properties of every system on any machine, with any model, work and knobs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from support.drawing import (
    POINTS,
    RATES,
    Design,
    Values,
    designs,
    goods,
    is_good,
    key_of,
    most_lost,
    seeded,
)
from support.systems import SYSTEMS

from nearkv.costmodel.algebra.span import Booleans, Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.registry import System

warnings.simplefilter("error")
CLOSE = 1e-9
RULE_LOSS = 0.25
"""What the rule that maps prompts may lose on another machine [1]."""
MOST_TRIED = 1024
"""Values up to which every one of a knob is searched."""
RIDING = {"l3"}
"""Prompts that come later ride in decode steps: what fits at once decides which part they are."""
every_system = pytest.mark.parametrize("name", sorted(SYSTEMS))


def all_times(estimate: Estimate) -> list[Real]:
    return [estimate.prefill.seconds, estimate.step.seconds, estimate.total.seconds]


def places(where: Booleans) -> list[int]:
    """The design points that are marked; an assertion on them shows which."""
    return list(np.flatnonzero(np.broadcast_to(where, POINTS)))


@every_system
@seeded
@given(st.data())
@pytest.mark.slow
def test_every_property_holds_at_any_design(name: str, data: st.DataObject) -> None:
    design = data.draw(designs(name))
    assume(not design.is_refused)
    times_are_finite_and_add_up(design.estimate)
    a_clock_twice_as_fast_takes_half_the_time(design)
    more_of_anything_good_never_hurts(design, data.draw(st.integers(2, 9)))
    for knob in solved_alone(name, data):
        no_value_beats_a_solved_knob_or_its_bound(design, knob)


def times_are_finite_and_add_up(estimate: Estimate) -> None:
    for span in (estimate.prefill, estimate.step, estimate.total):
        assert np.all(np.isfinite(span.seconds))
        assert not places(np.less(span.seconds, 0))
        added = sum(span.breakdown().values())
        assert not places(~np.isclose(added, span.seconds, rtol=CLOSE))
        for resource, busy in span.busy().items():
            too_long = np.greater(busy, span.seconds * (1 + CLOSE))
            assert not places(too_long | np.less(busy, 0)), resource
    reasons = np.array(estimate.fits.reasons)[estimate.fits.reason]
    assert not places(~np.asarray(estimate.fits.ok) & (reasons == ""))


def a_clock_twice_as_fast_takes_half_the_time(design: Design) -> None:
    """All rates doubled, all delays halved: nothing else in a machine has a time in it."""
    stated = design.stated
    faster: dict[str, Real] = {}
    for address, value in stated.numbers().items():
        unit = key_of(design.system.name, address).unit
        if unit in RATES:
            faster[address] = 2 * value
        elif unit == "s":
            faster[address] = value / 2
    slow_times = all_times(design.estimate)
    fast_times = all_times(stated.changed(faster).estimate)
    for slow, fast in zip(slow_times, fast_times, strict=True):
        assert not places(~np.isclose(fast, slow / 2, rtol=CLOSE))


def more_of_anything_good_never_hurts(design: Design, factor: int) -> None:
    """Each rate, capacity and count in turn, as one more axis of a grid, where it fits before."""
    name, before = design.system.name, design.estimate
    addresses = [address for address in goods(name) if is_good(name, address)]
    factors = 1.0 + (factor - 1.0) * np.eye(len(addresses))
    numbers = design.numbers()
    more: dict[str, Real] = {}
    for address, column in zip(addresses, factors.T, strict=True):
        more[address] = numbers[address] * column[:, np.newaxis]
    after = design.stated.changed(more).estimate
    fits = before.fits.ok
    # a larger count may be one that heads do not divide over, which is no lack of memory
    assert not blamed(addresses, fits & ~np.asarray(after.fits.fit))
    lost = np.array([most_lost(name, address) for address in addresses])[:, np.newaxis]
    comparable = fits & np.equal(after.batch_run, before.batch_run)
    most_seconds = before.step.seconds * (1 + lost + CLOSE) + (np.inf if name in RIDING else 0)
    assert not blamed(addresses, comparable & np.greater(after.step.seconds, most_seconds))
    # prompts have a mapping of their own, which a rule picks that is no optimum
    lost = lost + (RULE_LOSS if joint_knobs(name) else 0)
    most_seconds = before.total.seconds * (1 + lost + CLOSE)
    assert not blamed(addresses, comparable & np.greater(after.total.seconds, most_seconds))


def blamed(addresses: list[str], where: Booleans) -> list[tuple[str, list[int]]]:
    """The numbers of which more is marked, and at which design points."""
    marked = np.broadcast_to(where, (len(addresses), POINTS))
    rows = zip(addresses, map(places, marked), strict=True)
    return [(address, points) for address, points in rows if points]


def solved_alone(name: str, data: st.DataObject) -> list[str]:
    """Every share that `auto` solves alone, and one of the other knobs that it searches."""
    shares, others = [], []
    for knob_name, knob in SYSTEMS[name].knobs.items():
        if knob.sets or knob.solver or knob.is_given:
            continue
        if knob.is_continuous:
            shares.append(knob_name)
        elif knob.high - knob.low <= MOST_TRIED:
            others.append(knob_name)
    return shares + data.draw(st.lists(st.sampled_from(others), max_size=1)) if others else shares


def values_of(system: System, name: str) -> Values:
    """A fine grid of a share, every value of a choice, 40 of a count, as one more axis."""
    knob = system.knobs[name]
    values = np.linspace(knob.low, knob.high, 401)
    if not knob.is_continuous:
        values = np.unique(np.linspace(knob.low, knob.high, 40).round())
    return values[:, np.newaxis]


def no_value_beats_a_solved_knob_or_its_bound(design: Design, knob: str) -> None:
    stated, share = design.stated, design.system.knobs[knob].share
    if share:  # a share that is stated is a minimum, which the first value alone keeps
        stated = stated.having(**{share: 0.0})
    solved = stated.having(**{knob: "auto"}).resolved
    grid = stated.having(**{knob: values_of(design.system, knob)}).estimate
    if share:
        # with the share that it leaves open it is of least total_s, step by step it may lose
        no_value_takes_less_in_all(solved.estimate, grid)
        return
    seconds = np.where(grid.fits.ok, grid.total.seconds, np.inf)
    lowest = np.min(np.broadcast_to(seconds, (*seconds.shape[:1], POINTS)), axis=0)
    some_fits = np.isfinite(lowest)
    assert not places(some_fits & ~np.asarray(solved.estimate.fits.ok)), knob
    assert not places(solved.estimate.total.seconds > lowest * (1 + CLOSE)), knob
    if solved.choice is not None:
        assert not places(some_fits & (solved.choice.bound > lowest * (1 + CLOSE))), knob
        same = np.isclose(solved.choice.seconds, solved.estimate.total.seconds, rtol=1e-7)
        assert not places(some_fits & ~same), knob


def no_value_takes_less_in_all(solved: Estimate, grid: Estimate) -> None:
    seconds = np.where(grid.fits.ok, grid.total.seconds, np.inf)
    lowest = np.min(np.broadcast_to(seconds, (*seconds.shape[:1], POINTS)), axis=0)
    assert not places(np.isfinite(lowest) & ~np.asarray(solved.fits.ok))
    assert not places(solved.fits.ok & (solved.total.seconds > lowest * (1 + CLOSE)))


def joint_knobs(name: str, *solvers: str) -> list[str]:
    """Knobs that are solved together, by one of some solvers or by any."""
    knobs = SYSTEMS[name].knobs.items()
    joint = [(knob_name, knob.solver) for knob_name, knob in knobs if knob.solver]
    return [knob_name for knob_name, solver in joint if solver in solvers or not solvers]


EXACT = ("mapping-exact", "mapping-layers")


@seeded
@given(st.data())
def test_no_mapping_beats_the_exact_one(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in SYSTEMS if joint_knobs(name, *EXACT)]))
    design: Design = data.draw(designs(name))
    names = joint_knobs(name)
    solved = design.having(**dict.fromkeys(names, "auto")).resolved.estimate
    most = float(design.llm.layers if "layers" in names[0] else design.llm.heads)
    shares = data.draw(st.lists(st.integers(0, 1000), min_size=len(names), max_size=len(names)))
    units = {name: np.round(share / 1000 * most) for name, share in zip(names, shares, strict=True)}
    other = design.having(**units).estimate
    assert not places(other.fits.ok & ~np.asarray(solved.fits.ok))
    faster = np.less(other.step.seconds * (1 + CLOSE), solved.step.seconds)
    assert not places(other.fits.ok & faster)

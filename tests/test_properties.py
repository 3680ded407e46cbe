"""What holds for every system on any machine, with any model, work and knobs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from conftest import SYSTEMS
from drawing import RATES, SHARES, Design, designs, goods, hurts, key_of, seeded
from hypothesis import assume, given
from hypothesis import strategies as st

from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.registry import System
from nearkv.costmodel.span import Real
from nearkv.solvers.search import Mask

warnings.simplefilter("error")
CLOSE = 1e-9
RULE_LOSS = 0.05
"""What the rule that maps prompts may lose on another machine [1]."""
MOST_TRIED = 1024
"""Values up to which every one of a knob is searched."""
every_system = pytest.mark.parametrize("name", sorted(SYSTEMS))


def all_times(estimate: Estimate) -> list[Real]:
    return [estimate.prefill.seconds, estimate.step.seconds, estimate.total.seconds]


@every_system
@seeded
@given(st.data())
def test_every_property_holds_at_any_design(name: str, data: st.DataObject) -> None:
    design = data.draw(designs(name))
    assume(not design.is_refused)
    times_are_finite_and_add_up(design.estimate)
    a_clock_twice_as_fast_takes_half_the_time(design)
    more_of_anything_good_never_hurts(design, data)
    for knob in solved_alone(name, data):
        no_value_beats_a_solved_knob_or_its_bound(design, knob)


def times_are_finite_and_add_up(estimate: Estimate) -> None:
    for span in (estimate.prefill, estimate.step, estimate.total):
        assert np.isfinite(span.seconds)
        assert span.seconds >= 0
        assert np.isclose(sum(span.breakdown().values()), span.seconds, rtol=CLOSE)
        for resource, busy in span.busy().items():
            assert 0 <= busy <= span.seconds * (1 + CLOSE), resource
    if not estimate.fits.ok:
        assert estimate.fits.reasons[int(estimate.fits.reason)]


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
        assert np.isclose(fast, slow / 2, rtol=CLOSE)


def more_of_anything_good_never_hurts(design: Design, data: st.DataObject) -> None:
    """Each rate, capacity and count in turn, as one point of a grid."""
    name, before = design.system.name, design.estimate
    factor = data.draw(st.integers(2, 9))
    if not before.fits.ok:
        return
    addresses = [address for address in goods(name) if not hurts(name, address)]
    factors = 1.0 + (factor - 1.0) * np.eye(len(addresses))
    numbers = design.numbers()
    more: dict[str, Real] = {}
    for address, column in zip(addresses, factors.T, strict=True):
        more[address] = numbers[address] * column
    after = design.stated.changed(more).estimate
    assert not blamed(addresses, ~np.asarray(after.fits.ok))
    as_many = np.equal(after.batch_run, before.batch_run)
    slower_step = np.greater(after.step.seconds, before.step.seconds * (1 + CLOSE))
    assert not blamed(addresses, as_many & slower_step)
    # prompts have a mapping of their own, which a rule picks that is no optimum
    loss = RULE_LOSS if joint_knobs(name) else CLOSE
    slower = np.greater(after.total.seconds, before.total.seconds * (1 + loss))
    assert not blamed(addresses, as_many & slower)


def blamed(addresses: list[str], where: Mask) -> list[str]:
    """The numbers whose point of the grid is marked."""
    marked = np.broadcast_to(where, (len(addresses),))
    return [address for address, wrong in zip(addresses, marked, strict=True) if wrong]


def solved_alone(name: str, data: st.DataObject) -> list[str]:
    """Every share that `auto` solves alone, and one of the other knobs that it searches."""
    shares, others = [], []
    for knob_name, knob in SYSTEMS[name].knobs.items():
        if knob.sets or knob.solver:
            continue
        if knob.kind == "share":
            shares.append(knob_name)
        elif knob.high - knob.low <= MOST_TRIED:
            others.append(knob_name)
    return shares + data.draw(st.lists(st.sampled_from(others), max_size=1)) if others else shares


def values_of(system: System, name: str) -> list[float]:
    """A fine grid of a share, every value of a choice, 40 of a count."""
    knob = system.knobs[name]
    if knob.kind == "share":
        return list(map(float, np.linspace(knob.low, knob.high, 401)))
    return sorted(set(map(float, np.linspace(knob.low, knob.high, 40).round())))


def no_value_beats_a_solved_knob_or_its_bound(design: Design, knob: str) -> None:
    stated = design.stated
    solved = stated.having(**{knob: "auto"}).resolved
    grid = stated.having(**{knob: np.array(values_of(design.system, knob))}).estimate
    fits = np.broadcast_to(grid.fits.ok, np.shape(grid.step.seconds))
    if not np.any(fits):
        return
    lowest = np.min(np.where(fits, grid.step.seconds, np.inf))
    assert solved.estimate.fits.ok, f"{knob} fits, but not where it is solved"
    assert solved.estimate.step.seconds <= lowest * (1 + CLOSE), knob
    if solved.choice is not None:
        assert solved.choice.bound <= lowest * (1 + CLOSE), knob
        assert np.isclose(solved.choice.seconds, solved.estimate.step.seconds, rtol=1e-7), knob


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
    solved = design.having(**dict.fromkeys(names, "auto")).resolved
    most = float(design.llm.layers if "layers" in names[0] else design.llm.heads)
    units = {name: np.round(data.draw(SHARES) * most) for name in names}
    other = design.having(**units).estimate
    if other.fits.ok:
        assert solved.estimate.fits.ok
        assert solved.estimate.step.seconds <= other.step.seconds * (1 + CLOSE)

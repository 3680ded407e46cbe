"""Shares whose amounts jump or bend: pieces against a fine grid, on random spans and machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.compose import overlap, serial
from nearkv.costmodel.algebra.span import Leaf, Real
from nearkv.costmodel.model.capacity import fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.registry import Knob, System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.shares.headroom import feasible_share
from nearkv.solvers.shares.solve import solve

WORK = Workload(16.0, 4096.0, 64.0)


def seconds_of(amount: Real, resource: str) -> Leaf:
    return Leaf(resource, "run", amount, 1.0, "op")


@settings(max_examples=100)
@given(
    jumps=st.lists(st.integers(-20, 120), min_size=1, max_size=3),
    levels=st.lists(st.floats(0.0, 9.0), min_size=8, max_size=8),
    room=st.floats(0.5, 12.0),
)
# room over a rise that is hardly one overflows
@example(jumps=[0, 0, 1], levels=[0.0] * 6 + [1.1125369292536007e-308, 0.0], room=1.0)
def test_no_share_of_a_fine_grid_that_fits_is_better(
    jumps: list[int], levels: list[float], room: float
) -> None:
    """Amounts that rise or fall on each piece and jump between: a step function and two lines."""
    edges = np.array(sorted(jumps)) / 100 + 0.003

    def evaluate(share: Real) -> Estimate:
        piece = np.searchsorted(edges, share, side="right")
        level, slope = np.array(levels[:4])[piece], np.array(levels[4:])[piece]
        span = serial(
            jump=seconds_of(level, "a"),
            balance=overlap(
                b=seconds_of(slope * share, "b"), c=seconds_of(9.0 - 9.0 * np.asarray(share), "c")
            ),
        )
        return Estimate(span, span, fits(host=(level + slope * share, room)), WORK, WORK.batch)

    grid = np.linspace(0.0, 1.0, 2001)
    everywhere = evaluate(grid)
    choice = solve(evaluate, 0.0, 1.0, list(edges)).choice
    at_choice = evaluate(choice.value)
    assert choice.seconds == pytest.approx(at_choice.step.seconds, rel=1e-9)
    # a share that fits by rounding alone need not be found
    need, capacity = everywhere.fits.tiers["host"]
    ok = np.less_equal(need, capacity - 1e-6)
    if np.any(ok):
        lowest = np.min(np.where(ok, everywhere.step.seconds, np.inf))
        assert at_choice.fits.ok
        assert choice.seconds <= lowest * (1 + 1e-6) + 1e-6
        assert choice.bound <= lowest * (1 + 1e-6) + 1e-6
    assert choice.bound <= choice.seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("system", "name", "batch", "context"),
    [("flexgen-raid", "opt-175b", 64.0, 1024.0), ("inf2", "llama2-70b", 16.0, 4096.0)],
)
@pytest.mark.parametrize("gigabytes", [96.0, 128.0, 256.0, 512.0, 2048.0])
def test_weights_leave_dram_so_far_that_the_cache_fits_or_not_at_all(
    system: str, name: str, batch: float, context: float, gigabytes: float
) -> None:
    hw = load_platform("inf2-a100").machine().with_values({"host.memory": gigabytes * 1e9})
    work = Workload(batch, context, 64.0)
    stated = {"alpha": 0.5, "interval": 16.0, "writeback": 1.0, "buffering": 0.0, "split": 0.0}
    knobs: dict[str, Real] = {k: v for k, v in stated.items() if k in SYSTEMS[system].knobs}
    llm = model(name)
    solved = resolve_knobs(SYSTEMS[system], hw, llm, work, {**knobs, "ssd_weights": "auto"})
    grid = np.linspace(0.0, 1.0, 4001)
    everywhere = SYSTEMS[system](hw, llm, work, {**knobs, "ssd_weights": grid})
    assert bool(solved.estimate.fits.ok) == bool(np.any(everywhere.fits.ok))
    lowest = np.min(np.where(everywhere.fits.ok, everywhere.step.seconds, np.inf))
    assert solved.choice is not None
    if solved.estimate.fits.ok:
        assert solved.estimate.step.seconds <= lowest * (1 + 1e-9)
        assert solved.choice.bound <= lowest * (1 + 1e-9)
        assert solved.choice.gap <= 1e-6


def test_amounts_that_bend_without_a_break_are_refused() -> None:
    def model_of(hw: object, llm: object, work: Workload, *, share: Real) -> Estimate:
        span = overlap(
            a=seconds_of(4 * np.square(share), "a"), b=seconds_of(1 - np.asarray(share), "b")
        )
        return Estimate(span, span, fits(host=(1.0, 2.0)), work, work.batch)

    bent = System("bent", "inf2-a100", "inf2", (), {"share": Knob("share")}, model_of)
    hw = load_platform("inf2-a100").machine()
    with pytest.raises(InputError, match="bent: amounts are not affine in share"):
        resolve_knobs(bent, hw, model("opt-30b"), WORK, {"share": "auto"})


def test_a_tree_that_changes_with_the_share_is_refused_with_the_reason() -> None:
    def model_of(hw: object, llm: object, work: Workload, *, share: Real) -> Estimate:
        span = (1 + share) * seconds_of(1.0, "a")
        return Estimate(span, span, fits(host=(1.0, 2.0)), work, work.batch)

    repeats = System("repeats", "inf2-a100", "inf2", (), {"share": Knob("share")}, model_of)
    hw = load_platform("inf2-a100").machine()
    reason = r"not affine in share \(the number of repetitions changes with the share\)"
    with pytest.raises(InputError, match=reason):
        resolve_knobs(repeats, hw, model("opt-30b"), WORK, {"share": "auto"})


SHORT = st.floats(0.0, 100.0)


@settings(max_examples=100)
@given(st.lists(st.tuples(SHORT, SHORT, st.floats(0.0, 30.0)), min_size=1, max_size=3))
def test_where_no_share_fits_the_shortest_memory_misses_least(
    tiers: list[tuple[float, float, float]],
) -> None:
    """Needs go from one end to another in a straight line; a fine grid misses no less."""
    capacities = dict(zip("abc", tiers, strict=False))
    start = fits(**{name: (first, room) for name, (first, _, room) in capacities.items()})
    end = fits(**{name: (last, room) for name, (_, last, room) in capacities.items()})
    grid = np.linspace(0.0, 1.0, 501)
    missing = [
        np.maximum(first + grid * (last - first) - room, 0.0)
        for first, last, room in capacities.values()
    ]
    for share in feasible_share(start, end):
        short = max(
            max(first + float(share) * (last - first) - room, 0.0)
            for first, last, room in capacities.values()
        )
        assert 0 <= share <= 1
        assert short <= np.min(np.max(missing, axis=0)) + 1e-9


def test_an_infeasible_point_names_the_least_shortage_over_its_solved_share() -> None:
    """X in host memory is alpha's: with alpha = 0 host memory misses least (INF2 sec. 4.3)."""
    machine = load_platform("inf2-h100").machine().with_values({"host.memory": 256 * 2.0**30})
    work = Workload(32.0, 32768.0, 64.0)
    shortages = []
    for alpha in ("auto", 0.0, 0.1, 1.0):
        requested = {**SYSTEMS["inf2"].defaults, "weights": 2.0, "alpha": alpha}
        solved = resolve_knobs(SYSTEMS["inf2"], machine, model("opt-175b"), work, requested)
        shortages.append(float(solved.estimate.fits.short_bytes))
    assert not solved.estimate.fits.ok
    assert shortages[0] == pytest.approx(74.6e9, rel=1e-3)
    assert shortages[0] == min(shortages)

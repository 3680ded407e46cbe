"""Shares whose amounts jump or bend: pieces against a fine grid, on random spans and machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Leaf, Real, overlap, serial
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.registry import Knob, System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.shares.solve import NotAffineError, feasible_share, solve

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
@example(jumps=[0, 0, 50], levels=[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 2.0], room=3.0)
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
    assert choice.seconds == pytest.approx(at_choice.total.seconds, rel=1e-9)
    # a share that fits by rounding alone need not be found
    need, capacity = everywhere.fits.tiers["host"]
    ok = np.less_equal(need, capacity - 1e-6)
    if np.any(ok):
        lowest = np.min(np.where(ok, everywhere.total.seconds, np.inf))
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
    lowest = np.min(np.where(everywhere.fits.ok, everywhere.total.seconds, np.inf))
    assert solved.choice is not None
    if solved.estimate.fits.ok:
        assert solved.estimate.total.seconds <= lowest * (1 + 1e-9)
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
ROOM = st.floats(0.0, 30.0)


@settings(max_examples=100)
@given(st.lists(st.tuples(SHORT, SHORT, ROOM, ROOM), min_size=1, max_size=3))
def test_where_no_share_fits_the_shortest_memory_misses_least(
    tiers: list[tuple[float, float, float, float]],
) -> None:
    """Needs and capacities go from one end to another straight; a fine grid misses no less."""
    named = dict(zip("abc", tiers, strict=False))
    start = fits(**{name: (need, room) for name, (need, _, room, _) in named.items()})
    end = fits(**{name: (need, room) for name, (_, need, _, room) in named.items()})
    grid = np.linspace(0.0, 1.0, 501)

    def missing(share: Real) -> Real:
        by_memory = [
            np.maximum(first + share * (last - first) - (room + share * (grown - room)), 0.0)
            for first, last, room, grown in named.values()
        ]
        worst: Real = np.max(np.stack(by_memory), axis=0)
        return worst

    *shares, short = feasible_share(start, end)
    assert short == pytest.approx(np.min(missing(grid)), abs=0.5)
    for share in shares:
        assert 0 <= share <= 1
        assert missing(share) <= np.min(missing(grid)) + 1e-9


def test_a_capacity_that_shrinks_with_the_share_ends_it() -> None:
    """20 B fit in 40 - 32 x: x <= 20 / 32 = 0.625; the need alone would allow every share."""
    low, high, _ = feasible_share(fits(gpu=(20.0, 40.0)), fits(gpu=(20.0, 8.0)))
    assert (float(low), float(high)) == (0.0, 0.625)
    # beside 20 + 8 x, 40 - 32 x leaves x <= 20 / 40; a memory without a limit bounds nothing
    low, high, _ = feasible_share(
        fits(gpu=(20.0, 40.0), ssd=(1.0, np.inf)), fits(gpu=(28.0, 8.0), ssd=(9.0, np.inf))
    )
    assert (float(low), float(high)) == (0.0, 0.5)
    # nor does one that is full at both ends, but for the last bit at one of them
    full = 2.0**39
    low, high, _ = feasible_share(fits(host=(full + 2**-13, full)), fits(host=(full, full)))
    assert (float(low), float(high)) == (0.0, 1.0)
    # a need that grows as fast as the capacity bounds nothing
    low, high, _ = feasible_share(fits(gpu=(20.0, 40.0)), fits(gpu=(60.0, 80.0)))
    assert (float(low), float(high)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("first", "last", "best"),
    [
        # 20 B in 40 - 4 x: x <= 5, and more is faster
        (36.0, 8.0, 5.0),
        # 20 B in 2 x: never, and x = 8 misses the fewest bytes, though less would be faster
        (2.0, 16.0, 8.0),
        # 20 B in 22 - 4 x: x <= 0.5 is outside the range, so its lower end misses the fewest
        (18.0, -10.0, 1.0),
    ],
)
def test_a_number_is_solved_where_the_capacity_that_depends_on_it_suffices(
    first: float, last: float, best: float
) -> None:
    rises = last > first

    def evaluate(number: Real) -> Estimate:
        x = np.asarray(number, float)
        span = serial(a=seconds_of(x if rises else 9.0 - x, "a"))
        capacity = first + (x - 1.0) * (last - first) / 7.0
        return Estimate(span, span, fits(gpu=(20.0, capacity)), WORK, WORK.batch)

    choice = solve(evaluate, 1.0, 8.0).choice
    assert float(choice.value) == pytest.approx(best)


@pytest.mark.parametrize(("middle", "bends"), [(0.0, False), (8.0, True)])
def test_a_capacity_that_bends_is_no_line_and_one_without_a_limit_is(
    middle: float, bends: bool
) -> None:
    """40 - 32 x - 8 x (1 - x) has the ends of 40 - 32 x, where amounts and needs are affine."""

    def evaluate(share: Real) -> Estimate:
        x = np.asarray(share, float)
        span = serial(a=seconds_of(2.0 - x, "a"))
        capacity = 40.0 - 32.0 * x - middle * x * (1 - x)
        held = fits(gpu=(20.0, capacity), ssd=(1.0, np.inf))
        return Estimate(span, span, held, WORK, WORK.batch)

    if bends:
        with pytest.raises(NotAffineError):
            solve(evaluate, 0.0, 1.0)
    else:
        assert float(solve(evaluate, 0.0, 1.0).choice.value) == pytest.approx(0.625)


def test_an_infeasible_point_names_the_least_shortage_over_its_solved_share() -> None:
    """X in host memory is alpha's: with alpha = 0 host memory misses least (INF2 sec. 4.3)."""
    machine = load_platform("inf2-h100").machine().with_values({"host.memory": 256 * 2.0**30})
    work = Workload(32.0, 32768.0, 64.0)
    shortages = []
    for alpha in ("auto", 0.0, 0.1, 1.0):
        knobs = {**SYSTEMS["inf2"].defaults, "weights": 2.0, "alpha": alpha}
        solved = resolve_knobs(SYSTEMS["inf2"], machine, model("opt-175b"), work, knobs)
        shortages.append(float(solved.estimate.fits.short_bytes))
    assert not solved.estimate.fits.ok
    assert shortages[0] == pytest.approx(82.3e9, rel=1e-3)
    assert shortages[0] == min(shortages)

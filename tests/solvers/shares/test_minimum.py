"""The exact optimum over a share, against brute force on random machines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.spans import leaf, trees
from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.blend import blend
from nearkv.costmodel.algebra.span import (
    Leaf,
    Numbers,
    Overlap,
    Port,
    Repeat,
    Serial,
    Span,
    overlap,
    serial,
)
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.objective import STEP
from nearkv.solvers.shares.minimum import Minimum, minimise, tangent
from nearkv.sweeps.explore.knob import find_best_knob, why_knob
from nearkv.sweeps.explore.rows import sentences
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, records

GRID = np.linspace(0.0, 1.0, 1001)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Span, Span]:
    """Two trees of one shape with random amounts."""
    tree = draw(trees())
    factors = iter(draw(st.lists(st.floats(0.0, 5.0), min_size=64, max_size=64)))
    return tree, scaled(tree, factors)


def told(answer: Columns, name: str) -> list[str]:
    """Sentences below a solved knob."""
    return sentences(map(why_knob(name), records(answer)))


def scaled(span: Span, factors: Iterator[float]) -> Span:
    if isinstance(span, Leaf):
        amount = span.amount * next(factors)
        return Leaf(span.resource, span.verb, amount, span.rate, span.unit)
    if isinstance(span, Repeat):
        return Repeat(span.times, scaled(span.span, factors))
    parts = {name: scaled(part, factors) for name, part in span.parts.items()}
    return Overlap(parts) if isinstance(span, Overlap) else Serial(parts)


@settings(max_examples=200)
@given(pairs())
@pytest.mark.slow
def test_no_share_of_a_fine_grid_is_better(pair: tuple[Span, Span]) -> None:
    start, end = pair
    choice = minimise(start, end)
    everywhere = blend(start, end, GRID).seconds
    assert choice.seconds <= np.min(everywhere) * (1 + 1e-9)
    assert choice.seconds == pytest.approx(blend(start, end, choice.value).seconds)
    assert choice.bound <= choice.seconds * (1 + 1e-12)
    assert choice.gap <= 1e-9


def random_machines(count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    span = {
        "csd.p2p_read": (0.5e9, 20e9),
        "uplink.bandwidth": (2e9, 200e9),
        "gpu_link.bandwidth": (2e9, 200e9),
        "gpu.flops": (5e12, 2e15),
        "csd.kernel_g1": (1e9, 50e9),
        "csd.kernel_g4": (4e9, 200e9),
        "csd.kernel_g5": (5e9, 250e9),
    }
    machines = {
        key: np.exp(rng.uniform(np.log(low), np.log(high), count))
        for key, (low, high) in span.items()
    }
    return {**machines, "csd.count": rng.integers(1, 33, count).astype(float)}


@pytest.mark.parametrize("name", ["opt-66b", "opt-175b", "qwen2.5-32b", "mixtral-8x7b"])
@pytest.mark.slow
def test_alpha_beats_every_grid_point_on_a_thousand_machines(name: str) -> None:
    values = {key: machines[:, None] for key, machines in random_machines(1000, seed=7).items()}
    hw, llm, work = (
        load_platform("hilos-a100").machine().with_values(values),
        model(name),
        Workload(16.0, 32768.0, 64.0),
    )
    knobs = {"interval": 16.0, "writeback": 1.0}
    solved = resolve_knobs(SYSTEMS["hilos"], hw, llm, work, {**knobs, "alpha": "auto"}, timed=STEP)
    grid = SYSTEMS["hilos"](hw, llm, work, {**knobs, "alpha": GRID[None, :]}).step.seconds
    assert np.all(np.ravel(solved.estimate.step.seconds) <= np.min(grid, axis=1) * (1 + 1e-12))
    assert solved.choice is not None
    assert np.all(solved.choice.gap <= 1e-9)


@pytest.mark.parametrize("name", ["qwen2.5-32b", "mixtral-8x7b"])
def test_gqa_keeps_no_x_because_x_is_larger_than_kv(name: str) -> None:
    answer = find_best_knob(Study(("hilos",), (name,)), "alpha")
    assert answer["value"][0] == 0.0
    assert "times the bytes of K and V" in told(answer, "alpha")[0]
    assert answer["rule_loss"][0] > 0


# B_SSD / B_PCI = 3 (sec. 6.4) makes the closed form one half, at either device count it may mean.
# The rule does not see the GPU, which at 16 GB/s of uplink takes longer over X than its way there.
@pytest.mark.parametrize(
    ("sets", "balance", "least", "most"),
    [
        ({"csd.count": "8", "derate.uplink": "0.254"}, "uplink", 0.0, 0.01),
        ({"csd.count": "16"}, "gpu.tensor", 0.08, 0.12),
    ],
)
def test_mha_balances_flash_and_what_x_passes(
    sets: dict[str, str], balance: str, least: float, most: float
) -> None:
    answer = find_best_knob(Study(("hilos",), ("opt-66b",), sets=sets), "alpha")
    assert answer["bound_by"][0].startswith("csd.flash = ")
    assert balance in answer["bound_by"][0]
    assert answer["rule"][0] == pytest.approx(0.5, abs=1e-3)
    assert least <= answer["rule_loss"][0] < most


def test_of_overlapped_leaves_the_longest_has_the_tangent() -> None:
    """Of three overlapped leaves one is nowhere the longest; two cross."""
    low, high = leaf("a", np.array([1.0, 2.0])), leaf("b", np.array([1.0, 3.0]))
    crossing = leaf("c", np.array([2.0, 0.0]))
    start = overlap(low=low, high=high, crossing=crossing)
    end = overlap(low=leaf("a", 1.0), high=leaf("b", 1.5), crossing=leaf("c", 1.0))
    for share in (0.0, 0.3, 1.0):
        assert tangent(start, end, share).f == pytest.approx(blend(start, end, share).seconds)
    # c falls from 2 to 1 above b, which rises from 1 to 1.5; b falls from 3 to 1.5 above c
    assert np.array_equal(tangent(start, end, 0.0).d, [-1.0, -1.5])


def test_rounding_alone_moves_no_share_from_the_lowest() -> None:
    falling = overlap(wire=leaf("link", 1 + 1e-14), engine=leaf("gpu", 1.0))
    fallen = overlap(wire=leaf("link", 0.0), engine=leaf("gpu", 1.0))
    assert minimise(falling, fallen).value == 0
    assert minimise(falling, fallen, low=0.25).value == 0.25


def test_layers_repeat_as_often_at_both_ends() -> None:
    """Equal counts of their own are as good as one count; others have no line between them."""
    read = Port("ssd.flash", "read", 2.0)
    start, end = np.array([3.0, 4.0]) * read(2.0), np.array([3.0, 4.0]) * read(6.0)
    assert np.array_equal(tangent(start, end, 0.0).f, [3, 4])
    assert np.array_equal(tangent(start, end, 1.0).f, [9, 12])
    one_for_all = tangent(3.0 * read(2.0), np.array([3.0, 3.0]) * read(6.0), 1.0)
    assert np.all(np.equal(one_for_all.f, 9))
    with pytest.raises(ValueError, match="number of repetitions"):
        tangent(start, np.array([3.0, 5.0]) * read(6.0), 0.0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Leaf("b", "read", 2.0, 5.0, "B"), "changes more than its amount"),
        (Leaf("a", "read", 2.0, 6.0, "B"), "changes more than its amount"),
    ],
)
def test_a_line_is_of_one_resource_at_one_rate(other: Leaf, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tangent(Leaf("a", "read", 1.0, 5.0, "B"), other, 0.0)


def test_a_sum_of_many_maxima_is_as_good_as_one() -> None:
    """Twelve overlaps of two lines in a row are 4,096 sums of lines: they are kept apart."""
    random = np.random.default_rng(3)

    def sides(values: Numbers) -> Span:
        return serial(
            **{
                f"o{place}": overlap(a=leaf("a", one), b=leaf("b", other))
                for place, (one, other) in enumerate(values)
            }
        )

    start = sides(random.random((12, 2)))
    end = sides(random.random((12, 2)))
    choice = minimise(start, end)
    assert choice.gap <= 1e-9
    assert choice.seconds <= np.min(blend(start, end, GRID).seconds) * (1 + 1e-9)


def test_a_queue_that_shrinks_behind_a_level_part_counts() -> None:
    """The link hides the DRAM reads of weights, but not those behind the CPU's attention.

    max(link 5, DRAM 4 -> 0, DRAM 4 + 3 -> 0 + 3): 7 s at share 0, the link's 5 s from a half on.
    """
    start, end = (
        overlap(
            weights=overlap(link=leaf("link", 5.0), dram=leaf("dram", reads)),
            attend=leaf("dram", 3.0),
        )
        for reads in (4.0, 0.0)
    )
    choice = minimise(start, end)
    assert choice.seconds == pytest.approx(5.0)
    assert choice.value >= 0.5


def test_a_gap_is_relative_to_what_the_choice_takes() -> None:
    """Four seconds of which three are proven; nothing of nothing."""
    choice = Minimum(0.5, np.array([4.0, 0.0]), np.array([3.0, 0.0]), 0.0, 1.0)
    assert np.asarray(choice.gap).tolist() == [0.25, 0.0]

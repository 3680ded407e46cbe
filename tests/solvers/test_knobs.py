"""Knobs that are requested as `auto`: counts tried one by one, numbers solved or searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.spans import leaf
from support.systems import SYSTEMS, middle, model

from nearkv.costmodel.algebra.span import Leaf, Real, overlap, serial
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.layers import with_widths
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs

HILOS = SYSTEMS["hilos"]
WORK = Workload(16.0, 32768.0, 64.0)
COMPRESSION = Knob("factor by which K and V are compressed", low=1, high=8, kind="number")


def compressed(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
    """HILOS whose cache is smaller by a factor."""
    factor = knobs.pop("compression")
    return HILOS(hw, with_widths(llm, kv_width=llm.kv_width / factor), work, knobs)


def own_system(knobs: Mapping[str, Knob]) -> System:
    return System("own", "hilos-a100", "user", (), knobs, compressed)


def toy(low: float, high: float, seconds: object) -> System:
    """A system with one number, whose step takes what a function of it says."""

    def model_of(hw: Machine, llm: LLM, work: Workload, *, number: Real) -> Estimate:
        step = seconds(number)  # type: ignore[operator]
        return Estimate(step, step, fits(host=(number, 6.5)), work, work.batch)

    knob = Knob("a number", low=low, high=high, kind="number")
    return System("toy", "hilos-a100", "user", (), {"number": knob}, model_of)


def answer(system: System, **knobs: Real | str):  # type: ignore[no-untyped-def]
    hw = load_platform(system.platform).machine()
    return resolve_knobs(system, hw, model("opt-66b"), WORK, knobs)


def test_whole_numbered_knobs_are_searched_exhaustively() -> None:
    work, hw, llm = (
        Workload(16.0, 32768.0, 64.0),
        load_platform("hilos-a100").machine(),
        model("opt-66b"),
    )
    knobs: dict[str, Real | str] = {"alpha": 0.25, "writeback": "auto", "interval": "auto"}
    solved = resolve_knobs(SYSTEMS["hilos"], hw, llm, work, knobs)
    every = SYSTEMS["hilos"](
        hw,
        llm,
        work,
        {
            "alpha": 0.25,
            "interval": np.arange(1.0, 257.0)[:, None],
            "writeback": np.array([0.0, 1.0]),
        },
    )
    assert solved.estimate.step.seconds == np.min(every.step.seconds)
    assert solved.knobs["writeback"] == 1


def test_a_number_in_which_amounts_are_affine_is_solved_exactly_over_its_range() -> None:
    """Between 2 and 8 one resource takes x, another 12 - x: they meet at 6."""
    affine = toy(2.0, 8.0, lambda x: overlap(a=leaf("a", x), b=leaf("b", 12 - x)))
    solved = answer(affine, number="auto")
    assert solved.knobs["number"] == pytest.approx(6.0)
    assert solved.choice.gap <= 1e-12
    assert solved.tried == 0


def test_memory_cuts_the_range_of_a_number() -> None:
    affine = toy(2.0, 8.0, lambda x: serial(a=leaf("a", 12 - x)))
    assert answer(affine, number="auto").knobs["number"] == pytest.approx(6.5)


def test_a_number_in_which_amounts_bend_is_searched() -> None:
    """9 / x falls and x rises: they meet at 3. Nothing proves it, so there is no bound.

    It is one of 33 values, and of 33 about the best each of seven times that they come closer.
    """
    bent = toy(1.0, 8.0, lambda x: overlap(a=leaf("a", 9.0 / x), b=leaf("b", x)))
    solved = answer(bent, number="auto")
    assert np.ravel(solved.knobs["number"]) == pytest.approx([3.0], rel=1e-8)
    assert solved.tried == (1 + 7) * 33


def test_a_searched_number_beats_a_fine_grid_at_every_design_point() -> None:
    """Beside a solved alpha, over batches and contexts."""
    system = own_system({**HILOS.knobs, "compression": COMPRESSION})
    hw, llm = load_platform("hilos-a100").machine(), model("opt-66b")
    work = Workload(np.array([[1.0], [16.0]]), np.array([4096.0, 65536.0]), 64.0)
    knobs: dict[str, Real | str] = {**HILOS.defaults, "compression": "auto"}
    solved = resolve_knobs(system, hw, llm, work, knobs)
    for factor in (1.0, 2.0, 7.9, 8.0):
        at = resolve_knobs(system, hw, llm, work, {**knobs, "compression": factor})
        assert np.all(solved.estimate.total.seconds <= at.estimate.total.seconds * (1 + 1e-9))
    assert middle(system)["compression"] == pytest.approx(1 + 0.3 * 7)


BLOCK = Workload(1.0, 512.0, 32.0)


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


def test_a_knob_that_a_variant_forgot_is_named() -> None:
    """alpha of HILOS bends where buffers of `interval` tokens take memory from weights."""
    hilos = SYSTEMS["hilos"]
    variant = replace(hilos, knobs={"alpha": hilos.knobs["alpha"]})
    hw = load_platform("hilos-a100").machine()
    with pytest.raises(InputError, match="reads the knob interval, which the system does not"):
        resolve_knobs(
            variant, hw, model("opt-66b", hw), Workload(16.0, 4096.0, 32.0), {"alpha": "auto"}
        )


@pytest.mark.parametrize("explained", [True, False])
def test_a_share_is_solved_beside_a_searched_knob_and_a_chunk_that_a_rule_sets(
    explained: bool,
) -> None:
    """Breaks of alpha depend on the chunk that is stated by then; nothing stated is faster."""
    hilos, hw, work = (
        SYSTEMS["hilos"],
        load_platform("hilos-a100").machine(),
        Workload(1, 16384, 64),
    )
    llm = model("opt-30b", hw)
    settings = {name: knob.default for name, knob in hilos.knobs.items() if not knob.sets}
    solved = {**settings, "alpha": "auto", "interval": "auto"}
    best = resolve_knobs(hilos, hw, llm, work, solved, explained)
    for interval, alpha in ((1.0, 0.5), (11.0, 0.0), (11.0, 0.56), (16.0, 1.0)):
        stated = {**best.knobs, "interval": interval, "alpha": alpha}
        slower = resolve_knobs(hilos, hw, llm, work, stated).estimate
        assert best.estimate.total.seconds <= slower.total.seconds * (1 + 1e-9)

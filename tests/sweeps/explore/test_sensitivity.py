"""Elasticities against sweeps, and Sobol's indices against closed forms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.command_line import succeed

import nearkv
from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.uncertainty.sobol import Index, sobol_indices
from nearkv.sweeps.evaluate import columns as run
from nearkv.sweeps.explore.crossover import find_crossovers
from nearkv.sweeps.explore.sensitivity import _slope, find_elasticities
from nearkv.sweeps.study.study import Study

STATED = {"weights": "host", "alpha": "0.25"}
"""Knobs that need not be solved anew with each number."""
POINT = Study(("hilos",), ("opt-66b",), "16", "64k", "64", knobs=STATED)


def swept(study: Study, name: str) -> np.ndarray:
    return run.table(study)[name].astype(float)


L3 = Study(("l3",), ("gpt-89b",), context="6000")


def ishigami(rank: Mapping[str, Numbers]) -> Numbers:
    """sin x + 7 sin^2 y + 0.1 z^4 sin x, each uniform from -pi to pi."""
    x, y, z = (np.pi * (2 * rank[name] - 1) for name in "xyz")
    answer: Numbers = np.sin(x) + 7 * np.sin(y) ** 2 + 0.1 * z**4 * np.sin(x)
    return answer


def agrees(index: Index, first: float, total: float) -> None:
    """Within three standard errors, which are small."""
    assert index.first_error < 0.02
    assert index.total_error < 0.02
    assert index.first == pytest.approx(first, abs=3 * index.first_error + 1e-3)
    assert index.total == pytest.approx(total, abs=3 * index.total_error + 1e-3)


def test_indices_agree_with_ishigami() -> None:
    """Variances (Saltelli, Sensitivity Analysis, 2000): a = 7, b = 0.1, x and z interact.

    V_x = (1 + b pi^4 / 5)^2 / 2, V_y = a^2 / 8, V_xz = b^2 pi^8 (1/18 - 1/50), V_z = 0.
    """
    of_x = (1 + 0.1 * np.pi**4 / 5) ** 2 / 2
    of_y = 7**2 / 8
    together = 0.1**2 * np.pi**8 * (1 / 18 - 1 / 50)
    all_of_it = of_x + of_y + together
    indices = sobol_indices(ishigami, ["x", "y", "z"], 16_384, 0)
    agrees(indices["x"], of_x / all_of_it, (of_x + together) / all_of_it)
    agrees(indices["y"], of_y / all_of_it, of_y / all_of_it)
    agrees(indices["z"], 0, together / all_of_it)


def test_indices_agree_with_a_product_of_two_leaves() -> None:
    """A leaf of 1 to 3 s, run 2 to 4 times: means 2 and 3, variances 1/3 each.

    V = (4 + 1/3)(9 + 1/3) - 36 = 40/9; the leaf explains 9/3, the times 4/3, both 1/9 together.
    """
    indices = sobol_indices(
        lambda rank: (1 + 2 * rank["leaf"]) * (2 + 2 * rank["times"]), ["leaf", "times"], 8192, 1
    )
    agrees(indices["leaf"], 27 / 40, 28 / 40)
    agrees(indices["times"], 12 / 40, 13 / 40)


def test_a_constant_has_no_indices() -> None:
    indices = sobol_indices(lambda rank: np.ones_like(rank["x"]), ["x"], 64, 0)
    assert indices["x"] == Index(0, 0, 0, 0)


@pytest.mark.slow
def test_measuring_the_first_number_narrows_the_band_most() -> None:
    placed = {"weights": "host"}
    table = nearkv.sensitivity("flexgen-dram", "opt-66b", context="32k", knobs=placed, sobol=True)
    assert table["total"].is_monotonic_decreasing
    error = np.hypot(table["first_error"], table["total_error"])
    assert (table["first"] <= table["total"] + 3 * error).all()
    numbers = table[table["number"] != "model error"]
    assert numbers["number"].iloc[0] == "derate.cpu_attention"  # it reads all keys and values
    assert numbers["width_if_known"].iloc[0] == numbers["width_if_known"].min()
    assert numbers["number"].str.contains("csd").sum() == 0  # no SmartSSD is used


def test_indices_are_of_one_point() -> None:
    with pytest.raises(InputError, match="one design point"):
        nearkv.sensitivity("hilos", "opt-66b", context=["8k", "16k"], sobol=True)


@pytest.mark.slow
def test_a_count_is_nudged_by_one() -> None:
    rows, band = find_elasticities(POINT, "step_ms")
    (row,) = [row for row in rows if row["number"] == "csd.count"]
    less, more = swept(POINT.but(sets={"csd.count": "7,9"}), "step_ms")
    assert row["elasticity"] == pytest.approx(np.log(more / less) / np.log(9 / 7))
    assert band["fits_share"] == 1


@pytest.mark.slow
def test_the_elasticity_of_the_cost_is_the_share_of_the_price() -> None:
    rows, band = find_elasticities(POINT, "cost_usd")
    cost = swept(POINT, "cost_usd")[0]
    numbers = load_platform("hilos-a100").roles
    found = {row["number"]: row["elasticity"] for row in rows}
    assert found["csd.price"] == pytest.approx(
        8 * numbers["csd"].numbers["price"].si / cost, rel=1e-4
    )
    swings = [row["swing"] or 0.0 for row in rows]
    assert swings == sorted(swings, reverse=True)
    assert band["low"] <= band["cost_usd"] <= band["high"]


@pytest.mark.slow
def test_the_ends_of_a_range_are_what_a_sweep_says() -> None:
    rows, band = find_elasticities(POINT, "step_ms")
    row = next(row for row in rows if row["number"] == "derate.uplink")
    ends = swept(POINT.but(sets={"derate.uplink": f"{row['low']},{row['high']}"}), "step_ms")
    assert [row["step_ms_at_low"], row["step_ms_at_high"]] == pytest.approx(ends)
    assert band["low"] < band["step_ms"] < band["high"]


@pytest.mark.parametrize(
    ("study", "of", "requested"),
    [
        (POINT.but(batch="1,2"), "step_ms", "one design point"),
        (POINT, "stepms", "did you mean 'step_ms'"),
        (POINT.but(context="1M", batch="1000"), "step_ms", "has no value"),
    ],
)
def test_sensitivities_that_cannot_be_asked_for(study: Study, of: str, requested: str) -> None:
    with pytest.raises(InputError, match=requested):
        find_elasticities(study, of)


@pytest.mark.parametrize("value", [1.0, 3.0])
def test_the_slope_beside_a_jump_is_that_of_the_other_side(value: float) -> None:
    """The square of a number; from just above its value on, or from just below it, three times."""
    places = np.log([0.9, 0.9999, 1.0001, 1.1])
    slope, jump = _slope(places, np.array([1, 1, 3, 3]) * np.exp(2 * places), value)
    assert slope == pytest.approx(2)
    assert jump == pytest.approx(2, abs=2e-3)


@pytest.mark.slow
def test_a_discontinuity_is_said_and_the_smooth_side_taken() -> None:
    # a page of 4 KiB is filled by 16 entries of 256 B: any smaller page needs no more of them
    rows, _ = find_elasticities(POINT, "throughput_tok_s")
    row = next(row for row in rows if row["number"] == "csd.page")
    pages = "4.096kB,4.1001kB,4.1005kB"
    _, first, second = swept(POINT.but(sets={"csd.page": pages}), "throughput_tok_s")
    slope = np.log(second / first) / np.log(4.1005 / 4.1001)
    assert row["elasticity"] == pytest.approx(slope, rel=0.01)
    assert row["jump"] != 0


@pytest.mark.slow
def test_a_column_of_the_system_itself_can_be_looked_at() -> None:
    """Without a queue, the time between tokens is a step, so both depend on the same numbers."""
    steps, _ = find_elasticities(L3.but(batch="1"), "step_ms")
    pauses, _ = find_elasticities(L3.but(batch="1"), "tpot_ms")
    assert [row["number"] for row in pauses] == [row["number"] for row in steps]
    pair = Study(("gpu", "l3"), ("gpt-89b",))
    assert all(row["from"] for row in find_crossovers(pair, "batch=1:4", "tpot_ms"))
    with pytest.raises(InputError, match="--of: unknown column 'pu_power_pct'"):
        find_crossovers(Study(("hilos", "l3"), ("opt-66b",)), "batch=1:4", "pu_power_pct")


@pytest.mark.slow
def test_the_band_of_a_sensitivity_is_that_of_an_estimate() -> None:
    point = nearkv.estimate("hilos", "opt-66b", context="64k", band=90)
    band = nearkv.sensitivity("hilos", "opt-66b", context="64k", of="step_ms").attrs["band"]
    ends = [point[f"step_ms_{end}"] for end in ("p05", "p50", "p95")]
    assert [band["low"], band["middle"], band["high"]] == ends


@pytest.mark.slow
def test_what_to_measure_first_is_said_in_words() -> None:
    question = (
        "sensitivity hilos --model opt-30b --context 8k --band 90 --samples 20 --sobol --knob "
    )
    shown = succeed(*question.split(), "weights=host", "--knob", "alpha=0.25")
    assert shown.count("the band narrows from") >= 1
    assert "x wide" in shown


def test_a_node_alone_depends_on_no_fabric() -> None:
    """Seven GPUs divide no 64 heads, and eight in a node of nine are in one node as before."""
    rows, _ = find_elasticities(Study(("gpu",), ("llama3.1-70b",), context="8k"), "step_ms")
    assert not [row["number"] for row in rows if row["number"].startswith("fabric")]
    assert all(row["elasticity"] is not None for row in rows)


def test_a_number_that_others_follow_moves_them_too() -> None:
    """H2M2 reads the bandwidth of HBM, which is that of the GPU."""
    table = nearkv.sensitivity("h2m2", "llama3.1-8b", batch=4, context="64k", platform="common")
    elasticity = table.set_index("number")["elasticity"]
    assert elasticity["gpu.bandwidth"] > 0
    assert not {"hbm.bandwidth", "hbm.count", "lpddr.count"} & {*elasticity.index}

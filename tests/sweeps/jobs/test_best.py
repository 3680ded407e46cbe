"""The best rows of a sweep: those that a sort of all rows puts first, ties included."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.command_line import printed
from support.drawing import CASES, seeded
from support.studies import MIXED, drawn_study, quietly
from support.warm_command import forks

import nearkv
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.explore.pareto import find_front
from nearkv.sweeps.jobs.best import best, reducer_of
from nearkv.sweeps.jobs.progress import SweepRun
from nearkv.sweeps.jobs.search import Best
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns

COSTS = ("energy_j_tok", "step_ms", "cost_usd", "prefill_s", "throughput_tok_s")


GROUPS = ("system", "model", "batch", "context_tok", "status", "step_ms", "alpha")


def blank_last(value: Any) -> Any:
    """A cell as rows are sorted and grouped by it: blanks are one group, after numbers."""
    return np.inf if isinstance(value, float) and np.isnan(value) else value


def order_of(reducer: Best, rows: Columns, row: int) -> tuple[object, ...]:
    """Key that sorts a row: ties go to the cheaper, then to the one of fewer parts."""
    (by,) = reducer.by
    cost = float(rows[by][row]) * (-1 if higher_is_better(by) else 1)
    ties = [blank_last(rows[name][row]) for name in ("cost_usd", "parts")]
    return (float(f"{cost:.9e}"), *ties)


def check_kept(reducer: Best, rows: Columns, shown: Columns) -> None:
    """Hold that what is shown are rows of the table, those that a sort puts first."""
    (by,) = reducer.by
    known = np.flatnonzero(~np.isnan(rows[by].astype(float)))
    order = {int(row): order_of(reducer, rows, int(row)) for row in known}
    groups = {row: tuple(blank_last(rows[name][row]) for name in reducer.per) for row in order}
    expected = sorted(order, key=lambda row: order[row])[: None if reducer.per else reducer.most]
    if reducer.per:
        first: dict[tuple[object, ...], int] = {}
        for row in expected:
            first.setdefault(groups[row], row)
        expected = [first[group] for group in sorted(first)]
    names = [name for name in rows if name != "parts"]
    texts = {row: tuple(str(rows[name][row]) for name in names) for row in order}
    places = zip(*(map(str, shown[name]) for name in names), strict=True)
    unseen = Counter(texts.values())
    for place, row in zip(places, expected, strict=True):
        alike = [other for other in order if order[other] == order[row]]
        assert place in {texts[other] for other in alike if groups[other] == groups[row]}
        assert unseen[place] > 0
        unseen[place] -= 1


def kept(top: int | None, by: str, per: tuple[str, ...] = ()) -> Best:
    reducer = reducer_of(top, by, per)
    assert reducer
    return reducer


REDUCERS = [
    kept(1, "throughput_tok_s"),
    kept(10, "throughput_tok_s"),
    kept(1000, "energy_j_tok"),
    kept(None, "throughput_tok_s", ("model", "context_tok")),
    kept(None, "cost_usd", ("short_of", "system", "batch")),
    kept(None, "energy_j_tok", ("step_ms",)),
]


@pytest.fixture(scope="module")
def every() -> Columns:
    """All rows of the mixed study."""
    return table(MIXED, ("parts",))


@pytest.mark.parametrize(
    ("chunk", "reducer"),
    [*((41, reducer) for reducer in REDUCERS), (1 << 16, REDUCERS[1]), (1 << 16, REDUCERS[3])],
    ids=str,
)
@pytest.mark.slow
def test_reducers_keep_what_sorting_all_rows_finds(
    every: Columns, reducer: Best, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearkv.sweeps.study.grid.POINTS_AT_ONCE", chunk)
    monkeypatch.setattr("nearkv.sweeps.jobs.best.REDUCED", 50)
    check_kept(reducer, every, best(MIXED, reducer, quietly()))


@pytest.mark.slow
def test_reducers_in_processes_keep_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearkv.sweeps.jobs.workers.get_context", lambda _: forks())
    here, there = best(MIXED, REDUCERS[3], quietly()), best(MIXED, REDUCERS[3], quietly(2))
    for name, column in here.items():
        np.testing.assert_array_equal(column, there[name], err_msg=name)


@pytest.mark.parametrize(
    ("top", "by", "per", "problem"),
    [
        (5, "step_ms", ("model",), "choose one"),
        (-1, "step_ms", (), "--top must be from 1 to"),
        (1_000_001, "step_ms", (), "--top must be from 1 to 1,000,000, not 1000001"),
        (0, "", (), "--top must be from 1 to"),
        (1, "step_mss", (), "did you mean 'step_ms'"),
        (1, "model", (), "--by: model is not a column of numbers"),
        (None, "step_ms", (), "--by step_ms: says what --top and --best-per compare by"),
        (None, "", ("model", "model"), "--best-per: names 'model' twice"),
        (None, "step_ms", ("modell",), "did you mean 'model'"),
    ],
)
def test_a_reducer_that_makes_no_sense(
    top: int | None, by: str, per: tuple[str, ...], problem: str
) -> None:
    def reduce() -> None:
        reducer = reducer_of(top, by, per)
        assert reducer
        best(MIXED, reducer, quietly())

    with pytest.raises(InputError, match=problem):
        reduce()


@pytest.mark.parametrize("at_once", [1 << 17, 2])
def test_the_best_are_grouped_by_what_is_on_request(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows as by sorting a table that has the column."""
    study = Study(("hilos",), ("opt-66b",), "1,2,64", knobs={"alpha": "0,0.5"})
    every = table(study, ("bottleneck",))
    best_row: dict[str, float] = {}
    for name, rate in zip(every["bottleneck"], every["throughput_tok_s"], strict=True):
        best_row[str(name)] = max(best_row.get(str(name), 0.0), float(rate))
    monkeypatch.setattr("nearkv.sweeps.study.grid.POINTS_AT_ONCE", at_once)
    shown = best(study, kept(None, "throughput_tok_s", ("bottleneck",)), quietly())
    assert len(best_row) > 1
    assert dict(zip(shown["bottleneck"], shown["throughput_tok_s"], strict=True)) == best_row


def test_nothing_fits_is_an_answer() -> None:
    table = best(Study(("flexgen-dram",), ("opt-175b",), context="128k"), REDUCERS[0], quietly())
    assert table["status"].tolist() == ["infeasible"]
    assert table["short_of"].tolist() == ["host"]


@st.composite
def reducers(draw: st.DrawFn) -> Best:
    by = draw(st.sampled_from(COSTS))
    if draw(st.booleans()):
        return kept(draw(st.integers(1, 100)), by)
    per = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True))
    return kept(None, by, tuple(per))


@settings(seeded, max_examples=max(CASES // 20, 1))
@given(reducers(), st.integers(0, 10_000))
@pytest.mark.filterwarnings("ignore:--")  # some systems do not read what is drawn
@pytest.mark.slow
def test_random_studies_keep_what_a_sort_puts_first(reducer: Best, seed: int) -> None:
    study = drawn_study(Random(seed), 300)
    try:
        rows = table(study, ("parts",))
        shown = best(study, reducer, quietly())
    except InputError:  # cannot be evaluated, or has no such column
        return
    if np.any(~np.isnan(rows[reducer.by[0]].astype(float))):
        check_kept(reducer, rows, shown)


def test_very_many_points_are_compared_with_a_yes_alone() -> None:
    study = Study(("hilos",), ("opt-66b",), batch="1:200000:+1", context="1:200000:+1")
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    run = SweepRun(Workers(), True, False, print, refuse)
    with pytest.raises(InputError, match="40,000,000,000 design points are very many"):
        best(study, kept(1, "step_ms"), run)
    assert asked == ["Compare 40,000,000,000 design points?"]
    with pytest.raises(InputError, match="very many to compare; leave out some"):
        find_front(study, "step_ms,cost_usd", [])


@pytest.mark.parametrize(("most", "around"), [(3, 1), (17, 5)])
def test_rows_of_bands_are_those_of_the_whole_table(
    most: int, around: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that are kept are drawn again, in boxes that hold others too."""
    monkeypatch.setattr("nearkv.sweeps.jobs.best.MOST_AROUND", around)
    study = Study(("hilos",), ("opt-66b",), "1:8:+1", "4k,8k,64k", band=90.0, samples=20)
    rows = table(study)
    shown = best(study, kept(most, "step_ms_p50"), quietly())
    order = np.argsort(rows["step_ms_p50"], kind="stable")[:most]
    for name, column in rows.items():
        np.testing.assert_array_equal(shown[name], column[order], err_msg=name)


def test_the_best_of_designs_that_do_not_fit_is_a_row_with_a_status() -> None:
    words = "sweep --system accelerate --model opt-175b --context 1M --top 3 --format json --quiet"
    (row,) = json.loads(printed(*words.split(), code=3))
    assert row["status"] == "infeasible"
    assert row["short_gb"] > 0


# --- what must not change an answer -------------------------------------------------------------


def random_grid(random: Random) -> dict[str, Any]:
    """A grid in which much ties: a link that some systems do not read, prices, two models."""
    systems = random.sample(["hilos", "inf2", "flexgen-ssd", "flexgen-dram", "deepspeed-uvm"], 3)
    return {
        "systems": systems,
        "models": random.sample(["opt-30b", "opt-66b", "llama3.1-8b"], 2),
        "batch": random.sample([1, 4, 16, 64], 3),
        "context": random.sample(["4k", "16k", "32k"], 2),
        "output_tokens": "32",
        "sets": {
            "uplink.bandwidth": random.sample(["8GB/s", "16GB/s", "32GB/s"], 2),
            "gpu.price": random.sample(["5000USD", "9000USD"], 2),
        },
        "platforms": ("hilos-a100",),
    }


def turned(asked: dict[str, Any]) -> dict[str, Any]:
    """The grid with every list and every option in the opposite order."""
    lists = {name: values[::-1] for name, values in asked.items() if isinstance(values, list)}
    sets = {name: values[::-1] for name, values in reversed(asked["sets"].items())}
    return {**asked, **lists, "sets": sets}


def same_rows(one: Columns, other: Columns) -> None:
    assert one.keys() == other.keys()
    for name, column in one.items():
        np.testing.assert_array_equal(other[name], column, err_msg=name)


def check_what_changes_nothing(random: Random) -> None:
    asked, by = random_grid(random), random.choice([*COSTS, "step_ms", "total_s"])
    sign = -1 if higher_is_better(by) else 1
    for reducer in (kept(5, by), kept(None, by, ("model", "context_tok"))):
        whole = best(Study(**asked), reducer, quietly())
        same_rows(whole, best(Study(**turned(asked)), reducer, quietly()))
        alone = best(Study(**{**asked, "systems": asked["systems"][:1]}), reducer, quietly())
        if reducer.most > 1:
            assert sign * whole[by][0] <= sign * np.nan_to_num(alone[by][0], nan=np.inf * sign)
    check_again(asked, {name: column[0] for name, column in whole.items()}, by)


def check_again(asked: dict[str, Any], row: dict[str, Any], by: str) -> None:
    """A row asked again with all that it states has its digits."""
    bandwidth, price = row["uplink.bandwidth_gb_s"], row["gpu.price_usd"]
    own = find_system(str(row["system"])).knobs
    # a share follows the choice that leaves it open, unless it has a value beside one
    closed = {knob.share for name, knob in own.items() if "+" not in str(row.get(name))}
    stated = {
        name: str(row[name])
        for name, knob in own.items()
        if name in row and name not in closed and not knob.sets
    }
    knobs = {name: value for name, value in stated.items() if value not in ("", "nan")}
    again = nearkv.estimate(
        str(row["system"]),
        str(row["model"]),
        platform=asked["platforms"][0],
        batch=int(row["batch"]),
        context=int(row["context_tok"]),
        output_tokens=32,
        sets={"uplink.bandwidth": f"{bandwidth}GB/s", "gpu.price": f"{price}USD"},
        knobs=knobs,
    )
    assert again[by] == row[by], (row, knobs)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.deep) for s in range(1, 40))]
)
@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_order_and_company_change_no_best_row(seed: int) -> None:
    check_what_changes_nothing(Random(seed))


@pytest.mark.parametrize("prices", [["5000USD", "9000USD"], ["9000USD", "5000USD"]])
def test_ties_go_to_the_cheaper_then_the_smaller_number(prices: list[str]) -> None:
    """Neither a price nor a link that FlexGen does not use changes how fast it is."""
    sets = {"uplink.bandwidth": ["32GB/s", "8GB/s"], "gpu.price": prices}
    study = Study(("flexgen-dram",), ("opt-30b",), sets=sets, platforms=("hilos-a100",))
    with pytest.warns(NearkvWarning, match="changes nothing"):
        shown = best(study, kept(1, "throughput_tok_s"), quietly())
    assert shown["gpu.price_usd"].tolist() == [5000]
    assert shown["uplink.bandwidth_gb_s"].tolist() == [8]

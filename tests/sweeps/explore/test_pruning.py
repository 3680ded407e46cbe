"""Points proved away by bounds: the best rows are those of a visit of all points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fuzz.pruned import campaign, searched
from numpy.typing import NDArray

from nearkv.costmodel.model.registry import System
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.bounds import Bounds, Boxes
from nearkv.sweeps.evaluate.cells import cells
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.explore import pruning
from nearkv.sweeps.explore.pareto import pareto
from nearkv.sweeps.jobs import best as best_rows
from nearkv.sweeps.jobs.best import best
from nearkv.sweeps.jobs.reduce import BestPer, Reducer, Top
from nearkv.sweeps.jobs.running import SweepRun
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.study import Block, Study, blocks


def rows(study: Study, reducer: Reducer, messages: list[str] | None = None) -> Columns:
    told = [] if messages is None else messages
    run = SweepRun(Workers(), messages is None, False, told.append, lambda _: True)
    return best(study, reducer, run)


@pytest.fixture(autouse=True)
def without_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_rows, "announce", lambda *_, **__: None)


def assert_same(one: Columns, other: Columns) -> None:
    assert one.keys() == other.keys()
    for name, column in one.items():
        is_number = column.dtype.kind == "f"
        assert np.array_equal(column, other[name], equal_nan=is_number), name


@pytest.fixture(scope="module")
def study() -> Study:
    """Designs of two models, of which some run short of host memory."""
    return Study(
        ("flexgen-dram",),
        ("opt-66b", "llama2-70b"),
        batch="1:64:+9",
        context="4k:512k:x2",
        output_tokens="32,128",
        sets={"gpu_link.bandwidth": "8GB/s:32GB/s:+4GB/s"},
    )


@pytest.mark.parametrize(
    "reducer",
    [
        Top("throughput_tok_s", most=20),
        Top("prefill_s", most=7),
        Top("output_tokens", most=100),
        BestPer("energy_j_tok", ("model", "context_tok")),
        BestPer("step_ms", ("status",)),
    ],
    ids=str,
)
@pytest.mark.slow
def test_the_best_rows_are_the_same(study: Study, reducer: Reducer) -> None:
    """Ties too: prefill does not depend on the output, so that the first rows stay."""
    messages: list[str] = []
    expected = rows(study, reducer)
    with searched(0, most_at_once=64):
        answer = rows(study, reducer, messages)
    assert_same(answer, expected)
    proved, rest = messages[-1].split(maxsplit=1)
    assert rest == "of 1,792 design points proved away by bounds"
    assert 500 < int(proved.replace(",", "")) < 1_792


@pytest.mark.filterwarnings("ignore:--set")  # some systems do not read what is drawn
@pytest.mark.slow
def test_random_studies() -> None:
    """`python -m fuzz.pruned SEED STUDIES POINTS` compares more and larger ones."""
    assert not list(campaign(seed=3, studies=3, points=200))


@pytest.mark.slow
def test_bounds_that_prove_little_are_given_up(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks are then visited whole, what was visited before included."""
    monkeypatch.setattr(pruning, "ENOUGH", 0)
    messages: list[str] = []
    expected = rows(study, Top("step_ms", most=50), messages)
    with searched(0):
        assert_same(rows(study, Top("step_ms", most=50)), expected)
    assert not any("proved" in message for message in messages)


@pytest.mark.parametrize("where", [[], ["step_ms<=9000", "batch_run>=8"]], ids=str)
@pytest.mark.slow
def test_the_undominated_designs_are_the_same(study: Study, where: list[str]) -> None:
    """Of one price all, so that equal designs meet; conditions leave out the fastest."""
    by, messages = "throughput_tok_s,step_ms,cost_usd", list[str]()
    expected = pareto(study, by, where, "model,output_tokens")
    with searched(0, most_at_once=64):
        answer = pareto(study, by, where, "model,output_tokens", messages.append)
    assert_same(answer, expected)
    proved, rest = messages[-1].split(maxsplit=1)
    assert rest == "of 1,792 design points proved away by bounds"
    assert 100 < int(proved.replace(",", "")) < 1_792


def test_a_search_refuses_what_a_visit_does(study: Study) -> None:
    with searched(0), pytest.raises(InputError, match="did you mean 'cost_usd'"):
        pareto(study, "throughput_tok_s,cost", [])
    with searched(0), pytest.raises(InputError, match="no design meets every --where"):
        pareto(study, "throughput_tok_s,cost_usd", ["step_ms<=1e-6"])


def boxes_of(block: Block, seed: int) -> Boxes:
    """60 boxes of a block, each of one model."""
    random = np.random.default_rng(seed)
    corners = random.integers(0, block.grid.shape, (2, 60, len(block.grid.axes)))
    corners[1, :, 0] = corners[0, :, 0]
    return Boxes(corners.min(axis=0), corners.max(axis=0))


def values_in(block: Block, boxes: Boxes, name: str) -> Iterator[NDArray[np.float64]]:
    """Values of a column in each box."""
    cell: Any = cells(block, block.grid.whole, (name,))[name]
    whole = np.broadcast_to(cell, block.grid.shape)
    for first, last in zip(boxes.first, boxes.last, strict=True):
        box = tuple(slice(i, j + 1) for i, j in zip(first, last, strict=True))
        yield whole[box].ravel()


SOLVED = {"hilos": {"alpha": "auto"}, "inf2": {"alpha": "auto"}, "vllm-multinode": {}}


@pytest.mark.parametrize("name", SOLVED)
def test_bounds_enclose_what_a_system_answers(name: str) -> None:
    study = Study((name,), ("opt-66b",), batch="1:40:+3", context="4k:2M:x2", knobs=SOLVED[name])
    (block,) = blocks(study)
    boxes = boxes_of(block, seed=1)
    columns = ("throughput_tok_s", "step_ms", "energy_j_tok")
    bounds = Bounds(block, columns).of(boxes)
    assert bounds is not None
    for column in columns:
        numbers = bounds[column].numbers
        for place, values in enumerate(values_in(block, boxes, column)):
            known = values[~np.isnan(values)]
            assert np.all(numbers.low[place] <= known)
            assert np.all(known <= numbers.high[place])
            assert numbers.blank[place] or len(known) == len(values)


@pytest.mark.slow
def test_most_systems_have_bounds(system: System) -> None:
    """The others look at values in a way that no rule covers, and are visited point by point."""
    without = ("-major", "cpu-offload", "mapping", "h2m2", "oracle", "naive", "asymmetric")
    study = Study((system.name,), ("llama2-70b",), batch="4:64:x2", context="4k:64k:x2")
    (block,) = blocks(study)
    bounds = Bounds(block, ("throughput_tok_s",)).of(boxes_of(block, seed=2))
    assert (bounds is None) == any(part in system.name for part in without)

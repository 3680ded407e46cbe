"""One search: its best is that of a sort of all rows, and every point ends in one way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.columns import Cell, cells
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.jobs.search import (
    BEST,
    NO_BETTER,
    Best,
    Candidates,
    Search,
    candidates_at,
    to_digits,
)
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Categories

LIMIT = Target("step_ms", "", False, 50.0, "--slo")


def chunks_of(
    table: Mapping[str, NDArray[Any]], least: Sequence[tuple[float, ...]] = (), size: int = 7
) -> Iterator[Candidates]:
    """A table as candidates, in chunks of rows."""
    count = len(table["step_ms"])
    for number, start in enumerate(range(0, count, size)):
        rows = np.arange(start, min(start + size, count))

        def evaluate(wanted: Sequence[str], rows: NDArray[Any] = rows) -> Mapping[str, Cell]:
            ok = Categories(table["status"][rows], ("ok", "infeasible"))
            return {name: ok if name == "status" else table[name][rows] for name in wanted}

        yield Candidates(rows, rows.shape, evaluate, least[number] if least else ())


def drawn(seed: int, count: int = 60) -> dict[str, NDArray[Any]]:
    """Rows with ties, some of which have no answer."""
    rng = np.random.default_rng(seed)
    table: dict[str, NDArray[Any]] = {
        name: rng.integers(1, 20, count) * 5.0 for name in ("cost_usd", "step_ms", "rack_units")
    }
    table["status"] = rng.integers(0, 2, count)
    for name in ("cost_usd", "step_ms"):
        table[name] = np.where(table["status"] == 0, table[name], np.nan)
    return table


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_the_first_of_a_sort_and_the_nearest_where_none_meets(seed: int) -> None:
    table = drawn(seed)
    value = 1.0 if seed % 4 == 0 else float(seed * 5)
    limit = Target("step_ms", "", False, value, "--slo")
    reducer = Best(("cost_usd",), (False,), where=(limit,), ties=("rack_units",), nearest=True)
    found = Search(reducer).over(chunks_of(table))

    def order(row: int) -> tuple[float, ...]:
        excess = max(float(np.log(table["step_ms"][row] / value)), 0.0)
        return (round(excess, 8), table["cost_usd"][row], table["rack_units"][row], row)

    answered = [row for row in range(60) if table["status"][row] == 0]
    assert found.kept.rows.tolist() == [min(answered, key=order)]
    meets = np.sum(table["step_ms"] <= value)
    assert found.outcomes.get(BEST, 0) == meets
    assert sum(found.outcomes.values()) == 60
    assert found.outcomes["are short of memory"] == np.sum(table["status"])


def test_without_a_word_on_the_nearest_a_row_beyond_its_limit_is_not_kept() -> None:
    table = {"cost_usd": np.array([1.0, 2.0]), "step_ms": np.array([50.1, 60.0])}
    table["status"] = np.zeros(2, int)
    found = Search(Best(("cost_usd",), (False,), where=(LIMIT,))).over(chunks_of(table))
    assert found.kept.rows.tolist() == []


def test_points_that_are_known_to_be_no_better_are_counted_and_not_evaluated() -> None:
    table = {name: np.arange(1.0, 22) for name in ("cost_usd", "step_ms")}
    table["status"] = np.zeros(21, int)
    reducer = Best(("cost_usd",), (False,), where=(LIMIT,))
    found = Search(reducer).over(chunks_of(table, [(0.0, 1.0), (0.0, 8.0), (0.0, 15.0)]))
    assert found.outcomes == {BEST: 7, NO_BETTER: 14}
    assert found.kept.rows.tolist() == [0]


def test_a_search_that_is_stopped_says_so_and_keeps_its_best() -> None:
    table = drawn(1)

    def pressed() -> Iterator[Candidates]:
        yield from list(chunks_of(table))[:2]
        raise KeyboardInterrupt

    reducer = Best(("cost_usd",), (False,))
    found = Search(reducer).over(pressed())
    assert found.is_interrupted
    assert not found.is_complete
    assert sum(found.outcomes.values()) == 14
    assert not Search(reducer, until=0.0).over(chunks_of(table)).is_complete


def test_a_front_keeps_one_row_of_those_alike() -> None:
    table = {"cost_usd": np.array([1.0, 1, 2, 3]), "step_ms": np.array([4.0, 4, 3, 3])}
    table["status"] = np.zeros(4, int)
    front = Best(("cost_usd", "step_ms"), highest=(False, False))
    found = Search(front).over(chunks_of(table, size=2))
    assert found.kept.rows.tolist() == [0, 2]


def test_a_front_skips_no_points_by_their_first_column_alone() -> None:
    table = {"cost_usd": np.array([1.0, 2.0]), "step_ms": np.array([4.0, 3.0])}
    table["status"] = np.zeros(2, int)
    front = Best(("cost_usd", "step_ms"), highest=(False, False))
    found = Search(front).over(chunks_of(table, [(0.0, 1.0), (0.0, 2.0)], size=1))
    assert found.kept.rows.tolist() == [0, 1]


def test_each_group_has_a_front_of_its_own() -> None:
    table = {"cost_usd": np.array([1.0, 2, 3, 4]), "step_ms": np.array([4.0, 5, 4, 6])}
    table |= {"rack_units": np.array([1.0, 2, 2, 3]), "status": np.zeros(4, int)}
    front = Best(("cost_usd", "step_ms"), highest=(False, False), per=("rack_units",))
    found = Search(front).over(chunks_of(table))
    assert sorted(found.kept.rows.tolist()) == [0, 1, 2, 3]


def test_values_tie_from_the_tenth_digit_on() -> None:
    values = np.array([0.0, np.inf, 1.0, 1 + 1e-11, 1 + 1e-8, -3e-9])
    rounded = to_digits(values)
    assert rounded[2] == rounded[3] != rounded[4]
    assert rounded[[0, 1, 5]].tolist() == values[[0, 1, 5]].tolist()


def test_a_list_of_points_has_the_digits_of_a_grid() -> None:
    """Batches and counts of devices as a list, and as the axes of a study."""
    study = Study(("hilos",), ("opt-66b",), context="32k", output_tokens=32)
    (point,) = blocks(study)
    (grid,) = blocks(study.but(batch="1,8,64", sets={"csd.count": "4,8"}))
    batch, count = np.array([1.0, 8, 64, 1, 8, 64]), np.array([4.0, 4, 4, 8, 8, 8])
    listed = candidates_at(point, {"batch": batch}, {"csd.count": count})
    wanted = ["throughput_tok_s", "cost_usd", "alpha"]
    own, every = listed.evaluate(wanted), cells(grid, grid.grid.whole, wanted)
    for name in wanted:
        expected = np.broadcast_to(every[name], grid.grid.shape).squeeze().T.ravel()  # type: ignore[arg-type]
        assert np.broadcast_to(own[name], (6,)).tolist() == expected.tolist()  # type: ignore[arg-type]

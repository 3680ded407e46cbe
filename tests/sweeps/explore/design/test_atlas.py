"""A grid of workloads: each cell as `design` answers it alone, borders, and shares of draws."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.machine_draws import counted_shares

import nearkv
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import InputError, UnmetError
from nearkv.sweeps.explore.design.answer import best_machines
from nearkv.sweeps.explore.design.atlas import DRAWS
from nearkv.sweeps.explore.design.flips import best_shares
from nearkv.sweeps.explore.design.goal import Goal, budget_limits
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks

pytestmark = pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
SYSTEMS = "h2m2,hierarchical,hilos,gpu,cpu-offload"
ASKED: dict[str, Any] = {
    "model": "llama3.1-70b",
    "servers": "h2m2-server,hillinfer-server,mac-studio-desktop",
}
FIVE_SERVERS = ("h2m2-server", "hillinfer-server", "hbf-server", "l3-server", "mac-studio-desktop")
GRID: dict[str, Any] = {"context": "8k,64k", "batch": "1,64"}
PRICES = (12_000, 20_000, 60_000)
BUDGET = ",".join(f"{price}USD" for price in PRICES)


def alone(price: float, context: float, batch: float, **asked: Any) -> pd.DataFrame:
    """The answer to one cell; no row where no machine serves."""
    try:
        return nearkv.design(
            asked.pop("systems", SYSTEMS),
            context=context,
            batch=batch,
            budget=f"{price}USD",
            maximize="throughput_tok_s",
            **{**ASKED, **asked},
        )
    except UnmetError:
        return pd.DataFrame()


def check_cells(table: pd.DataFrame, cells: Sequence[Sequence[float]], **asked: Any) -> None:
    """Each cell has the rows of `design`, column by column."""
    for price, context, batch in cells:
        chosen = (table["budget_usd"] == price) & (table["context_tok"] == context)
        cell = table[chosen & (table["batch"] == batch)].reset_index(drop=True)
        expected = alone(price, context, batch, **asked)
        if expected.empty:
            assert cell["status"].tolist() == ["infeasible"]
            assert cell["reason"][0]
            continue
        shared = cell[list(expected.columns)]
        # a column that is blank in all rows of a table has another type
        own, other = (table.astype(object).where(table.notna(), "") for table in (shared, expected))
        pd.testing.assert_frame_equal(own, other)


def test_each_cell_is_what_design_says_of_it_alone() -> None:
    table = nearkv.design(SYSTEMS, budget=BUDGET, **ASKED, **GRID)
    check_cells(table, [(12_000, 65_536, 64), (60_000, 65_536, 64)])


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_fifty_random_cells_of_all_systems_are_what_design_says_of_them_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    servers = ",".join(FIVE_SERVERS)
    asked: dict[str, Any] = {"systems": "", "servers": servers}
    contexts = 8192 << np.sort(random.choice(8, 2, False))
    batches = 1 << np.sort(random.choice(9, 2, False))
    prices = np.sort(random.choice([8, 15, 20, 40, 60, 100], 2, False))
    table = nearkv.design(
        model="llama3.1-70b",
        servers=servers,
        budget=",".join(f"{price}kUSD" for price in prices),
        context=contexts.tolist(),
        batch=batches.tolist(),
    )
    cells = [
        (1000 * int(random.choice(prices)), int(random.choice(contexts)), int(batch))
        for batch in random.choice(batches, 5)
    ]
    check_cells(table, cells, **asked)


def test_a_batch_beyond_a_memory_runs_in_the_rounds_that_are_fastest() -> None:
    """Each size of a round tried one by one; `estimate` does not divide a batch unless asked."""
    asked: dict[str, Any] = {"systems": "h2m2,hilos", "context": 524_288, "batch": 64}
    best = alone(60_000, **asked).set_index("system")
    each = [alone(60_000, **asked, per_round=2**size) for size in range(7)]
    served = {2**size: one.set_index("system") for size, one in enumerate(each) if len(one)}
    rates = pd.DataFrame({size: one["throughput_tok_s"] for size, one in served.items()})
    assert best["throughput_tok_s"].to_dict() == pytest.approx(rates.max(axis=1).to_dict())
    assert best["batch_run"].to_dict() == rates.idxmax(axis=1).to_dict()
    assert best["batch_run"].to_dict() == {"h2m2": 2, "hilos": 4}
    assert each[-1].empty, "no memory holds 64"
    at_once: dict[str, Any] = {"users": 64, "budget": "60kUSD", "best_per": "system"}
    table = nearkv.design("h2m2,hilos", context="512k", **at_once, **ASKED)
    assert table["status"].tolist() == ["infeasible"]


def test_a_larger_batch_serves_no_fewer_tokens_per_second() -> None:
    """Who has a batch twice as large may run it as two of the smaller one."""
    table = nearkv.design("h2m2,hilos", context="512k", batch="1:64:x2", budget="60kUSD", **ASKED)
    rates = table.pivot_table(index="system", columns="batch", values="throughput_tok_s")
    assert rates.shape == (2, 7)
    assert (rates.diff(axis=1).iloc[:, 1:] >= -1e-9 * rates.iloc[:, 1:]).all(axis=None)


def test_the_best_of_a_technology_is_the_best_of_its_systems() -> None:
    asked: dict[str, Any] = {"budget": "60kUSD", **ASKED, **GRID}
    systems = nearkv.design(SYSTEMS, **asked)
    best = nearkv.design(SYSTEMS, best_per="technology", **asked)
    names = ["context_tok", "batch", "technology"]
    expected = systems.groupby(names)["throughput_tok_s"].max()
    pd.testing.assert_series_equal(best.set_index(names)["throughput_tok_s"].sort_index(), expected)
    technologies = {name: find_system(name).technology for name in SYSTEMS.split(",")}
    assert technologies["h2m2"] == technologies["hierarchical"] == "LPDDR beside HBM"
    assert (systems["technology"] == systems["system"].map(technologies)).all()


def test_a_cell_in_which_nothing_serves_says_why_and_the_others_are_counted() -> None:
    asked: dict[str, Any] = {**ASKED, "servers": "h2m2-server", "best_per": "technology"}
    table = nearkv.design("h2m2", context="64k,1M", users="64", budget="20kUSD", **asked)
    assert table["status"].tolist() == ["infeasible", "infeasible"]
    assert "are short of memory" in table["reason"][1]
    assert table.attrs["conclusion"] == ["Within 20,000 USD: of 2 cells no machine 2."]
    cheap = nearkv.design("h2m2", context="8k", users="1", budget="1kUSD", **asked)
    assert cheap["reason"].tolist() == ["no machine is within the budget"]


def test_at_a_border_one_technology_takes_over_from_the_other() -> None:
    """The next whole number is won by the other, as `design` says of both alone."""
    asked: dict[str, Any] = {**ASKED, "best_per": "technology", "budget": "20kUSD"}
    axes: dict[str, Any] = {"context": "32k,128k", "batch": "8,64"}
    table = nearkv.design("hilos,gpu", borders=True, **axes, **asked)
    borders = table.attrs["borders"]
    assert {row["along"] for row in borders} == {"context", "batch"}
    for row in borders:
        for end, won in (("below", "from"), ("above", "to")):
            context = row[end] if row["along"] == "context" else row["context_tok"]
            batch = row[end] if row["along"] == "batch" else row["batch"]
            best = alone(20_000, context, batch, systems="hilos,gpu")
            assert best["technology"][0] == row[won]
            assert best["system"][0] == row[f"{won}_system"]
        assert row["above"] == row["below"] + 1


def test_a_stated_size_of_rounds_holds_on_a_system_that_takes_its_own() -> None:
    asked: dict[str, Any] = {"model": "llama3.1-8b", "servers": "workstation-2gpu"}
    own, stated = (
        alone(10_000, 16_384, 64, systems="gpu", **asked, **rounds)
        for rounds in ({}, {"per_round": "1,2"})
    )
    assert own["batch_run"][0] > stated["batch_run"][0] == 2
    assert own["tpot_ms"][0] > stated["tpot_ms"][0]


def test_smaller_rounds_than_memory_holds_keep_a_limit_on_a_cheaper_machine() -> None:
    """Memory of one card holds more, whose tokens would come too late."""
    asked: dict[str, Any] = {"model": "llama3.1-8b", "context": "16k", "output_tokens": 256}
    asked |= {"slo": "tpot_ms=20,ttft_s=100", "servers": "workstation-2gpu", "batch": 64}
    best = nearkv.design("gpu", budget="60kUSD", **asked)
    at_once = nearkv.design("gpu", budget="60kUSD", per_round=64, **asked)
    assert best["cost_usd"][0] < at_once["cost_usd"][0]
    assert best["tpot_ms"][0] <= 20
    assert best["batch_run"][0] == 4


def test_a_strip_between_two_cells_is_found_and_a_fine_grid_agrees() -> None:
    """Between LPDDR and a GPU, SmartSSDs win for 26,000 tokens that no cell of the grid shows.

    LPDDR does not hold eight sequences there, and may not take them in rounds.
    """
    asked: dict[str, Any] = {**ASKED, "best_per": "technology", "budget": "20kUSD", "per_round": 8}
    table = nearkv.design("h2m2,hilos,gpu", context="64k,512k", batch=8, borders=True, **asked)
    borders = table.attrs["borders"]
    assert [row["to"] for row in borders] == ["near drives", "GPU memory"]
    fine = np.linspace(470_000, 520_000, 6)
    wins = nearkv.design("h2m2,hilos,gpu", context=fine, batch=8, **asked)
    first = wins.groupby("context_tok", sort=True)["technology"].first().tolist()
    changes = [place for place, pair in enumerate(pairwise(first)) if len({*pair}) > 1]
    assert len(changes) == 2
    for place, row in zip(changes, borders, strict=True):
        assert fine[place] <= row["below"] < row["above"] <= fine[place + 1]


def test_the_share_of_draws_is_a_direct_count() -> None:
    """Each draw as a machine of its own, one by one, its rate per dollar beyond the budget."""
    goal = Goal(("throughput_tok_s",), (True,), budget_limits(["20kUSD"]))
    asked: dict[str, Any] = {"context": 4096, "batch": 4}
    rivals = blocks(Study(("gpu", "h2m2", "hilos"), "opt-13b", platforms=("common",), **asked))
    shares = best_shares(goal, rivals, 16)
    assert shares.tolist() == counted_shares(rivals, 16, 20_000).tolist()
    assert shares.sum() == 1
    assert DRAWS == 256


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_the_shares_of_twenty_random_cells_are_direct_counts(seed: int) -> None:
    """Cells are drawn until several systems serve one."""
    random = np.random.default_rng(seed)
    rivals: list[Block] = []
    while len(rivals) < 2:
        study = Study(
            ("gpu", "cpu-offload", "hilos", "hillinfer", "l3", "h2m2", "hbf"),
            "llama3.1-70b",
            context=int(8192 << random.integers(0, 8)),
            batch=int(4 ** random.integers(0, 5)),
        )
        budget = int(random.choice([15, 20, 40, 60])) * 1000
        goal = Goal(("throughput_tok_s",), (True,), budget_limits([f"{budget}USD"]))
        with suppress(UnmetError):
            designs = best_machines(Question(study, goal, FIVE_SERVERS)).designs
            rivals = [design.block for design in designs]
    shares = best_shares(goal, rivals, 16)
    assert shares.tolist() == counted_shares(rivals, 16, budget).tolist()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"best_per": "joy"}, "unknown column 'joy'"),
        ({"pareto": "cost_usd,tpot_ms"}, "takes no --class, --pareto or --seconds"),
        ({"seconds": 5.0}, "takes no --class, --pareto or --seconds"),
        ({"budget": "20kUSD,20000USD"}, "--budget"),
        ({"output_tokens": "64,128"}, "not a list"),
    ],
)
def test_what_a_grid_does_not_take(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        nearkv.design("h2m2", **{**ASKED, **GRID, **words})


def test_the_reason_is_no_number_that_machines_of_a_system_lack() -> None:
    """Most machines of expert-offload state no rate that it reads, at any workload."""
    table = nearkv.design(
        "gpu,expert-offload",
        "gpt-oss-120b",
        servers="workstation-4gpu,mac-studio-desktop",
        context="64k",
        users=16,
        slo="tpot_ms=100",
        budget="20kUSD",
        best_per="system",
    )
    assert "lack a number" not in table["reason"][0]

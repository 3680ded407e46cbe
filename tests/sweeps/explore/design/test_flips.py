"""Numbers that turn a ranking, by hand: a price at which two machines cost the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nearkv
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.explore.design.flips import flips_of
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.study.study import Study, blocks

ASKED: dict[str, Any] = {"model": "gpt-oss-20b", "context": "16k", "users": 4, "output_tokens": 256}
SERVERS = "workstation-4gpu,dgx-spark-desktop"


def priced(tmp_path: Path, low: float, high: float) -> str:
    file = tmp_path / "prices.csv"
    file.write_text(f"part,usd,low,high\ndgx-spark-desktop,4699,{low},{high}\n", encoding="utf-8")
    return str(file)


def test_the_price_at_which_the_runner_up_costs_as_much(tmp_path: Path) -> None:
    """The box alone is the price of its machine, so it is no longer first at the other's price."""
    prices = priced(tmp_path, 3000, 90_000)
    table = nearkv.design("gpu,full-cache", servers=SERVERS, prices=prices, **ASKED)
    first, second = table.to_dict("records")
    assert first["server"] == "dgx-spark-desktop"
    sentence = next(text for text in table.attrs["conclusion"] if " wins with " in text)
    assert sentence.startswith(second["system"])
    _, _, after = sentence.partition("server.price of dgx-spark-desktop at ")
    assert float(after.split(" USD")[0]) == pytest.approx(second["cost_usd"], rel=1e-4)


def test_a_band_of_one_machine_says_that_none_is_second() -> None:
    table = nearkv.design("gpu", servers=SERVERS, band=90, **ASKED)
    assert any("there is one, without a limit" in text for text in table.attrs["conclusion"])


def test_the_only_machine_tells_its_nearest_limit_and_what_would_exceed_it(tmp_path: Path) -> None:
    """The box is all that is paid for, so the price turns at the budget, 3 % above it.

    Its price alone is drawn beyond the budget: from 4,000 to 8,000 in some of the draws.
    """
    budget = 4840
    asked: dict[str, Any] = {
        **ASKED, "servers": "dgx-spark-desktop", "budget": f"{budget:g}USD",
        "prices": priced(tmp_path, 4000, 8000),
    }  # fmt: skip
    said = " ".join(nearkv.design("gpu", **asked, slo="tpot_ms=1000", band=90).attrs["conclusion"])
    assert (
        "gpu on dgx-spark-desktop is nearest to the limit cost_usd <= 4840: 4699, 2.9% within"
        in said
    )
    share = float(said.partition("keeps every limit in ")[2].partition("%")[0])
    assert 0 < share < 100
    _, _, after = said.partition("misses a limit with server.price of dgx-spark-desktop at ")
    assert float(after.split(" USD")[0]) == pytest.approx(budget, rel=1e-4)


def test_a_price_that_cannot_rise_so_far_turns_nothing(tmp_path: Path) -> None:
    prices = priced(tmp_path, 4000, 5000)
    table = nearkv.design("gpu,full-cache", servers=SERVERS, prices=prices, **ASKED)
    assert not any("dgx-spark-desktop at" in text for text in table.attrs["conclusion"])


def test_a_winner_by_far_wins_in_all_draws(tmp_path: Path) -> None:
    prices = priced(tmp_path, 4698, 4700)
    table = nearkv.design("gpu,full-cache", servers=SERVERS, prices=prices, band=90, **ASKED)
    assert any("wins in 100% of the draws" in text for text in table.attrs["conclusion"])


def test_a_number_that_breaks_a_budget_is_no_win_of_the_other() -> None:
    """A dearer drive puts the first machine over the budget, and makes the second no faster."""
    first, second = (
        blocks(Study((system,), ("opt-66b",), context="32k"))[0]
        for system in ("hilos", "flexgen-dram")
    )
    budget = Target("cost_usd", "", False, 51_300.0, "--budget")
    goal = Goal(("throughput_tok_s",), (True,), (budget,))
    turning = flips_of(goal, first, second)
    prices = [misses for text, misses in turning if ".price of" in text]
    assert prices
    assert all(prices)


def test_widths_that_are_chosen_stay_while_other_numbers_turn() -> None:
    """In 16 bits this model is too large for the first machine, which would lose to all."""
    table = nearkv.design(
        "gpu,hilos",
        servers="hillinfer-server,workstation-4gpu",
        model="llama3.1-70b",
        context="64k",
        budget="20kUSD",
        maximize="throughput_tok_s",
        sets={"precision.weight": "fp8", "precision.kv": "fp8"},
    )
    first, second = table["throughput_tok_s"]
    assert first > 10 * second
    assert not any("rack_units" in text or ".page of" in text for text in table.attrs["conclusion"])

"""Machines that share classes of requests, against mixes of every machine there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.designs import Asked, every_row, small_server

import nearkv
from nearkv.hardware.errors import InputError, UnmetError
from nearkv.solvers.mix import cheapest_mix

CLASSES = ("chat:4k:256:10", "docs:64k:1k:0.5")
SLOW_CLASSES = ("a:4k:64:0.1", "b:16k:32:0.05")
SMALL = ("workstation-2gpu", "pcie-4gpu-server", "dgx-spark-desktop")
ASKED: dict[str, Any] = {"slo": "tpot_ms=66", "servers": SMALL}


@pytest.mark.parametrize(
    ("systems", "model", "lengths", "limits", "need"),
    [
        ("gpu", "gpt-oss-20b", CLASSES, {"slo": "tpot_ms=66", "budget": "60kUSD"}, "cost_usd"),
        ("gpu", "gpt-oss-20b", CLASSES, {"slo": "tpot_ms=500"}, "power_cap_w"),
        (
            "flexgen-dram",
            "opt-30b",
            SLOW_CLASSES,
            {"budget": "40U"},
            "cost_usd",
        ),
    ],
)
def test_no_mix_of_all_machines_is_cheaper(
    systems: str,
    model: str,
    lengths: tuple[str, ...],
    limits: dict[str, Any],
    need: str,
    tmp_path: Path,
) -> None:
    """Every machine is a kind of node here, not only those that no other dominates."""
    rng = np.random.default_rng(5)
    names = ("dgx-spark-desktop", "workstation-2gpu", "gh200-server")
    files = tuple(small_server(name, rng, tmp_path) for name in names)
    rates, demand, costs = [], [], pd.Series(dtype=float)
    for each in lengths:
        _, context, output, asked = each.split(":")
        workload = {"model": model, "context": context, "output_tokens": output, "batch": 16}
        rows = every_row(Asked(0, (systems,), files, workload, need, False))
        for limit in limits.get("slo", "").split(",") if "slo" in limits else ():
            column, _, most = limit.partition("=")
            rows = rows[rows[column] <= float(most)]
        rows = rows[rows["cost_usd"].notna()] if need == "cost_usd" else rows
        best = rows.groupby("machine").agg({"throughput_tok_s": "max", need: "first"})
        rates.append(best["throughput_tok_s"] / rows["output_tokens"].iloc[0])
        demand.append(float(asked))
        costs = best[need].combine_first(costs)
    rate = np.array([each.reindex(costs.index).fillna(0.0) for each in rates]).T
    served = rate.max(axis=1) > 0
    mix = cheapest_mix(costs.to_numpy()[served], rate[served], np.array(demand))
    assert mix is not None
    servers = list(map(str, files))
    table = nearkv.design(systems, model, classes=lengths, servers=servers, minimize=need, **limits)
    machines = table.groupby(["server", "gpus", "hosts", "dram_gib"])[[need, "nodes"]].first()
    value = (machines[need] * machines["nodes"]).sum()
    assert value == pytest.approx(costs.to_numpy()[served] @ mix.count)


def test_requests_that_hardly_come_take_a_machine_all_the_same() -> None:
    table = nearkv.design("gpu", "llama3.1-8b", classes="a:4k:64:1e-6", servers="workstation-2gpu")
    assert table["nodes"].tolist() == [1]


@pytest.mark.filterwarnings("ignore:--knob")  # some of a split changes nothing on few GPUs
def test_what_each_machine_serves_is_what_estimate_says_of_it(tmp_path: Path) -> None:
    """Rates add up to what is asked, no machine is busy for longer than always."""
    table = nearkv.design("gpu", "gpt-oss-20b", classes=CLASSES, budget="200kUSD", **ASKED)
    assert table.groupby("class")["req_s"].sum().to_dict() == pytest.approx(
        {"chat": 10, "docs": 0.5}, rel=1e-6
    )
    kinds = table.groupby(["server", "gpus", "dram_gib"])
    assert (kinds["busy"].sum() <= kinds["nodes"].first() + 1e-6).all()
    rows: list[Any] = table.to_dict("records")
    for row, machine in zip(rows, table.attrs["machine"], strict=True):
        file = tmp_path / "machine.toml"
        file.write_text(machine)
        lengths = {"context": row["context_tok"], "output_tokens": row["output_tokens"]}
        knobs = {name: row[name] for name in ("tp", "pp", "dp", "ep", "attention")}
        again = nearkv.estimate("gpu", "gpt-oss-20b", platform=str(file), knobs=knobs, **lengths)
        assert again["tpot_ms"] == row["tpot_ms"] <= 66
        served = again["throughput_tok_s"] / row["output_tokens"]
        assert row["req_s"] == pytest.approx(row["busy"] * served)


def test_one_class_takes_the_machine_of_least_cost_for_its_rate() -> None:
    """A desktop serves 0.2 requests of 4,096 tokens a second; ten of them are not the cheapest."""
    asked = {"budget": "200kUSD", **ASKED}
    (few,) = nearkv.design("gpu", "gpt-oss-20b", classes="a:4k:256:0.2", **asked).to_dict("records")
    assert few["server"] == "dgx-spark-desktop"
    assert few["nodes"] == 1
    many = nearkv.design("gpu", "gpt-oss-20b", classes="a:4k:256:10", **asked)
    assert (many["cost_usd"] * many["nodes"]).sum() < 10 / 0.2 * few["cost_usd"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"classes": "a:4k:256:0"}, "must be a number above zero"),
        ({"classes": "a:4k:256"}, "write name:context:output:rate"),
        ({"classes": ":4k:256:1"}, "write name:context:output:rate"),
        ({"classes": "a:0:256:1"}, "must be a whole number"),
        ({"classes": "a:4k:256:1,a:8k:256:1"}, "names 'a' twice"),
        ({"maximize": "throughput_tok_s"}, "make one of them least"),
        ({"pareto": "cost_usd,rack_units"}, "make one of them least"),
        ({"budget": "30USD/h"}, "limit no other by --budget"),
        ({"band": 90}, "leave out --band"),
        ({"context": "4k"}, "leave out a study"),
    ],
)
def test_classes_that_cannot_be_asked_about_are_refused(
    asked: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        nearkv.design("gpu", "gpt-oss-20b", **{"classes": CLASSES, **ASKED, **asked})


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"slo": "ttft_s=3"}, "class docs: no machine meets every limit; the nearest is gpu on"),
        (
            {"budget": "20kUSD"},
            "the best beyond it need cost_usd",
        ),
    ],
)
def test_what_no_machines_serve_says_what_to_relax(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UnmetError, match=sentence):
        nearkv.design("gpu", "gpt-oss-20b", classes=CLASSES, **{**ASKED, **asked})

"""Machines that share classes of requests, against mixes of every machine there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.designs import points_of

import nearkv
from nearkv.hardware.errors import InputError, UnmetError
from nearkv.solvers.mix import cheapest_mix
from nearkv.sweeps.api.design import _question
from nearkv.sweeps.explore.design.certificate import fault_of
from nearkv.sweeps.explore.design.fleet import kinds_of, serve

CLASSES = ("chat:4k:256:10", "docs:64k:1k:0.5")
SMALL = ("workstation-2gpu", "pcie-4gpu-server", "dgx-spark-desktop")
ASKED: dict[str, Any] = {"slo": "tpot_ms=66", "servers": SMALL}


@pytest.mark.parametrize(
    ("systems", "model", "asked"),
    [
        ("gpu", "gpt-oss-20b", {"slo": "tpot_ms=66", "budget": "60kUSD,6kW"}),
        ("gpu", "gpt-oss-20b", {"slo": "ttft_s=20", "minimize": "power_cap_w"}),
        ("flexgen-dram", "opt-30b", {"budget": "40U", "servers": "gh200-server"}),
    ],
)
def test_no_mix_of_all_machines_is_cheaper(systems: str, model: str, asked: dict[str, Any]) -> None:
    """Every machine is a kind of node here, not only those that no other dominates."""
    slow = systems != "gpu"
    lengths = ["a:4k:64:0.1", "b:16k:32:0.05"] if slow else CLASSES
    stated: Any = {"classes": lengths, "servers": SMALL[::2], **asked}
    question = _question(systems, model, stated)
    fleet, (kinds, _), classes = serve(question), kinds_of(question), question.classes
    every = kinds.value(*points_of(kinds.boxes))
    every = every[np.isfinite(every[:, 0])]
    rate = -every[:, -2:] / [each.output_tokens for each in classes]
    demand = np.array([each.rate for each in classes])
    limits = [
        (every[:, kinds.goal.objectives.index(limit.quantity)], limit.value)
        for limit in kinds.goal.limits
        if limit.option == "--budget"
    ]
    # of machines that are alike in all, one
    _, distinct = np.unique(every, axis=0, return_index=True)
    limits = [(needs[distinct], most) for needs, most in limits]
    best = cheapest_mix(every[distinct, 0], rate[distinct], demand, limits)
    assert best is not None
    assert fleet.value == pytest.approx(every[distinct, 0] @ best.count)
    assert fleet.mix.bound == pytest.approx(fleet.value)
    certificate = json.loads(json.dumps(fleet.certificate()))
    assert not fault_of(kinds, certificate)
    certificate["cuts"].pop()
    assert fault_of(kinds, certificate)


@pytest.mark.filterwarnings("ignore:--knob")  # some of a split changes nothing on few GPUs
def test_what_each_machine_serves_is_what_estimate_says_of_it(tmp_path: Path) -> None:
    """Rates add up to what is asked, no machine is busy for longer than always."""
    table = nearkv.design("gpu", "gpt-oss-20b", classes=CLASSES, budget="200kUSD", **ASKED)
    assert table.groupby("class")["req_s"].sum().to_dict() == pytest.approx(
        {"chat": 10, "docs": 0.5}, rel=1e-6
    )
    kinds = table.groupby(["server", "gpus", "dram_gib"])
    assert (kinds["busy"].sum() <= kinds["nodes"].first() + 1e-6).all()
    assert (kinds["cost_usd"].first() * kinds["nodes"].first()).sum() == table["bound"][0]
    assert (table["gap"] == 0).all()
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
    assert many["bound"][0] < 10 / 0.9 * few["cost_usd"]


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

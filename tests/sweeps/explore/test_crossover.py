"""Where one system overtakes another, and which leads on either side."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import nearkv
from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.compare import compare_systems
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.explore.crossover import Race, find_crossovers, why_crossover
from nearkv.sweeps.explore.hardware import find_hardware
from nearkv.sweeps.explore.lines import AxisLine
from nearkv.sweeps.explore.sensitivity import find_elasticities
from nearkv.sweeps.study.study import Study

STATED = {"weights": "host", "alpha": "0.25"}
"""Knobs that a search need not solve anew at every design point."""
POINT = Study(("hilos",), ("opt-66b",), "16", "64k", "64", knobs=STATED)


@pytest.mark.parametrize("order", [1, -1])
def test_where_both_are_equal_nobody_leads(order: int) -> None:
    """Whichever system is named first: beyond 37 requests DRAM runs them in two rounds."""
    names = ("flexgen-dram", "flexgen-ssd")[::order]
    pair = Study(names, ("opt-66b",), context="4k", knobs={"weights": "filled"})
    (row,) = find_crossovers(pair, "batch=34:44", "prefill_s")
    table = compare_systems(pair.but(batch=f"{row['below']},{row['above']}"))
    first, second = table["prefill_s"].astype(float).reshape(2, 2)
    assert first[0] == second[0]
    faster = names[int(first[1] > second[1])]
    assert (row["from"], row["to"], row["reason"]) == ("equal", faster, "")
    sentence = why_crossover(row)
    ends = f"up to batch {row['below']}, {faster} leads from {row['above']} on."
    assert sentence == f"opt-66b: both are equal {ends}"


def test_a_system_that_stops_fitting_hands_over_the_lead() -> None:
    """The memory that is short is the one that a comparison names."""
    pair = Study(("hilos", "h2m2"), ("llama3.1-70b",))
    (row,) = find_crossovers(pair, "context=200k:210k", "decode_tok_s")
    assert (row["from"], row["to"]) == ("h2m2", "hilos")
    beyond = compare_systems(pair.but(context=str(row["above"])))
    (short_of,) = set(beyond["short_of"]) - {""}
    stops = f"h2m2 no longer runs there: {short_of} memory is short"
    assert row["reason"] == f"{stops}; hilos on hilos-a100, h2m2 on gh-asymmetric"
    sentence = why_crossover(row)
    assert sentence.endswith(f"; {row['reason']}.")


@dataclass(frozen=True)
class Tie(Race):
    """A race that the first wins beyond 0.3, equal within some distance of it."""

    width: float = 0.0

    def lead(self, point: Indices, value: Numbers) -> Numbers:
        """Rounding makes it 0 close to the crossing."""
        ahead: Numbers = value - 0.3
        return np.where(np.abs(ahead) <= self.width, 0.0, ahead)


@pytest.mark.parametrize(
    ("width", "leaders"), [(0.0, [(-1, 1)]), (1e-14, [(-1, 1)]), (0.05, [(-1, 0), (0, 1)])]
)
def test_a_tie_of_rounding_is_part_of_a_crossing(
    width: float, leaders: list[tuple[int, int]]
) -> None:
    """A range in which both are equal has two ends; a point of it is no range."""
    one = cast("Probe", SimpleNamespace(size=1))
    race = Tie((one, one), "context", "decode_tok_s", width=width)
    changes = race.changes(AxisLine("context", np.array([0.1, 0.5, 0.9]), whole=False, unit="1"))
    assert [(change.before, change.after) for change in changes] == leaders
    ends = [0.3 - width, 0.3 + width][-len(changes) :]
    assert [change.above for change in changes] == pytest.approx(ends)
    assert all(change.rises for change in changes)


def test_a_search_does_not_play_queues() -> None:
    study = Study(("l3",), ("gpt-175b",), traces=("openr1",), method="simulate")
    for ask in (
        lambda: find_hardware(study, "dimm.ranksets", ["throughput_tok_s=1"]),
        lambda: find_elasticities(study, "throughput_tok_s"),
        lambda: find_crossovers(
            study.but(systems=("l3", "gpu"), platforms=A100), "gpu.count=8:16", "throughput_tok_s"
        ),
    ):
        with pytest.raises(InputError, match="--method simulate"):
            ask()


def test_a_crossover_is_where_a_sweep_changes_leader() -> None:
    pair = POINT.but(systems=("flexgen-dram", "hilos"))
    (row,) = find_crossovers(pair, "csd.count=1:64", "decode_tok_s")
    every = compare_systems(pair.but(sets={"csd.count": "1:64:+1"}))
    ahead = every["speedup"].astype(float)[every["system"] == "hilos"] > 1
    assert (row["from"], row["to"], row["along"]) == ("flexgen-dram", "hilos", "csd.count")
    assert row["resolution"] == 0  # every whole number is looked at
    assert (row["below"], row["above"]) == (int(np.argmax(ahead)), int(np.argmax(ahead)) + 1)


@pytest.mark.slow
def test_who_never_loses_is_named() -> None:
    study = POINT.but(systems=("flexgen-ssd", "hilos"), context=Study.context, knobs={})
    (row,) = find_crossovers(study, "context=1k:1M", "decode_tok_s")
    assert row["reason"] == "never: hilos leads from 1k to 1M"


A100 = "dgx-a100-pim"


def test_nobody_leads_where_neither_fits() -> None:
    systems = ("gpu", "hbm-pim")
    study = Study(
        systems, ("gpt-175b",), platforms=A100, sets={"gpu.memory": "4GB"}
    )  # weights: 350 GB
    (row,) = find_crossovers(study, "context=4k:64k", "decode_tok_s")
    assert (row["from"], row["reason"]) == ("", "never: neither has a value from 4k to 64k")


def test_nobody_leads_where_both_are_equal() -> None:
    study = Study(("flexgen-ssd", "deepspeed-uvm"), ("opt-30b",), context="2k")  # same parts
    (row,) = find_crossovers(study, "batch=1:8", "cost_usd")
    assert (row["from"], row["reason"]) == ("", "never: both are equal from 1 to 8")


@pytest.mark.parametrize(
    ("systems", "along", "of", "requested"),
    [
        (("hilos",), "context=1k:2k", "decode_tok_s", "name two"),
        (("hilos", "hilos"), "context=1k:2k", "decode_tok_s", "name two different"),
        (("hilos", "flexgen-ssd"), "contxt=1k:2k", "decode_tok_s", "did you mean 'context'"),
        (("hilos", "flexgen-ssd"), "context=1k", "decode_tok_s", "AXIS=LOW:HIGH"),
        (("hilos", "flexgen-ssd"), "context=2k:1k", "decode_tok_s", "low before high"),
        (("hilos", "flexgen-ssd"), "context=1k:2k", "decode", "unknown column"),
    ],
)
def test_crossovers_that_cannot_be_asked_for(
    systems: tuple[str, ...], along: str, of: str, requested: str
) -> None:
    with pytest.raises(InputError, match=requested):
        find_crossovers(POINT.but(systems=systems, context=Study.context), along, of)


@pytest.mark.slow
def test_a_crossover_is_an_interval() -> None:
    row = nearkv.solve(
        "crossover",
        "opt-66b",
        systems="flexgen-dram,inf2",
        along="context=4k:256k",
        knobs={"weights": "host"},
        band=90,
        samples=16,
    ).iloc[0]
    assert row["above_p05"] <= row["above"] <= row["above_p95"]
    assert row["above_p05"] < row["above_p95"]
    assert 0 < row["crossing_share"] <= 1


def test_a_crossover_ends_where_a_system_has_no_number_any_more() -> None:
    """L3 decodes faster at every context, up to where prompts ride in all of its steps."""
    pair = Study(("gpu", "l3"), ("llama3.1-8b",), platforms=("common",))
    (row,) = find_crossovers(pair, "context=64k:1M", "decode_tok_s")
    assert row["from"] == "l3"
    assert row["reason"].startswith("never: l3 leads")
    assert "where l3 runs without decode_tok_s" in row["note"]


def test_a_system_that_runs_without_a_decode_rate_is_not_behind() -> None:
    """L3's prompts ride in its steps; its throughput leads where it has no rate of decoding."""
    pair = Study(("gpu", "l3"), ("gpt-175b",), platforms=A100, traces=("openr1",))
    with pytest.raises(InputError, match=r"l3 runs at gpu.count 8 and has no decode_tok_s there"):
        find_crossovers(pair, "gpu.count=8:32", "decode_tok_s")
    (row, *_) = find_crossovers(pair, "gpu.count=8:32", "throughput_tok_s")
    assert row["from"] == "l3"

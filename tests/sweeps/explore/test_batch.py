"""The largest batch and the best one, against every batch tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from support.drawing import CASES, seeded

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate import columns as run
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.explore.batch import ROUNDS, find_batches, why_batch
from nearkv.sweeps.explore.crossover import find_crossovers
from nearkv.sweeps.explore.hardware import find_hardware
from nearkv.sweeps.study.study import Study

STATED = {"weights": "host", "alpha": "0.25"}
"""Knobs that a search need not solve anew at every design point."""
POINT = Study(("hilos",), ("opt-66b",), "16", "64k", "64", knobs=STATED)


def swept(study: Study, name: str) -> np.ndarray:
    return run.table(study)[name].astype(float)


L3 = Study(("l3",), ("gpt-89b",), context="6000")

COUNTED = {
    "hilos": "csd.count",
    "flexgen-16ssd": "raid.count",
    "inf2": "csd.count",
    "gpu": "gpu.count",
    "l3": "dimm.ranksets",
}

MODELS = ("opt-30b", "opt-66b", "llama2-70b", "gpt-89b")

few = settings(seeded, max_examples=max(CASES // 20, 1))
"""A scan evaluates hundreds of designs."""


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """One point of a system whose devices are counted."""
    return Study(
        systems=(draw(st.sampled_from(sorted(COUNTED))),),
        models=(draw(st.sampled_from(MODELS)),),
        batch=str(draw(st.integers(1, 128))),
        context=str(draw(st.integers(8192, 131_072))),
        output_tokens=str(draw(st.integers(2, 256))),
    )


def test_a_batch_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="--batch"):
        find_batches(POINT.but(batch="abc"))


@pytest.mark.slow
def test_a_search_over_too_many_points_is_refused() -> None:
    study = POINT.but(systems=("hilos", "flexgen-ssd"), context="1:200000:+1")
    with pytest.raises(InputError, match="are too many for one search"):
        find_batches(study)
    with pytest.raises(InputError, match="are too many for one search"):
        find_hardware(study, "csd.count", ["step_ms<=1"])
    with pytest.raises(InputError, match="are too many for one search"):
        find_crossovers(study, "batch=1:64", "step_ms")


@pytest.mark.slow
def test_the_best_batch_is_the_best_of_all_that_fit() -> None:
    stated = {"weights": "host"}
    systems = ("flexgen-dram", "flexgen-ssd", "hilos")
    study = Study(systems, ("opt-30b",), "1", "64k", "64", knobs=stated)
    for row in find_batches(study):
        every = run.table(study.but(systems=(row["system"],), batch="1:700:+1"))
        at_once = (every["status"] == "ok") & (
            every["batch_run"].astype(float) >= np.arange(1, 701)
        )
        assert row["largest_batch"] == at_once.sum()
        best = np.nanmax(every["throughput_tok_s"].astype(float)[at_once])
        assert best / 1.001 <= row["throughput_tok_s"] <= best * (1 + 1e-12)
        assert row["bound_tok_s"] >= best * (1 - 1e-12)


def test_the_best_batch_of_a_mapping_solved_anew_at_every_batch() -> None:
    study = Study(("h2m2",), ("gpt3-175b",), "1", "32k", "64")
    (row,) = find_batches(study)
    every = swept(study.but(batch=f"1:{int(row['largest_batch'])}:+1"), "throughput_tok_s")
    assert row["throughput_tok_s"] >= np.nanmax(every) / 1.001


def test_a_batch_that_never_fits() -> None:
    (row,) = find_batches(Study(("flexgen-dram",), ("opt-66b",), "1", "1M", "64"))
    assert row["largest_batch"] == 0
    assert row["value"] is None
    assert row["short_of"] == "host"


@pytest.mark.slow
def test_a_batch_that_the_engine_ends_names_its_limit_and_no_memory() -> None:
    llama = {"engine": ("llama.cpp",)}
    box = ("rtx-4090-box",)
    study = Study(("gpu",), ("llama3.1-8b",), context="4k", platforms=box, parts=llama)
    (row,) = find_batches(study)
    assert row["largest_batch"] == 4
    assert row["short_of"].startswith("the limit of sequences; --knob sequences=0")
    assert "a looser one would raise the batch" in why_batch(row)
    (free,) = find_batches(study.but(knobs={"sequences": "0"}))
    assert free["largest_batch"] > 4
    assert free["short_of"] == ROUNDS


@pytest.mark.slow
def test_the_largest_batch_keeps_its_limits() -> None:
    """One sequence more breaks the limit that is named; a column of the system's own counts too."""
    (row,) = find_batches(L3, ["tpot_ms=400,prefill_s=2"])
    assert row["tpot_ms"] <= 400
    assert row["prefill_s"] <= 2
    assert row["short_of"] == "the limit of prefill_s"
    (free,) = find_batches(L3)
    assert free["largest_batch"] > row["largest_batch"] >= row["value"] >= 1
    (tight,) = find_batches(L3, ["prefill_s=0.001"])
    assert tight["largest_batch"] == 0
    with pytest.raises(InputError, match="no upper limit"):
        find_batches(L3, ["throughput_tok_s=1"])
    with pytest.raises(InputError, match="did you mean 'tpot_ms'"):
        find_batches(L3, ["tbt_m=50"])


@pytest.mark.slow
def test_a_larger_batch_may_keep_a_limit_that_a_smaller_one_breaks() -> None:
    """The greedy mapping takes less time for 302 sequences than for 300; all are tried."""
    study = Study(("h2m2",), ("opt-66b",), context="512", output_tokens="1")
    every = table(study.but(batch="1:400:+1"))
    seconds = every["step_ms"].astype(float)
    limit = float(seconds[298])
    keeps = seconds <= limit
    last = 1 + int(np.flatnonzero(keeps)[-1])
    assert not np.all(keeps[:last]), "otherwise bisection would do"
    (row,) = find_batches(study, [f"step_ms<={limit!r}"])
    assert row["largest_batch"] == last
    assert keeps[row["value"] - 1]
    rates = every["throughput_tok_s"].astype(float)
    assert row["throughput_tok_s"] == np.max(rates[keeps])


@few
@given(studies())
@pytest.mark.slow
def test_the_best_batch_is_the_best_of_a_scan(study: Study) -> None:
    (row,) = find_batches(replace(study, batch=Study.batch))
    most = min(int(row["largest_batch"]), 400)
    if most < 1:
        return
    scan = table(study.but(batch=f"1:{most}:+1"))
    rates = scan["throughput_tok_s"].astype(float)
    assert np.nanmax(rates) <= row["bound_tok_s"] * (1 + 1e-9)
    if most == row["largest_batch"]:
        assert row["throughput_tok_s"] == np.nanmax(rates)


# --- all rows of `compare`, no code of the search ----------------------------------------------

DEGREES = {1: [1], 2: [1, 2], 4: [1, 2, 4], 8: [1, 2, 4, 8]}
MOST_ROWS = 20_000


def random_case(random: np.random.Generator) -> dict[str, Any]:
    """A model on one to eight GPUs of any memory, with some knobs stated."""
    gpus = int(random.choice([1, 2, 4, 8]))
    model = str(random.choice(["llama3.1-8b", "gpt-oss-20b", "qwen3-30b-a3b", "qwen3-32b"]))
    asked: dict[str, Any] = {
        "model": model,
        "context": int(2 ** random.uniform(6, 16)),
        "output_tokens": int(2 ** random.uniform(1, 10)),
        "platform": "hgx-h100",
        "sets": {"gpu.count": gpus, "gpu.memory": f"{random.uniform(8, 90):.1f}GB"},
    }
    stated = {"tp": int(random.choice(DEGREES[gpus])), "pp": 1, "dp": gpus, "ep": gpus}
    asked["knobs"] = {name: value for name, value in stated.items() if random.random() < 0.3}
    return asked


def every_row(asked: dict[str, Any], most: int) -> pd.DataFrame:
    """Rows of every batch with every split."""
    degrees = DEGREES[asked["sets"]["gpu.count"]]
    counts = [*range(1, degrees[-1] + 1)]
    free = {"tp": degrees, "pp": counts, "dp": counts, "ep": degrees}
    knobs = {**free, "attention": ["tp", "dp"], **asked["knobs"]}
    if "tp" in asked["knobs"]:
        knobs["attention"] = ["tp"]
    table = nearkv.compare("gpu", **{**asked, "knobs": knobs}, batch=f"1:{most}:+1")
    if "batch_run" not in table:  # nothing fits anywhere
        return table.head(0)
    return table[(table["status"] == "ok") & (table["batch_run"] >= table["batch"])]


def check_against_every_row(random: np.random.Generator) -> bool:
    """True if there was a case small enough to write out."""
    asked = random_case(random)
    slo = f"tpot_ms={random.uniform(5, 200):.3f}" if random.random() < 0.3 else ()
    (row,) = nearkv.solve("batch", systems="gpu", slo=slo, **asked).to_dict("records")
    gpus = asked["sets"]["gpu.count"]
    splits = 2 * (len(DEGREES[gpus]) * gpus) ** 2
    most = int(row["largest_batch"]) + 8
    if most > 512 or splits * most > MOST_ROWS:
        return False
    served = every_row(asked, most)
    if slo and len(served):
        served = served[served["tpot_ms"] <= float(str(slo).partition("=")[2])]
    assert row["largest_batch"] == (served["batch"].max() if len(served) else 0), (asked, slo)
    if len(served):
        highest = served["throughput_tok_s"].max()
        assert row["throughput_tok_s"] == pytest.approx(highest, rel=1e-9), (asked, slo)
        knobs = {name: row[name] for name in ("tp", "pp", "dp", "ep", "attention")}
        again = nearkv.estimate("gpu", **{**asked, "knobs": knobs}, batch=int(row["value"]))
        assert again["throughput_tok_s"] == row["throughput_tok_s"]
        assert again["step_ms"] == row["step_ms"]
    return True


@pytest.mark.filterwarnings("ignore:.*changes nothing")
def test_no_row_of_any_split_has_a_larger_or_faster_batch() -> None:
    random = np.random.default_rng(3)
    assert sum(check_against_every_row(random) for _ in range(6)) >= 2


@pytest.mark.filterwarnings("ignore:.*changes nothing")
@pytest.mark.deep
def test_no_row_of_any_split_has_a_larger_or_faster_batch_in_100_cases() -> None:
    random = np.random.default_rng(4)
    written_out = 0
    while written_out < 100:
        written_out += check_against_every_row(random)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 30))]
)
@pytest.mark.filterwarnings("ignore:.*changes nothing")
def test_a_limit_that_is_met_changes_no_batch(seed: int) -> None:
    asked = random_case(np.random.default_rng(seed))
    (row,) = nearkv.solve("batch", systems="gpu", **asked).to_dict("records")
    if not row["largest_batch"]:
        return
    knobs = {name: row[name] for name in ("tp", "pp", "dp", "ep", "attention")}
    best = nearkv.estimate("gpu", **{**asked, "knobs": knobs}, batch=int(row["value"]))
    limit = f"tpot_ms={float(best['tpot_ms'])!r}" if best["tpot_ms"] else "step_ms=1e9"
    (met,) = nearkv.solve("batch", systems="gpu", slo=limit, **asked).to_dict("records")
    assert met["throughput_tok_s"] == row["throughput_tok_s"]
    assert met["largest_batch"] <= row["largest_batch"]


def test_a_split_that_a_small_batch_leaves_idle_is_served() -> None:
    """32 replicas with 64ths of the experts, which one request does not fill."""
    asked: dict[str, Any] = {
        "platform": "gb200-tray",
        "sets": {"gpu.count": 72, "nvlink.count": 72},
        "knobs": {"tp": 2, "pp": 1, "dp": 32, "ep": 64, "attention": "dp"},
        "context": 800,
        "output_tokens": 3654,
    }
    (row,) = nearkv.solve("batch", "deepseek-r1", systems="gpu", **asked).to_dict("records")
    assert row["largest_batch"] > 1000


def test_one_knob_more_stated_serves_no_more() -> None:
    """The largest batch is over all free knobs, not of those that are chosen for throughput."""
    asked: dict[str, Any] = {
        "platform": "rtx-4090-box",
        "sets": {"gpu.count": 2},
        "context": "8k",
        "output_tokens": 512,
    }
    largest = []
    for knobs in ({}, {"tp": 2}, {"tp": 2, "attention": "tp"}, {"tp": 1, "pp": 2}):
        table = nearkv.solve("batch", "qwen3-8b", systems="gpu", knobs=knobs, **asked)
        largest.append(table["largest_batch"][0])
    assert largest[0] == max(largest)
    assert largest[1] == largest[2] == 20


def test_a_batch_that_no_split_models_says_so() -> None:
    table = nearkv.solve("batch", "llama3.1-8b", systems="gpu", knobs={"tp": 7})
    assert table["largest_batch"][0] == 0
    assert "do not divide" in table.attrs["conclusion"][0]

"""Answers of `solve hardware`, against a sweep that tries everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from support.drawing import CASES, seeded

import nearkv
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.evaluate import columns as run
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.evaluate.compare import compare_systems
from nearkv.sweeps.explore.crossover import find_crossovers
from nearkv.sweeps.explore.hardware import find_hardware, why_hardware
from nearkv.sweeps.study.study import Study

STATED = {"weights": "host", "alpha": "0.25"}
"""Knobs that a search need not solve anew at every design point."""
POINT = Study(("hilos",), ("opt-66b",), "16", "64k", "64", knobs=STATED)

COUNTS = {"csd.count": "1:200:+1"}


def swept(study: Study, name: str) -> np.ndarray:
    return run.table(study)[name].astype(float)


HILOS = Study(("hilos",), ("opt-66b",))

L3 = Study(("l3",), ("gpt-89b",), context="6000")

COUNTED = {
    "hilos": "csd.count",
    "flexgen-16ssd": "raid.count",
    "inf2": "csd.count",
    "gpu": "gpu.count",
    "l3": "dimm.ranksets",
}

MODELS = ("opt-30b", "opt-66b", "llama2-70b", "gpt-89b")

MOST = 48

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


def test_the_least_count_is_the_first_of_all_counts_that_reaches_the_target() -> None:
    (row,) = find_hardware(POINT, "csd.count", ["throughput_tok_s=0.3"])
    every = swept(POINT.but(sets=COUNTS), "throughput_tok_s")
    assert (row["limit"], row["value"]) == ("at least", 1 + int(np.argmax(every >= 0.3)))
    assert row["throughput_tok_s"] == pytest.approx(every[int(row["value"]) - 1])


@pytest.mark.slow
def test_a_knob_stands_for_its_number_and_ranges_are_kept() -> None:
    (row,) = find_hardware(POINT, "devices", ["throughput_tok_s=0.3"])
    assert (
        row["value"]
        == find_hardware(POINT, "csd.count=1:100", ["throughput_tok_s=0.3"])[0]["value"]
    )
    assert find_hardware(POINT, "csd.count=1:4", ["throughput_tok_s=0.3"])[0]["limit"] == "never"


@pytest.mark.deep
def test_all_targets_are_reached_at_once() -> None:
    wanted = ["throughput_tok_s>=0.2", "step_ms<=70000", "speedup:flexgen-ssd>=5"]
    each = [find_hardware(POINT, "csd.count", [target])[0]["value"] for target in wanted]
    assert find_hardware(POINT, "csd.count", wanted)[0]["value"] == max(each)
    ratio = compare_systems(POINT.but(systems=("flexgen-ssd", "hilos"), sets=COUNTS))
    over = ratio["speedup"].astype(float)[ratio["system"] == "hilos"]
    assert each[2] == 1 + int(np.argmax(over >= 5))


@pytest.mark.slow
def test_a_rate_is_met_to_the_last_digit() -> None:
    (row,) = find_hardware(POINT, "csd.p2p_read", ["step_ms<=80000"])
    near = [f"{row['value'] * factor!r}{row['unit']}" for factor in (1 - 1e-9, 1 + 1e-9)]
    below, above = swept(POINT.but(sets={"csd.p2p_read": ",".join(near)}), "step_ms")
    assert below > 80000 >= above


@pytest.mark.slow
def test_the_highest_price_that_pays() -> None:
    (row,) = find_hardware(POINT, "csd.price", ["cost_usd<=50000"])
    # 7000 (GPU) + 15000 (host) + 10000 (chassis) + 8 SmartSSDs (HILOS sec. 6.6)
    rest = (
        swept(POINT, "cost_usd")[0]
        - 8 * load_platform("hilos-a100").roles["csd"].numbers["price"].si
    )
    assert row["limit"] == "at most"
    assert row["value"] == pytest.approx((50000 - rest) / 8)


def test_a_target_out_of_reach_names_what_binds() -> None:
    (row,) = find_hardware(POINT, "uplink.bandwidth", ["step_ms<=1000"])
    assert row["limit"] == "never"
    assert row["value"] is None
    assert row["binds"] in {"gpu.tensor", "csd.flash", "csd.kernel"}
    assert f"because {row['binds']} binds" in row["reason"]


@pytest.mark.slow
def test_never_is_explained_where_the_target_comes_closest() -> None:
    (row,) = find_hardware(POINT, "csd.count=1:64", ["throughput_tok_s>=0.1", "cost_usd<=100"])
    cost = swept(POINT.but(sets={"csd.count": "1"}), "cost_usd")[0]
    price = f"never: at csd.count = 1 still cost_usd = {cost:.4g}, because of the rest of the price"
    assert row["reason"].startswith(f"{price}, throughput_tok_s = 0.0")
    (row,) = find_hardware(POINT, "csd.count=1:8", ["throughput_tok_s>=1000"])
    assert row["reason"].startswith(
        "never: at csd.count = 8, where the range ends, still throughput_tok_s = "
    )
    dram = POINT.but(systems=("flexgen-dram",), context="1M", knobs={})
    with pytest.warns(NearkvWarning, match="--vary uplink.bandwidth changes nothing"):
        (row,) = find_hardware(dram, "uplink.bandwidth", ["throughput_tok_s>=1"])
    assert "host memory is short of" in row["reason"]
    assert "nan" not in row["reason"]


def test_a_target_that_is_lost_again_has_an_upper_end() -> None:
    every = run.table(POINT.but(sets=COUNTS))
    cost, rate = (every[name].astype(float) for name in ("cost_usd", "throughput_tok_s"))
    wanted = [f"throughput_tok_s>={float(rate[3])!r}", f"cost_usd<={float(cost[6])!r}"]
    (row,) = find_hardware(POINT, "csd.count=1:100", wanted)
    assert (row["limit"], row["value"], row["up_to"]) == ("from", 4, 7)


def test_a_target_that_is_met_again_beyond_its_limit_says_from_where() -> None:
    """Heads are whole: at 227 rows another head moves, and the step is longer than at 228."""
    heads = Study("flexgen-mapping", "mixtral-8x7b", batch=1, context=8192, output_tokens=8)
    rows = range(220, 240)
    every = run.table(heads.but(sets={"hbm_chip.rows": rows}))
    limit = float(every["step_ms"][6])
    (row,) = find_hardware(heads, "hbm_chip.rows=220:240", [f"step_ms<={limit!r}"])
    meets = [count for count, step in zip(rows, every["step_ms"], strict=True) if step <= limit]
    assert (row["limit"], row["value"], row["bound"], row["again_from"]) == (
        "at most",
        226,
        227,
        228,
    )
    assert {226, 228} < {*meets}
    assert 227 not in meets
    sentence = why_hardware(row)
    assert "at most 226, and again from 228;" in sentence


@pytest.mark.parametrize(
    ("vary", "targets", "requested"),
    [
        ("csd.count", [], "write what to reach"),
        (
            "csd.count",
            ["throughput_tok_s>=1", "throughput_tok_s<=0.5"],
            "cannot be at least 1 and at most 0.5",
        ),
        ("csd.count", ["througput_tok_s=1"], "did you mean 'throughput_tok_s'"),
        ("csd.count", ["step_ms"], "write it as"),
        ("csd.count", ["speedup>=2"], "speedup:flexgen-ssd>=5"),
        ("csd.count", ["step_ms:hilos<=2"], "only speedup"),
        ("csd.count", ["step_ms<=0"], "above zero"),
        ("csd.count", ["speedup:nobody>=2"], "unknown system 'nobody'"),
        ("csd.cuont", ["step_ms<=2"], "did you mean 'csd.count'"),
        ("csd.count=8:2", ["step_ms<=2"], "low before high"),
        ("csd.count=1:2:3", ["step_ms<=2"], "LOW:HIGH"),
        ("csd.count=4", ["step_ms<=2"], "low before high"),
    ],
)
def test_hardware_that_cannot_be_asked_for(vary: str, targets: list[str], requested: str) -> None:
    with pytest.raises(InputError, match=requested):
        find_hardware(POINT, vary, targets)


def test_a_number_that_is_searched_is_not_set() -> None:
    with pytest.raises(InputError, match=r"--set csd\.count cannot be set: --vary searches it"):
        find_hardware(POINT.but(sets={"csd.count": "4,8"}), "csd.count", ["step_ms<=1"])
    with pytest.raises(InputError, match="--knob devices cannot be set: --vary searches it"):
        find_hardware(POINT.but(knobs={"devices": "4"}), "csd.count", ["step_ms<=1"])
    with pytest.raises(InputError, match="--context cannot be set: --along searches it"):
        find_crossovers(replace(POINT, systems=("l3", "hilos")), "context=1k:2k", "step_ms")


@pytest.mark.parametrize(
    ("varied", "ends"), [("csd.count=1:4", True), ("host.memory=800GB:900GB", False)]
)
def test_a_range_that_ends_too_soon_is_named(varied: str, ends: bool) -> None:
    (row,) = find_hardware(HILOS, varied, ["throughput_tok_s=50"])
    assert row["limit"] == "never"
    assert ("where the range ends" in row["reason"]) is ends


@pytest.mark.slow
def test_hardware_keeps_limits_on_any_column() -> None:
    """One CSD fewer breaks the limit; a limit that no count keeps beside a target is said."""
    study = Study(("hilos",), ("opt-66b",), context="64k", knobs=STATED)
    (row,) = find_hardware(study, "csd.count", ["step_ms=40000,prefill_s=2000"])
    assert row["step_ms"] <= 40000
    fewer = table(study.but(sets={"csd.count": str(row["value"] - 1)}))
    assert float(fewer["step_ms"][0]) > 40000
    wanted = ["throughput_tok_s=0.3"]
    (never,) = find_hardware(study, "csd.count", [*wanted, "cost_usd=60000"])
    assert never["limit"] == "never"
    (own,) = find_hardware(L3, "dimm.ranksets", ["tpot_ms=110"])
    assert own["limit"] != "never"
    assert own["tpot_ms"] <= 110
    with pytest.raises(InputError, match="--slo: step_ms cannot be"):
        find_hardware(study, "csd.count", ["step_ms>=20", "step_ms=10"])


@few
@given(studies(), st.integers(0, MOST - 1))
@pytest.mark.slow
def test_the_least_count_is_the_first_of_a_scan(study: Study, place: int) -> None:
    """The target is what some count reaches, so a plateau is met exactly."""
    address = COUNTED[study.systems[0]]
    scan = table(study.but(sets={address: f"1:{MOST}:+1"}))
    fits = scan["status"] == "ok"
    rates = np.where(fits, scan["throughput_tok_s"].astype(float), np.nan)
    target = float(rates[place])
    if np.isnan(target):
        return
    reached = rates >= target
    (row,) = find_hardware(study, f"{address}=1:{MOST}", [f"throughput_tok_s>={target!r}"])
    first = 1 + int(np.argmax(reached))
    if row["limit"] == "any":
        assert np.all(reached)
    else:
        assert row["limit"] in ("at least", "from")
        assert row["value"] == first


REPLICA = Study(("gpu",), ("llama3.1-70b",), "16", "64k", "64")


def test_counts_that_no_engine_runs_are_passed_over() -> None:
    """64 heads divide over 2 GPUs of 3, which miss; 4 serve all."""
    (row,) = find_hardware(REPLICA, "gpu.count=1:8", ["step_ms<=66.7"])
    assert (row["limit"], row["value"], row["bound"], row["batch_run"]) == ("at least", 4, 3, 16)
    scan = table(REPLICA.but(sets={"gpu.count": "1:8:+1"}))
    runs = scan["status"] == "ok"
    # 141 GB of weights are too many for one
    assert (np.flatnonzero(runs) + 1).tolist() == [2, 3, 4, 5, 6, 7, 8]
    whole = REPLICA.but(knobs={"tp": "node", "pp": "1", "attention": "tp"})
    (never,) = find_hardware(whole, "gpu.count=5:7", ["step_ms<=66.7"])
    assert never["reason"] == "never: at gpu.count = 7 heads do not divide over this many GPUs"


def test_a_count_that_is_enough_is_the_smallest_there_is() -> None:
    """One GPU serves 16 users of gpt-oss-120b; from 3 up, two of three, whose heads divide."""
    oss = REPLICA.but(models=("gpt-oss-120b",))
    (row,) = find_hardware(oss, "gpu.count=1:8", ["step_ms<=66.7"])
    assert (row["limit"], row["value"]) == ("any", 1)
    (row,) = find_hardware(oss, "gpu.count=3:8", ["step_ms<=66.7"])
    assert (row["limit"], row["value"]) == ("any", 3)
    assert [why_hardware(row)] == ["gpu, gpt-oss-120b: gpu.count 3 is enough; gpu.hbm binds there."]


def test_a_batch_in_rounds_says_so() -> None:
    (row,) = find_hardware(REPLICA.but(batch="64"), "gpu.count=1:8", ["step_ms<=110"])
    assert (row["value"], int(row["batch_run"])) == (8, 41)
    assert "times count all rounds" in row["note"]


def test_every_target_that_is_missed_is_named() -> None:
    targets = ["throughput_tok_s>=1e6", "prefill_s<=1e-6", "step_ms<=1e9"]
    (never,) = find_hardware(POINT, "csd.count=1:8", targets)
    assert "throughput_tok_s = " in never["reason"]
    assert "prefill_s = " in never["reason"]
    assert "step_ms" not in never["reason"]


# --- all rows of `compare`, no code of the search ----------------------------------------------

COUNT_OF = {
    "gpu": "gpu.count",
    "hilos": "csd.count",
    "inf2": "csd.count",
    "flexgen-16ssd": "raid.count",
}
NUMBER_OF = {
    "gpu": ("gpu.bandwidth", "GB/s", 4900.0),
    "hilos": ("csd.p2p_read", "GB/s", 3.0),
    "inf2": ("host.bandwidth", "GB/s", 200.0),
    "flexgen-dram": ("gpu_link.bandwidth", "GB/s", 25.0),
}
MEASURED = ("step_ms", "throughput_tok_s", "prefill_s", "power_w")


def random_point(random: np.random.Generator, system: str) -> dict[str, Any]:
    return {
        "model": str(random.choice(["opt-30b", "opt-66b", "llama3.1-8b"])),
        "batch": int(2 ** random.uniform(0, 6)),
        "context": int(2 ** random.uniform(8, 15)),
        "output_tokens": int(2 ** random.uniform(1, 8)),
        "systems": system,
    }


def states_of(table: pd.DataFrame, column: str, target: float) -> list[float]:
    """1 where a row meets the target, 0 where it misses it or lacks memory, NaN without a model."""
    met = table[column] >= target if column == "throughput_tok_s" else table[column] <= target
    is_modelled = table["status"] != "not-modelled"
    states = np.where(is_modelled, met & (table["status"] == "ok"), np.nan)
    return [float(state) for state in states]


def limit_of(values: list[int], states: list[float]) -> tuple[str, int | None]:
    """On which side of which count the target is met, read off all of them."""
    pairs = zip(values, states, strict=True)
    known = [(value, state) for value, state in pairs if not np.isnan(state)]
    changes = [place for place in range(1, len(known)) if known[place][1] != known[place - 1][1]]
    if not changes:
        return ("any", known[0][0]) if known[0][1] else ("never", None)
    if known[0][1]:
        return "at most", known[changes[0] - 1][0]
    return ("at least" if len(changes) == 1 else "from"), known[changes[0]][0]


def check_counts(random: np.random.Generator) -> None:
    system = str(random.choice(list(COUNT_OF)))
    point = random_point(random, system)
    most = 16 if system == "gpu" else 64
    counts = [*range(1, most + 1)]
    table = nearkv.compare(**point, sets={COUNT_OF[system]: counts})
    column = str(random.choice([name for name in MEASURED if name in table]))
    low, high = table[column].min(), table[column].max()
    target = float(f"{low + (high - low) * random.uniform(-0.1, 1.1):.6g}")
    if not target > 0:
        return
    expected = limit_of(counts, states_of(table, column, target))
    answer = nearkv.solve(
        "hardware", vary=f"{COUNT_OF[system]}=1:{most}", slo=f"{column}={target!r}", **point
    )
    (row,) = answer.to_dict("records")
    value = row["value"] if expected[1] is not None else None
    assert (row["limit"], value) == expected, (system, point, column, target)
    if value is not None:
        own = table.iloc[int(value) - 1]
        assert row[column] == own[column]


def check_number(random: np.random.Generator) -> None:
    """A thousand values around the answer are met on one side of it and missed on the other."""
    system = str(random.choice(list(NUMBER_OF)))
    address, unit, usual = NUMBER_OF[system]
    point = random_point(random, system)
    low, high = usual / 10, usual * 10
    ends = nearkv.compare(**point, sets={address: [f"{low}{unit}", f"{high}{unit}"]})
    if not (ends["status"] == "ok").all():
        return
    column = str(random.choice(["step_ms", "throughput_tok_s"]))
    first, last = ends[column]
    target = float(f"{first + (last - first) * random.uniform(0.05, 0.95):.6g}")
    vary = f"{address}={low}{unit}:{high}{unit}"
    answer = nearkv.solve("hardware", vary=vary, slo=f"{column}={target!r}", **point)
    (row,) = answer.to_dict("records")
    if row["limit"] not in ("at least", "from"):
        assert abs(last / first - 1) < 1e-6, (system, point, row["limit"])
        return
    value, scale = row["value"], {"GB/s": 1.0, "TB/s": 1e-3}[row["unit"]]
    # splits are chosen for the whole request: a step may meet a limit in several stretches
    is_one = row["limit"] == "at least"
    further = np.geomspace(0.5, 2, 998) if is_one else np.empty(0)
    around = np.unique(value * np.concatenate([[1 - 1e-6, 1 + 1e-6], further]))
    around = around[(around >= low * scale) & (around <= high * scale)]
    texts = [f"{number!r}{row['unit']}" for number in around.tolist()]
    states = np.array(states_of(nearkv.compare(**point, sets={address: texts}), column, target))
    beyond = around > value * (1 + 1e-9)
    assert (states == beyond)[np.abs(around / value - 1) > 1e-8].all(), (system, point, target)


@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_counts_and_numbers_are_those_of_all_rows() -> None:
    random = np.random.default_rng(1)
    check_counts(random)
    check_number(random)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_counts_and_numbers_are_those_of_all_rows_in_100_cases() -> None:
    random = np.random.default_rng(2)
    for _ in range(100):
        check_counts(random)
        check_number(random)


def check_met_limit(random: np.random.Generator) -> None:
    """One more limit, which the answer meets, changes nothing."""
    system = str(random.choice(list(COUNT_OF)))
    point, count = random_point(random, system), COUNT_OF[system]
    rows = nearkv.compare(**point, sets={count: [*range(1, 17)]})
    rates = rows["throughput_tok_s"].dropna()
    if not len(rates):
        return
    slo = f"throughput_tok_s={float(rates.quantile(0.5))!r}"
    asked: dict[str, Any] = {"vary": f"{count}=1:16", **point}
    (row,) = nearkv.solve("hardware", slo=slo, **asked).to_dict("records")
    step = float(rows.iloc[int(row["value"]) - 1]["step_ms"])
    (again,) = nearkv.solve("hardware", slo=[slo, f"step_ms={step!r}"], **asked).to_dict("records")
    assert again["value"] == row["value"]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 30))]
)
@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_a_limit_that_is_met_changes_no_count(seed: int) -> None:
    check_met_limit(np.random.default_rng(seed))


@pytest.mark.filterwarnings("ignore::nearkv.hardware.errors.NearkvWarning")
def test_twice_the_prices_buy_as_much_for_twice_the_money() -> None:
    asked: dict[str, Any] = {"systems": "hilos", "platform": "hilos-a100", "vary": "csd.count=1:16"}
    roles = load_platform("hilos-a100").roles
    names = ("gpu", "host", "csd", "chassis", "server")
    stated = {role: roles[role].si["price"] for role in names if role in roles}
    dear = {f"{role}.price": f"{2 * price!r}USD" for role, price in stated.items()}
    (row,) = nearkv.solve("hardware", "opt-30b", slo="cost_usd=50000", **asked).to_dict("records")
    words: dict[str, Any] = {"slo": "cost_usd=100000", "sets": dear, **asked}
    (other,) = nearkv.solve("hardware", "opt-30b", **words).to_dict("records")
    assert (other["limit"], other["value"]) == (row["limit"], row["value"])
    assert other["cost_usd"] == pytest.approx(2 * row["cost_usd"])


def test_how_many_gpus_is_answered_from_all_splits_of_each_count() -> None:
    (row,) = nearkv.solve(
        "hardware", "llama3.1-8b", systems="gpu", vary="gpu.count", slo="throughput_tok_s=100"
    ).to_dict("records")
    assert (row["limit"], row["value"], row["method"]) == ("at least", 2, "each count")

"""A designer's questions, each against a sweep that tries everything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.evaluate import compare
from nearkv.sweeps.evaluate import evaluate as run
from nearkv.sweeps.explore.batch import best_batches
from nearkv.sweeps.explore.crossover import crossovers
from nearkv.sweeps.explore.hardware import least_hardware
from nearkv.sweeps.explore.sensitivity import sensitivity
from nearkv.sweeps.study.study import Study

POINT = Study(("hilos",), ("opt-66b",), "16", "64k", "64")
COUNTS = {"csd.count": "1:200:+1"}


def swept(study: Study, name: str) -> np.ndarray:
    return run.table(study)[name].astype(float)


def test_the_least_count_is_the_first_of_all_counts_that_reaches_the_target() -> None:
    (row,) = least_hardware(POINT, "csd.count", ["throughput_tok_s=0.5"])
    every = swept(replace(POINT, sets=COUNTS), "throughput_tok_s")
    assert (row["limit"], row["value"]) == ("at least", 1 + int(np.argmax(every >= 0.5)))
    assert row["throughput_tok_s"] == pytest.approx(every[int(row["value"]) - 1])


@pytest.mark.slow
def test_a_knob_stands_for_its_number_and_ranges_are_kept() -> None:
    (row,) = least_hardware(POINT, "devices", ["throughput_tok_s=0.5"])
    assert (
        row["value"]
        == least_hardware(POINT, "csd.count=1:100", ["throughput_tok_s=0.5"])[0]["value"]
    )
    assert least_hardware(POINT, "csd.count=1:50", ["throughput_tok_s=0.5"])[0]["limit"] == "never"


@pytest.mark.slow
def test_all_targets_are_reached_at_once() -> None:
    wanted = ["throughput_tok_s>=0.2", "step_ms<=70000", "speedup:flexgen-ssd>=5"]
    each = [least_hardware(POINT, "csd.count", [target])[0]["value"] for target in wanted]
    assert least_hardware(POINT, "csd.count", wanted)[0]["value"] == max(each)
    ratio = compare.compare(replace(POINT, systems=("flexgen-ssd", "hilos"), sets=COUNTS))
    over = ratio["speedup"].astype(float)[ratio["system"] == "hilos"]
    assert each[2] == 1 + int(np.argmax(over >= 5))


@pytest.mark.slow
def test_a_rate_is_met_to_the_last_digit() -> None:
    (row,) = least_hardware(POINT, "csd.p2p_read", ["step_ms<=80000"])
    near = [f"{row['value'] * factor!r}{row['unit']}" for factor in (1 - 1e-9, 1 + 1e-9)]
    below, above = swept(replace(POINT, sets={"csd.p2p_read": ",".join(near)}), "step_ms")
    assert below > 80000 >= above


@pytest.mark.slow
def test_the_highest_price_that_pays() -> None:
    (row,) = least_hardware(POINT, "csd.price", ["cost_usd<=50000"])
    # 7000 (GPU) + 15000 (host) + 10000 (chassis) + 8 SmartSSDs (HILOS sec. 6.6)
    rest = (
        swept(POINT, "cost_usd")[0]
        - 8 * load_platform("hilos-a100").roles["csd"].numbers["price"].si
    )
    assert row["limit"] == "at most"
    assert row["value"] == pytest.approx((50000 - rest) / 8)


def test_a_target_out_of_reach_names_what_binds() -> None:
    (row,) = least_hardware(POINT, "uplink.bandwidth", ["step_ms<=1000"])
    assert row["limit"] == "never"
    assert row["value"] is None
    assert row["binds"] in {"gpu.tensor", "csd.flash", "csd.kernel"}
    assert f"because {row['binds']} binds" in row["reason"]


@pytest.mark.slow
def test_never_is_explained_where_the_target_comes_closest() -> None:
    (row,) = least_hardware(POINT, "csd.count=1:64", ["throughput_tok_s>=0.1", "cost_usd<=100"])
    cost = swept(replace(POINT, sets={"csd.count": "1"}), "cost_usd")[0]
    assert (
        row["reason"]
        == f"never: at csd.count = 1 still cost_usd = {cost:.4g}, because of the rest of the price"
    )
    (row,) = least_hardware(POINT, "csd.count=1:64", ["throughput_tok_s>=1000"])
    assert row["reason"].startswith(
        "never: at csd.count = 64, where the range ends, still throughput_tok_s = "
    )
    dram = replace(POINT, systems=("flexgen-dram",), context="1M")
    with pytest.warns(NearkvWarning, match="--vary uplink.bandwidth changes nothing"):
        (row,) = least_hardware(dram, "uplink.bandwidth", ["throughput_tok_s>=1"])
    assert "host memory is short of" in row["reason"]
    assert "nan" not in row["reason"]


def test_a_target_that_is_lost_again_has_an_upper_end() -> None:
    every = run.table(replace(POINT, sets=COUNTS))
    cost, rate = (every[name].astype(float) for name in ("cost_usd", "throughput_tok_s"))
    wanted = [f"throughput_tok_s>={float(rate[3])!r}", f"cost_usd<={float(cost[6])!r}"]
    (row,) = least_hardware(POINT, "csd.count=1:100", wanted)
    assert (row["limit"], row["value"], row["up_to"]) == ("from", 4, 7)


def test_a_search_does_not_play_queues() -> None:
    study = Study(("l3",), ("gpt-175b",), traces=("openr1",), method="simulate")
    for ask in (
        lambda: least_hardware(study, "dimm.ranksets", ["throughput_tok_s=1"]),
        lambda: sensitivity(study, "throughput_tok_s"),
        lambda: crossovers(
            replace(study, systems=("l3", "gpu-only")), "gpu.count=8:16", "throughput_tok_s"
        ),
    ):
        with pytest.raises(InputError, match="--method simulate"):
            ask()


def test_a_batch_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="--batch"):
        best_batches(replace(POINT, batch="abc"))


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
    ],
)
def test_hardware_that_cannot_be_asked_for(vary: str, targets: list[str], requested: str) -> None:
    with pytest.raises(InputError, match=requested):
        least_hardware(POINT, vary, targets)


def test_a_number_that_is_searched_is_not_set() -> None:
    with pytest.raises(
        InputError, match=r"--set csd\.count: is what --vary searches; leave it out"
    ):
        least_hardware(replace(POINT, sets={"csd.count": "4,8"}), "csd.count", ["step_ms<=1"])
    with pytest.raises(InputError, match="--knob devices: is what --vary searches; leave it out"):
        least_hardware(replace(POINT, knobs={"devices": "4"}), "csd.count", ["step_ms<=1"])
    with pytest.raises(InputError, match="--context: is what --along walks; leave it out"):
        crossovers(replace(POINT, systems=("l3", "hilos")), "context=1k:2k", "step_ms")


@pytest.mark.slow
def test_a_search_over_too_many_points_is_refused() -> None:
    study = replace(POINT, systems=("hilos", "flexgen-ssd"), context="1:200000:+1")
    with pytest.raises(InputError, match="are too many for one search"):
        best_batches(study)
    with pytest.raises(InputError, match="are too many for one search"):
        least_hardware(study, "csd.count", ["step_ms<=1"])
    with pytest.raises(InputError, match="are too many for one search"):
        crossovers(study, "batch=1:64", "step_ms")


@pytest.mark.slow
def test_the_best_batch_is_the_best_of_all_that_fit() -> None:
    study = Study(("flexgen-dram", "flexgen-ssd", "hilos"), ("opt-30b",), "1", "64k", "64")
    for row in best_batches(study):
        every = run.table(replace(study, systems=(row["system"],), batch="1:700:+1"))
        at_once = (every["status"] == "ok") & (
            every["batch_run"].astype(float) >= np.arange(1, 701)
        )
        assert row["largest_batch"] == at_once.sum()
        best = np.nanmax(every["throughput_tok_s"].astype(float)[at_once])
        assert best / 1.001 <= row["throughput_tok_s"] <= best * (1 + 1e-12)
        assert row["bound_tok_s"] >= best * (1 - 1e-12)


def test_the_best_batch_of_a_mapping_solved_anew_at_every_batch() -> None:
    study = Study(("h2m2",), ("gpt3-175b",), "1", "32k", "64")
    (row,) = best_batches(study)
    every = swept(replace(study, batch=f"1:{int(row['largest_batch'])}:+1"), "throughput_tok_s")
    assert row["throughput_tok_s"] >= np.nanmax(every) / 1.001


@pytest.mark.slow
def test_a_count_is_nudged_by_one() -> None:
    rows, band = sensitivity(POINT, "step_ms")
    (row,) = [row for row in rows if row["number"] == "csd.count"]
    less, more = swept(replace(POINT, sets={"csd.count": "7,9"}), "step_ms")
    assert row["elasticity"] == pytest.approx(np.log(more / less) / np.log(9 / 7))
    assert band["fits_share"] == 1


def test_a_batch_that_never_fits() -> None:
    (row,) = best_batches(Study(("flexgen-dram",), ("opt-66b",), "1", "1M", "64"))
    assert row["largest_batch"] == 0
    assert row["value"] is None
    assert row["short_of"] == "host"


def test_a_crossover_is_where_a_sweep_changes_leader() -> None:
    pair = replace(POINT, systems=("flexgen-dram", "hilos"))
    (row,) = crossovers(pair, "csd.count=1:64", "decode_tok_s")
    every = compare.compare(replace(pair, sets={"csd.count": "1:64:+1"}))
    ahead = every["speedup"].astype(float)[every["system"] == "hilos"] > 1
    assert (row["from"], row["to"], row["along"]) == ("flexgen-dram", "hilos", "csd.count")
    assert 0 < row["resolution"] < 0.1  # whole numbers from 20 on are not all looked at
    assert (row["below"], row["above"]) == (int(np.argmax(ahead)), int(np.argmax(ahead)) + 1)


@pytest.mark.slow
def test_who_never_loses_is_named() -> None:
    study = replace(POINT, systems=("flexgen-ssd", "hilos"), context=Study.context)
    (row,) = crossovers(study, "context=1k:1M", "decode_tok_s")
    assert row["reason"] == "never: hilos leads, where one does, from 1k to 1M"  # 1M fits neither


def test_nobody_leads_where_neither_fits() -> None:
    systems = ("gpu-only", "hbm-pim")
    study = Study(systems, ("gpt-175b",), sets={"gpu.memory": "4GB"})  # weights: 350 GB
    (row,) = crossovers(study, "context=4k:64k", "decode_tok_s")
    assert (row["from"], row["reason"]) == ("", "never: neither has a value from 4k to 64k")


def test_nobody_leads_where_both_are_equal() -> None:
    study = Study(("flexgen-ssd", "deepspeed-uvm"), ("opt-30b",), context="2k")  # same parts
    (row,) = crossovers(study, "batch=1:8", "cost_usd")
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
        crossovers(replace(POINT, systems=systems, context=Study.context), along, of)


@pytest.mark.slow
def test_the_elasticity_of_the_cost_is_the_share_of_the_price() -> None:
    rows, band = sensitivity(POINT, "cost_usd")
    cost = swept(POINT, "cost_usd")[0]
    numbers = load_platform("hilos-a100").roles
    found = {row["number"]: row["elasticity"] for row in rows}
    assert found["csd.price"] == pytest.approx(
        8 * numbers["csd"].numbers["price"].si / cost, rel=1e-4
    )
    assert [abs(row["elasticity"]) for row in rows] == sorted(
        (abs(r["elasticity"]) for r in rows), reverse=True
    )
    assert band["low"] <= band["cost_usd"] <= band["high"]


@pytest.mark.slow
def test_the_ends_of_a_range_are_what_a_sweep_says() -> None:
    rows, band = sensitivity(POINT, "step_ms")
    row = next(row for row in rows if row["number"] == "derate.uplink")
    ends = swept(replace(POINT, sets={"derate.uplink": f"{row['low']},{row['high']}"}), "step_ms")
    assert [row["step_ms_at_low"], row["step_ms_at_high"]] == pytest.approx(ends)
    assert band["low"] < band["step_ms"] < band["high"]


@pytest.mark.parametrize(
    ("study", "of", "requested"),
    [
        (replace(POINT, batch="1,2"), "step_ms", "one design point"),
        (POINT, "stepms", "did you mean 'step_ms'"),
        (replace(POINT, context="1M", batch="1000"), "step_ms", "has no value"),
    ],
)
def test_sensitivities_that_cannot_be_asked_for(study: Study, of: str, requested: str) -> None:
    with pytest.raises(InputError, match=requested):
        sensitivity(study, of)


@pytest.mark.slow
def test_a_discontinuity_is_said_and_the_smooth_side_taken() -> None:
    # a page of 4 KiB is filled by 16 entries of 256 B: any smaller page needs no more of them
    rows, _ = sensitivity(POINT, "throughput_tok_s")
    row = next(row for row in rows if row["number"] == "csd.page")
    pages = "4.096kB,4.1001kB,4.1005kB"
    _, first, second = swept(replace(POINT, sets={"csd.page": pages}), "throughput_tok_s")
    slope = np.log(second / first) / np.log(4.1005 / 4.1001)
    assert row["elasticity"] == pytest.approx(slope, rel=0.01)
    assert row["jump"] != 0

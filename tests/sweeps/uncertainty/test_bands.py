"""Bands: laws of numbers, common draws, quantiles, and the columns made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.command_line import refusal
from typer.testing import CliRunner

import nearkv
from nearkv.cli import app
from nearkv.hardware.catalog import load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.solvers.uncertainty.draws import Measured, Ranged, listed, ranks
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.study.bands import MODEL_ERROR, draws_of
from nearkv.sweeps.study.study import Study, blocks, check_draws
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.uncertainty.made_of import made_of
from nearkv.sweeps.uncertainty.model_error import find_error
from nearkv.sweeps.uncertainty.sampled import drawn_numbers

AXES = ["--model", "opt-66b", "--context", "8k,64k", "--batch", "1,16", "--knob", "weights=host"]

SWEEP = ["sweep", "--system", "flexgen-ssd,hilos", *AXES, "--quiet"]

BAND = ["--band", "90", "--samples", "64"]


def run(*words: str) -> None:
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == 0, outcome.output


RANKS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def test_half_of_the_draws_of_a_range_lie_below_the_stated_value() -> None:
    """[0.2, 0.7] around 0.5: the quarters are the middles of both sides, 0.35 and 0.6."""
    assert Ranged(0.2, 0.5, 0.7).quantile(RANKS) == pytest.approx([0.2, 0.35, 0.5, 0.6, 0.7])


def test_logarithms_of_rates_are_uniform() -> None:
    """From 1 over 4 to 64: the quarters are the geometric means 2 and 16."""
    drawn = Ranged(1.0, 4.0, 64.0, is_log=True).quantile(RANKS)
    assert drawn == pytest.approx([1, 2, 4, 16, 64])


def test_measured_quantiles_are_kept() -> None:
    drawn = Measured(0.62, 0.73, 0.78, most=1.0).quantile(np.array([0.1, 0.5, 0.9, 1 - 1e-12]))
    assert drawn == pytest.approx([0.62, 0.73, 0.78, 1.0], abs=0.06)
    assert drawn[:3] == pytest.approx([0.62, 0.73, 0.78])
    assert drawn[3] <= 1


def test_a_number_of_few_values_takes_no_other() -> None:
    assert listed(np.array([0.2, 0.6]), np.array([0.0, 1.0])).tolist() == [0, 1]


def test_draws_depend_on_names_and_seed_alone() -> None:
    one, same = ranks(("a", "b"), 256, 3), ranks(("b", "a"), 256, 3)
    assert np.array_equal(one["a"], same["a"])
    assert not np.array_equal(one["a"], ranks(("a", "b"), 256, 4)["a"])
    cells = np.histogram2d(one["a"], one["b"], bins=16, range=[[0, 1], [0, 1]])[0]
    assert cells.min() == cells.max() == 1  # a Sobol sequence fills every cell once


def test_quantiles_leave_out_what_has_no_answer() -> None:
    samples = np.random.default_rng(1).normal(size=(5, 40))
    samples[1, :7] = np.nan
    samples[2] = np.nan
    expected = np.nanquantile(samples[[0, 1, 3, 4]], [0.05, 0.5, 0.95], axis=-1)
    answer = quantiles(samples, [0.05, 0.5, 0.95])
    assert answer[:, [0, 1, 3, 4]] == pytest.approx(expected)
    assert np.isnan(answer[:, 2]).all()


def test_numbers_with_something_in_common_share_a_draw() -> None:
    names = draws_of(load_platform("hilos-a100"))
    assert names["csd.commit"] == names["raid.commit"] == "smartssd-commit"
    assert names["derate.pcie"] == "derate.pcie"
    assert "gpu.flops" not in names  # a datasheet's peak is exact


@pytest.mark.parametrize("name", names("platform"))
def test_what_is_chosen_is_never_drawn(name: str) -> None:
    """Widths of numbers, counts and memory that is installed."""
    drawn = draws_of(load_platform(name))
    assert not [address for address in drawn if address.startswith("precision.")]
    keys = {address.partition(".")[2] for address in drawn}
    assert keys.isdisjoint({"count", "cores", "sockets", "memory", "capacity", "kv_memory"})


def study(**axes: object) -> Study:
    options: dict[str, object] = {"context": "64k", "band": 90.0, "samples": 256, **axes}
    return Study(("flexgen-dram",), ("opt-66b",), **options)


def test_what_the_user_sets_is_exact() -> None:
    (block,) = blocks(study(sets={"derate.pcie": "0.8"}))
    assert "derate.pcie" not in block.draws
    assert "gpu.hbm" in block.draws


def test_a_band_equals_its_draws_one_by_one() -> None:
    """The model error multiplies the time of each draw."""
    (block,) = blocks(study())
    assert block.band is not None
    drawn = drawn_numbers(block, block.band)
    (plain,) = blocks(study(band=0.0))
    answer = Probe(plain).answer(np.zeros(256, np.intp), numbers=drawn)
    law = find_error("CPU", "value", block.system.cite).law
    error = law.quantile(ranks(block.band.names, 256, 0)[MODEL_ERROR])
    steps = 1e3 * answer.estimate.step.seconds * np.exp(error)
    point = nearkv.estimate("flexgen-dram", "opt-66b", context="64k", band=90, samples=256)
    shown = [point[f"step_ms_{end}"] for end in ("p05", "p50", "p95")]
    assert shown == pytest.approx(np.quantile(steps, [0.05, 0.5, 0.95]))
    assert point["fits_share"] == 1


def test_the_middle_of_a_band_is_near_the_prediction() -> None:
    """Half of the draws of each number lie below the stated value."""
    point = nearkv.estimate("hilos", "opt-66b", context="64k", band=90)
    assert point["step_ms_p05"] < point["step_ms"] < point["step_ms_p95"]
    assert point["step_ms_p50"] == pytest.approx(point["step_ms"], rel=0.1)


@pytest.mark.slow
def test_common_draws_make_ratios_narrower() -> None:
    table = nearkv.compare(["flexgen-ssd", "hilos"], "opt-66b", context=["32k", "64k"], band=90)
    ours, theirs = table.iloc[2:], table.iloc[:2]
    apart = ours["decode_tok_s_p95"].to_numpy() / theirs["decode_tok_s_p05"].to_numpy()
    assert (ours["speedup_p95"].to_numpy() < apart).all()
    assert (ours["speedup_p05"] < ours["speedup"]).all()
    assert (ours["faster_share"] > 0.99).all()
    assert (theirs[["speedup_p05", "speedup_p95"]] == 1).all(axis=None)
    assert (theirs["faster_share"] < 0.01).all()


@pytest.mark.slow
def test_no_draw_lifts_a_mapping_above_the_best_one() -> None:
    """Except where the best one's knobs are stated: all on LPDDR it is no optimum."""
    asked: dict[str, Any] = {"batch": 32, "context": "1k", "output_tokens": 1, "band": 90}
    table = nearkv.compare(["oracle", "h2m2"], "gpt3-175b", **asked)
    assert table["speedup_p95"].tolist() == [1, 1]
    assert table["faster_share"].tolist() == [1, 0]
    assert "oracle decodes fastest" in table.attrs["conclusion"][0]
    _, oracle = nearkv.compare(["h2m2", "oracle"], "gpt3-175b", **asked)["speedup_p05"]
    assert oracle == 1
    nothing = {"n_attention": 0, "n_qkv": 0, "n_fc": 0}
    pair = ["oracle", "flexgen-mapping"]
    _, static = nearkv.compare(pair, "gpt3-175b", knobs=nothing, **asked)["speedup_p50"]
    assert static > 1.2


@pytest.mark.parametrize(
    ("system", "model", "knobs", "solved"),
    [
        ("hilos", "opt-66b", {"alpha": ["auto", 0.6]}, "alpha"),
        ("hilos", "opt-66b", {"weights": ["auto", "storage", "host"]}, "weights"),
        ("inf2", "opt-66b", {"alpha": ["auto", 0, 0.05]}, "alpha"),
        ("hillinfer", "qwen-7b", {"hot_share": ["auto", 0.9]}, "hot_share"),
    ],
)
def test_no_draw_lifts_a_stated_value_above_the_solved_one(
    system: str, model: str, knobs: dict[str, list[Any]], solved: str
) -> None:
    """It is solved anew in each draw, where it may take what is stated beside it.

    Between two stated values the error of the models remains: nobody says that it is the same.
    """
    asked: dict[str, Any] = {"batch": 8, "context": "12k", "band": 90, "samples": 64}
    table = nearkv.compare(system, model, knobs=knobs, **asked)
    *stated, best = table["faster_share"]
    assert best == 1, solved
    assert set(stated) == {0}, solved
    assert table["speedup_p05"].iloc[-1] >= 1, solved


def test_a_solved_knob_bounds_no_row_that_differs_in_another() -> None:
    """Eight devices at their best alpha may lose to 16 at another, and two solved rows may err."""
    knobs: dict[str, Any] = {"alpha": ["auto", 0.6], "devices": [8, 16]}
    asked: dict[str, Any] = {"context": "64k", "band": 90, "samples": 64}
    table = nearkv.compare("hilos", "opt-66b", knobs=knobs, **asked)
    rows = table.set_index([table["alpha"] == 0.6, "devices"])
    assert rows["faster_share"][True, 16] == 0
    assert rows["faster_share"][False, 16] > 0.9
    assert rows["speedup_p05"][True, 16] < 1 < rows["speedup_p05"][False, 16]
    assert rows["speedup_p05"][False, 8] == 1


def contest(systems: list[str], band: float) -> pd.DataFrame:
    asked: dict[str, Any] = {"context": ["32k", "64k"], "knobs": {"weights": "host"}}
    return nearkv.compare(systems, "llama3.1-70b", band=band, samples=64, **asked)


def test_a_share_of_being_fastest_knows_no_order() -> None:
    """Of three systems, whichever is named first; at each context the shares are all draws."""
    names = ["hilos", "inf2", "flexgen-ssd"]
    by = ["system", "context_tok"]
    shares = [
        contest(order, 90).set_index(by)["faster_share"].sort_index()
        for order in (names, names[::-1])
    ]
    assert shares[0].groupby("context_tok").sum().tolist() == pytest.approx([1, 1])
    assert (shares[0] > 0).sum() > 2
    assert shares[0].to_numpy() == pytest.approx(shares[1].to_numpy())


def test_no_winner_is_named_whom_the_draws_doubt() -> None:
    """INF² beats its baseline in most draws: in nine of ten at 24k, not at 8k."""
    asked: dict[str, Any] = {"context": ["8k", "24k"], "samples": 256}
    table = nearkv.compare(["inf2", "flexgen-raid"], "opt-66b", band=90, **asked)
    short, long = table["faster_share"][:2]
    assert 0.5 < short < 0.9 < long
    (told,) = table.attrs["conclusion"]
    assert f"but decodes fastest in {100 * short:.3g} % of the draws only" in told
    assert "inf2 leads at 1 of 2 points (" in told
    assert "inf2 decodes fastest at 1 of 2 points (" in told
    sure = nearkv.compare(["inf2", "flexgen-raid"], "opt-66b", band=50, **asked)
    assert sure.attrs["conclusion"][0].startswith("inf2 decodes fastest at 2 of 2 points (")


@pytest.mark.slow
def test_sampling_error_is_small_beside_the_width() -> None:
    """Twice as many draws move an end by less than a tenth of the band's width."""
    for system in ("hilos", "flexgen-ssd", "l3"):
        few, many = (
            nearkv.estimate(system, "opt-66b", context="8k", band=90, samples=samples)
            for samples in (1024, 2048)
        )
        width = many["throughput_tok_s_p95"] - many["throughput_tok_s_p05"]
        for end in ("p05", "p50", "p95"):
            moved = abs(few[f"throughput_tok_s_{end}"] - many[f"throughput_tok_s_{end}"])
            assert moved < width / 10, (system, end)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"band": 100}, "from 1 to 99"),
        ({"band": 90, "samples": 3}, "from 16 to 65,536"),
        ({"band": 90, "trace": "openr1", "method": "simulate"}, "has no band"),
    ],
)
def test_bands_that_cannot_be_computed_are_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        nearkv.compare("l3", "opt-66b", **options)  # type: ignore[arg-type]


def test_quantiles_of_whole_numbers_are_whole() -> None:
    """Half of the draws 5, half 6: the middle is one of them; of 5.0 and 6.5 it lies between."""
    assert quantiles(np.array([5.0, 5.0, 6.0, 6.0]), [0.5])[0] in (5, 6)
    assert quantiles(np.array([5.0, 6.5]), [0.5])[0] == 5.75
    assert quantiles(np.array([5.0, np.inf, np.inf]), [0.95])[0] == np.inf


def test_a_design_that_fits_in_some_draws_says_so() -> None:
    """An engine keeps a part of the memory that has a range; a long prompt needs the rest."""
    table = nearkv.compare(
        "gpu", "qwen3-8b", platform="workstation-5090", batch=1, context="64k,120k", band=90
    )
    assert table["fits_share"][0] == 1
    assert 0.5 < table["fits_share"][1] < 1
    assert ["some draws" in note for note in table["note"]] == [False, True]


def test_no_band_and_a_band_of_nothing_differ() -> None:
    check_draws(0, 1024, None, traces=())
    with pytest.raises(InputError, match="from 1 to 99"):
        check_draws(0, 1024, 0.0, traces=())


def test_a_seed_where_nothing_is_drawn_is_refused() -> None:
    check_draws(3, 1024, None, traces=("own.csv", "openr1"))
    check_draws(3, 1024, 90.0, traces=("own.csv",))
    with pytest.raises(InputError, match=r"the requests of own\.csv are taken as they are"):
        check_draws(3, 1024, None, traces=("own.csv",))
    with pytest.raises(InputError, match="give --trace"):
        check_draws(3, 1024, None, traces=())


POINT = ("--model", "opt-30b", "--context", "8k", "--band", "90", "--samples", "20")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"seed": 5}, "--seed 5 draws nothing here"),
        ({"seed": -1}, "--seed -1: give a whole number, 0 or more"),
        ({"seed": "x", "band": 90}, "--seed 'x': give a whole number"),
        ({"samples": 5}, "--samples 5 are draws of a band"),
        ({"samples": 64.5, "band": 90}, "--samples 64.5: give a whole number"),
        ({"band": "x"}, "--band 'x': give a number of percent"),
        ({"band": True}, "--band True: give a number of percent"),
        ({"method": 3}, "unknown method '3'"),
        ({"batch": True}, "--batch=True: give text, a number"),
        ({"batch": {"a": 1}}, "give text, a number"),
        ({"sets": {1: 2}}, "--set 1 is no name"),
    ],
)
def test_arguments_of_draws_are_checked_as_options_are(options: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        nearkv.compare("hilos", "opt-66b", **options)


def test_a_study_file_with_a_seed_of_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('systems = ["hilos"]\nmodel = ["opt-66b"]\nseed = 4\n')
    with pytest.raises(InputError, match=r"study\.toml: seed 4 draws nothing here"):
        load_study(str(file))


@pytest.mark.processes
@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_whatever_the_jobs(tmp_path: Path) -> None:
    contents = []
    for name, options in (
        ("one", ["--jobs", "1"]),
        ("two", ["--jobs", "2"]),
        ("other", ["--jobs", "1", "--seed", "7"]),
    ):
        file = tmp_path / f"{name}.csv"
        run(*SWEEP, *BAND, *options, "-o", str(file))
        contents.append(file.read_bytes())
    one, two, other = contents
    assert one == two
    assert one != other
    beside = json.loads((tmp_path / "one.csv.provenance.json").read_text())
    assert beside["band"]["samples"] == 64
    assert {row["number"] for row in beside["band"]["numbers"]} >= {"derate.uplink"}
    assert {row["mechanism"] for row in beside["band"]["model_errors"]} <= {
        "GPU",
        "CPU",
        "flash",
        "links",
    }


def test_what_a_band_is_made_of_names_the_machine_with_its_parts() -> None:
    """What two machines have in common is listed for each of them."""
    beds = ("hilos-a100", "hilos-h100")
    parts = {"gpu": ("a100-40gb", "h100-80gb")}
    study = Study(("hilos",), ("opt-30b",), "4", "8k", platforms=beds, parts=parts, band=90)
    parts_of_band = made_of(blocks(study))
    for rows in (parts_of_band["numbers"], parts_of_band["model_errors"]):
        assert {row["platform"] for row in rows} == {
            f"{bed} gpu={part}" for bed in beds for part in parts["gpu"]
        }


@pytest.mark.slow
def test_a_table_equals_its_points() -> None:
    """The draws are those of the study, whatever the tile that a point lies in."""
    axes: dict[str, Any] = {
        "systems": "flexgen-ssd,hilos",
        "model": "opt-66b",
        "knobs": {"weights": "host"},
        "band": 90,
        "samples": 4096,
    }
    table = nearkv.sweep(**axes, context=[8192, 16384, 32768], batch=range(1, 14))
    part = nearkv.sweep(**axes, context=[16384], batch=[13])
    same = table[(table["context_tok"] == 16384) & (table["batch"] == 13)]
    for name in ("step_ms_p05", "step_ms_p50", "step_ms_p95", "fits_share"):
        assert np.array_equal(same[name].to_numpy(), part[name].to_numpy())


def test_questions_without_a_band_refuse_one() -> None:
    with pytest.raises(nearkv.InputError, match="solve batch gives one batch, not a band"):
        nearkv.solve("batch", "opt-66b", band=90)
    need: dict[str, Any] = {"vary": "csd.count", "slo": "throughput_tok_s=0.5"}
    with pytest.raises(nearkv.InputError, match="solve hardware gives one size, not a band"):
        nearkv.solve("hardware", "opt-66b", band=90, **need)


def test_a_ratio_of_what_has_no_band_is_refused() -> None:
    words = ("compare", "hilos", "flexgen-dram", "--model", "opt-66b", "--band", "90")
    assert "alpha has no band" in refusal(*words, "--ratio", "alpha")

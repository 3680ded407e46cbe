"""Fits of platforms: known factors lie in their intervals; bad factors are one sentence."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.measured_runs import TRUTH, write_runs
from support.warm_command import run

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.grid import Mesh
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.calibration import (
    factor_rows,
    fit_factors,
    platform_file,
    residual_rows,
    sentences,
)
from nearkv.sweeps.validation.claims import claim_of
from nearkv.sweeps.validation.evidence import Evidence, claimed, measured, values_at
from nearkv.sweeps.validation.prediction import predict

NOISE = 0.05


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return measured(
        write_runs(
            tmp_path_factory.mktemp("runs") / "runs.csv", TRUTH, ("h2o", "full-cache", "infinigen")
        )
    )


def noisy(evidence: Evidence, seed: int, size: float = NOISE) -> Evidence:
    noise = np.random.default_rng(seed).standard_normal(len(evidence.stated))
    return replace(evidence, stated=evidence.stated * np.exp(size * noise))


@pytest.mark.slow
@pytest.mark.parametrize("trials", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_known_factors_lie_in_their_intervals_in_nine_of_ten_trials(
    exact: Evidence, trials: int
) -> None:
    inside, widths = 0, []
    for seed in range(trials):
        rows = factor_rows(fit_factors(noisy(exact, seed), tuple(TRUTH)))
        inside += all(
            row["interval_low"] <= TRUTH[row["number"]] <= row["interval_high"] for row in rows
        )
        widths += [
            (row["interval_high"] - row["interval_low"]) / (row["range_high"] - row["range_low"])
            for row in rows
        ]
    assert inside >= 0.9 * trials
    assert np.median(widths) < 0.5


def test_without_noise_the_factors_come_back(exact: Evidence) -> None:
    calibration = fit_factors(exact, tuple(TRUTH))
    assert {row["number"]: row["fitted"] for row in factor_rows(calibration)} == pytest.approx(
        TRUTH, rel=1e-4
    )
    assert np.abs(calibration.fit.after).max() < 1e-6
    assert calibration.fit.unknown == []


def test_a_range_from_zero_begins_at_zero(exact: Evidence) -> None:
    calibration = fit_factors(exact, tuple(TRUTH))
    free = {name: replace(number, range=(0.0, 0.9)) for name, number in calibration.factors.items()}
    fit = replace(calibration.fit, factors=np.full(len(free), 0.5))
    for row in factor_rows(replace(calibration, factors=free, fit=fit)):
        assert row["range_low"] == 0
        assert row["fitted"] == row["range_high"] / 2


def test_rates_are_measurements_too(tmp_path: Path) -> None:
    file = write_runs(tmp_path / "runs.csv", {"derate.pcie": 0.72}, ("h2o",), "decode_tok_s")
    (row,) = factor_rows(fit_factors(measured(file), ["derate.pcie"]))
    assert row["fitted"] == pytest.approx(0.72, rel=1e-4)


def test_intervals_shrink_with_noise_and_are_cut_to_the_range(exact: Evidence) -> None:
    loud = noisy(exact, 1)
    quiet = replace(exact, stated=exact.stated * (loud.stated / exact.stated) ** 0.2)
    for wide, narrow in zip(
        *(factor_rows(fit_factors(rows, tuple(TRUTH))) for rows in (loud, quiet)), strict=True
    ):
        assert (
            wide["range_low"] <= wide["interval_low"] < wide["interval_high"] <= wide["range_high"]
        )
        assert narrow["interval_high"] - narrow["interval_low"] < 0.5 * (
            wide["interval_high"] - wide["interval_low"]
        )


def test_two_factors_of_a_product_are_not_determined(tmp_path: Path) -> None:
    # the CPU scores at host.bandwidth x derate.cpu_scoring; the SSD is as fast as in the runs
    file = Path(write_runs(tmp_path / "runs.csv", TRUTH, ("infinigen",)))
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{head},set", *(f"{line},ssd.read=4GB/s" for line in lines)]))
    calibration = fit_factors(
        noisy(measured(str(file)), 3), ["host.bandwidth", "derate.cpu_scoring"]
    )
    (direction,) = calibration.fit.unknown
    assert abs(direction).min() > 0.3
    assert abs(calibration.fit.correlation[0, 1]) > 0.95 or np.all(calibration.fit.half == 1)
    assert any(
        "cannot separate" in sentence and "host.bandwidth" in sentence
        for sentence in sentences(calibration)
    )
    assert {row["hint"] for row in factor_rows(calibration)} == {"not determined"}
    assert {row["fitted"] for row in factor_rows(calibration)} == {None}
    assert any("is the base unchanged" in sentence for sentence in sentences(calibration))
    # a row left out is predicted as well as it is fitted
    assert np.abs(calibration.left_out).max() < 1.5 * np.abs(calibration.fit.after).max()


def only(rows: Evidence, kept: list[int]) -> Evidence:
    """Only these rows."""
    return replace(
        rows,
        names=tuple(rows.names[place] for place in kept),
        stated=rows.stated[kept],
        predict=lambda numbers: rows.predict(numbers)[:, kept],
    )


def test_default_factors_are_the_assumed_numbers_that_the_rows_determine(exact: Evidence) -> None:
    """The CPU scores at a product of two, and HBM is seldom what a step waits for."""
    calibration = fit_factors(noisy(exact, 0))
    assert set(calibration.factors) == set(TRUTH)
    assert set(calibration.alike) == {"gpu.hbm", "derate.cpu_scoring", "host.bandwidth"}
    assert {row["hint"] for row in factor_rows(calibration)} == {""}
    assert "do not determine them beside those fitted: " in " ".join(sentences(calibration))
    assert {"derate.fpga_dram", "derate.uvm"} <= set(calibration.idle)
    assert "No row depends on derate." in sentences(calibration)[-1]


def test_a_row_without_a_prediction_is_moved_by_nothing(exact: Evidence) -> None:
    def none(numbers: Mesh) -> Numbers:
        points = len(np.asarray(next(iter(numbers.values()))))
        return np.full((points, len(exact.stated)), np.nan)

    with pytest.raises(InputError, match="changes these rows"):
        fit_factors(replace(exact, predict=none))


def test_default_factors_are_fewer_than_rows(exact: Evidence) -> None:
    """Those that move the rows less are named, and stay."""
    few = only(exact, [0, 5, 11])
    calibration = fit_factors(noisy(few, 0))
    assert set(calibration.factors) | set(calibration.alike) == {"ssd.read", "derate.pcie"}
    told = " ".join(sentences(calibration))
    assert f"as they move the rows less: {calibration.weaker[0]}" in told


def test_one_system_alone_does_not_determine_two_rates(tmp_path: Path) -> None:
    # h2o waits for the SSD and then for the link, for so many bytes each at every point
    rows = measured(write_runs(tmp_path / "runs.csv", TRUTH, ("h2o",)))
    calibration = fit_factors(noisy(rows, 0), ["derate.pcie", "ssd.read"])
    assert len(calibration.fit.unknown) == 1
    assert {row["hint"] for row in factor_rows(calibration)} == {"not determined"}


def test_a_row_left_out_is_predicted_by_a_fit_to_the_others(exact: Evidence) -> None:
    rows = noisy(exact, 5)
    calibration = fit_factors(rows, tuple(TRUTH))
    for i in (0, 7):
        others = [j for j in range(len(rows.stated)) if j != i]
        less = only(rows, others)
        again = fit_factors(less, tuple(TRUTH))
        exactly = float(calibration.residuals(again.fit.factors[np.newaxis])[0, i])
        assert calibration.left_out[i] == pytest.approx(exactly, abs=5e-3)


def test_the_written_platform_predicts_as_fitted(exact: Evidence, tmp_path: Path) -> None:
    calibration = fit_factors(noisy(exact, 2, NOISE / 10), ["derate.pcie", "ssd.read"])
    path = tmp_path / "my.toml"
    path.write_text(platform_file(calibration))
    assert tomllib.loads(path.read_text())["base"] == "aipc-4090"
    bed = load_platform(str(path))
    number = bed.roles["derate"].numbers["pcie"]
    assert (number.kind, number.source) == ("fitted", "user")
    assert number.range is not None
    low, high = number.range
    assert 0.7 <= low < number.value < high <= 0.9  # the interval, not the range
    (row, _) = factor_rows(calibration)
    assert number.range == pytest.approx((row["interval_low"], row["interval_high"]))
    assert "interval of the fit; before it was 0.8 in 0.7 to 0.9" in number.note
    assert "fitted to 18 rows" in number.at
    assert bed.roles["gpu"] == load_platform("aipc-4090").roles["gpu"]
    assert bed.roles["host"] == load_platform("aipc-4090").roles["host"]
    point = Study(
        ("h2o",),
        ("qwen-7b",),
        "2",
        "2k",
        "64",
        platforms=(str(path),),
        knobs={"migration": "0"},
    )
    # its interval is wider than its range, and still cut by one end of it: fitted, with a word
    assert "Of derate.pcie the rows say little that its range does not." in sentences(calibration)
    again = table(point)["step_ms"][0]
    assert again == pytest.approx(residual_rows(calibration)[0]["fitted"], rel=1e-5)


def test_what_the_rows_do_not_determine_is_written_as_stated(tmp_path: Path) -> None:
    rows = measured(write_runs(tmp_path / "runs.csv", TRUTH, ("h2o",)))
    calibration = fit_factors(noisy(rows, 0), ["derate.pcie", "ssd.read"])
    path = tmp_path / "my.toml"
    path.write_text(platform_file(calibration))
    roles = load_platform(str(path)).roles
    assert roles["derate"] == load_platform("aipc-4090").roles["derate"]
    assert roles["ssd"] == load_platform("aipc-4090").roles["ssd"]


def test_claims_of_a_paper_are_rows() -> None:
    rows = claimed("hillinfer")
    assert rows.platform.name == "aipc-4090"
    # bounds (HI-019), ranges over baselines (HI-003) and proven inconsistencies are left out
    assert {"HI-001", "HI-002"} <= set(rows.names)
    assert not any(name.startswith(("HI-003", "HI-019")) for name in rows.names)


@pytest.mark.slow
def test_points_answer_in_the_unit_of_their_claim() -> None:
    """`acc-neox-32` states seconds of a step, whose column has milliseconds."""
    claim = claim_of("independent", "acc-neox-32")
    assert (claim.unit, claim.metric) == ("s", "step_ms")
    (value,) = values_at([claim])[0].ravel()
    assert [value, value] == pytest.approx(predict(claim))


def test_claims_on_test_beds_with_the_same_derates_are_fitted_together() -> None:
    # INF² states rates of an H100 and gains of an A100; all but the GPU is one machine
    rows = claimed("inf2")
    assert {"inf2-speed-30b", "inf2-flex-abs-1t"} <= set(rows.names)
    derates = rows.platform.roles["derate"].numbers
    kernel, relay = derates["tile_loads"], derates["cache_relay"]
    # the kernel's rate is what `at` says it is: a fit to both beds' rows
    assert kernel.kind == "fitted"
    (fit,) = factor_rows(fit_factors(rows, ["derate.tile_loads"]))
    assert fit["fitted"] == pytest.approx(kernel.value, rel=1e-2)
    # the relay's is FlexGen's authors'; the rows alone ask for 0.069 (its note), which agrees
    assert relay.kind == "assumed"
    both = factor_rows(fit_factors(rows, ["derate.tile_loads", "derate.cache_relay"]))
    assert [row["fitted"] for row in both] == pytest.approx([kernel.value, 0.069], rel=2e-2)
    assert both[1]["interval_low"] < relay.value < both[1]["interval_high"]


def test_rows_are_asked_at_numbers_that_some_of_their_beds_lack() -> None:
    rows = claimed("inf2")  # of its two beds one has a cluster, which INF² does not read
    low, high = rows.predict({"cluster_gpu.hbm": np.array([0.65, 0.95])})
    assert low.tolist() == high.tolist()
    assert np.all(low > 0)


HEADER = "system,model,batch,context,output_tokens,step_ms"
GOOD = "h2o,qwen-7b,2,2k,64,57\nh2o,qwen-7b,4,2k,64,110\n"


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (["gpu.bandwidth"], "--factor gpu.bandwidth has no range to fit it in"),
        (["derate.magic"], "unknown number 'derate.magic'"),
        (["pcie"], "'pcie' is not ROLE.KEY"),
        (["derate.pcie", "derate.pcie"], "--factor: names 'derate.pcie' twice"),
        (
            [
                "ssd.read",
                "ssd.write",
                "host.bandwidth",
                "csd.launch",
                "derate.pcie",
                "gpu.hbm",
                "derate.gather",
            ],
            "7 factors are too many; choose at most six with --factor",
        ),
    ],
)
def test_bad_factors_are_one_sentence(exact: Evidence, factors: list[str], words: str) -> None:
    with pytest.raises(InputError) as problem:
        fit_factors(exact, factors)
    assert words in str(problem.value)


def test_measured_derates_are_kept_and_fitted_only_by_name(tmp_path: Path) -> None:
    """What decides steps of an RTX PRO 6000 is stated as measured; it once "changed nothing"."""
    file = tmp_path / "spark.csv"
    runs = [f"gpu,llama3.1-8b,{n},{n}k,64,{70 + n}" for n in (1, 2, 4, 8)]
    file.write_text("\n".join([HEADER, *runs]))
    rows = measured(str(file), "rtx-pro-6000-server")
    with pytest.raises(InputError, match=r"measured, and kept; .* --factor gpu\.hbm"):
        fit_factors(rows, [])
    (row,) = factor_rows(fit_factors(rows, ["gpu.hbm"]))
    assert 0.65 <= row["fitted"] <= 0.95


def test_rows_that_no_fitted_number_moves_are_told_with_what_would(tmp_path: Path) -> None:
    """Rates of the card are measured; those of FlexGen's host are assumed, and fitted alone."""
    platform, file = tmp_path / "mine.toml", tmp_path / "both.csv"
    platform.write_text('base = "hilos-a100"\ntitle = "mine"\n[gpu]\npart = "rtx-pro-6000"\n')
    runs = [f"gpu,llama3.1-8b,{n},8k,64,{18 + n}" for n in (1, 2, 4)]
    runs += [f"flexgen-dram,opt-66b,{n},8k,64,{9000 + n}" for n in (1, 2, 4)]
    file.write_text("\n".join([HEADER, *runs]))
    fitted = fit_factors(measured(str(file), str(platform)))
    assert fitted.unmoved == ("line 2", "line 3", "line 4")
    told = " ".join(sentences(fitted))
    assert "No fitted number moves 3 of 6 rows (line 2, line 3, line 4): those that would" in told
    assert "--factor gpu.hbm" in told


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    file = write_runs(tmp_path / "runs.csv", TRUTH, ("h2o", "full-cache"))
    out = tmp_path / "my.toml"
    words = ["--measurements", file, "--factor", "derate.pcie", "--factor", "ssd.read"]
    done = run("calibrate", *words, "--format", "json", "-o", str(out))
    assert done.stderr == f"wrote {out}; use it as --platform {out}\n"
    assert [row["fitted"] for row in json.loads(done.stdout)] == pytest.approx(
        [0.74, 4.0], rel=1e-3
    )
    assert load_platform(str(out)).roles["ssd"].numbers["read"].value == pytest.approx(
        4.0, rel=1e-3
    )
    printed = " ".join(run("calibrate", *words).stdout.split())  # wrapped where the path ends
    assert "12 rows, 2 factors of aipc-4090" in printed


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "needs either measurements or claims"),
        (["--claims", "hillinfer", "--measurements", "my.csv"], "needs either"),
        (["--claims", "vllm"], "unknown paper 'vllm'"),
        (["--claims", "hillinfer", "--platform", "hilos-a100"], "no measured claim of 'hillinfer'"),
        (["--measurements", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--measurements", "nowhere.csv", "--format", "xml"], "unknown format 'xml'"),
    ],
)
def test_a_bad_command_is_one_sentence(words: list[str], problem: str) -> None:
    done = run("calibrate", *words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize("metric", ["tok_s_per_kusd", "endurance_requests"])
def test_a_column_that_the_model_leaves_blank_is_one_sentence(tmp_path: Path, metric: str) -> None:
    # aipc-4090 states no prices, and h2o writes nothing to flash
    head = HEADER.replace("step_ms", metric)
    (path := tmp_path / "my.csv").write_text(f"{head}\n{GOOD}")
    with pytest.raises(InputError, match=f"line 2: h2o has no {metric} there"):
        measured(str(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "problem"),
    [("my.csv", "name a file that ends in .toml"), ("nowhere/my.toml", "nowhere")],
)
def test_the_place_of_the_platform_is_checked_before_the_fit(place: str, problem: str) -> None:
    done = run("calibrate", "--measurements", "does-not-exist.csv", "-o", place)
    assert done.returncode == 2
    assert problem in done.stderr

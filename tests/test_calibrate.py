"""Fits: known factors come back inside their intervals, what cannot be told is told, bad input is one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.solvers.calibrate import Numbers, fit, left_out
from nearkv.sweeps.evaluation.evaluate import table
from nearkv.sweeps.space.study import Study
from nearkv.sweeps.validation.calibration import calibrate
from nearkv.sweeps.validation.claimed_runs import claimed
from nearkv.sweeps.validation.evidence import Evidence, without
from nearkv.sweeps.validation.fit_report import (
    factor_rows,
    platform_file,
    residual_rows,
    sentences,
)
from nearkv.sweeps.validation.measured_runs import measured

NEARKV = Path(sys.executable).with_name("nearkv")
TRUTH = {"derate.pcie": 0.74, "derate.gather": 0.5, "ssd.read": 4.0}
HEADER = "system,model,batch,context,output,step_ms"
NOISE = 0.05


def write(
    path: Path, truth: Mapping[str, float], systems: tuple[str, ...], of: str = "step_ms"
) -> str:
    """Exact measurements of a machine with known factors."""
    sets = {
        name: f"{value}GB/s" if name == "ssd.read" else str(value) for name, value in truth.items()
    }
    found = table(Study(systems, ("qwen-7b",), "2,8", "2k,4k,8k", "64", sets=sets))
    lines = [f"system,model,batch,context,output,{of}"]
    for row in zip(*(found[name] for name in ("system", "batch", "context_tok", of)), strict=True):
        system, batch, context, value = row
        lines.append(f"{system},qwen-7b,{batch:g},{context:g},64,{value:.9g}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return measured(
        write(
            tmp_path_factory.mktemp("runs") / "runs.csv", TRUTH, ("h2o", "full-cache", "infinigen")
        )
    )


def noisy(evidence: Evidence, seed: int) -> Evidence:
    noise = np.random.default_rng(seed).standard_normal(len(evidence.stated))
    return replace(evidence, stated=evidence.stated * np.exp(NOISE * noise))


def test_known_factors_lie_in_their_intervals_in_90_of_100_trials(exact: Evidence) -> None:
    capacity_check, widths = 0, []
    for seed in range(100):
        rows = factor_rows(calibrate(noisy(exact, seed), tuple(TRUTH)))
        capacity_check += all(
            row["interval_low"] <= TRUTH[row["number"]] <= row["interval_high"] for row in rows
        )
        widths += [
            (row["interval_high"] - row["interval_low"]) / (row["range_high"] - row["range_low"])
            for row in rows
        ]
    assert capacity_check >= 90
    assert np.median(widths) < 0.5


def test_without_noise_the_factors_come_back(exact: Evidence) -> None:
    found = calibrate(exact, tuple(TRUTH))
    assert {row["number"]: row["fitted"] for row in factor_rows(found)} == pytest.approx(
        TRUTH, rel=1e-4
    )
    assert np.abs(found.fit.after).max() < 1e-6
    assert found.fit.unknown == []


def test_rates_are_measurements_too(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.csv", {"derate.pcie": 0.72}, ("h2o",), "decode_tok_s")
    (row,) = factor_rows(calibrate(measured(file), ["derate.pcie"]))
    assert row["fitted"] == pytest.approx(0.72, rel=1e-4)


def test_intervals_shrink_with_noise_and_are_cut_to_the_range(exact: Evidence) -> None:
    loud = noisy(exact, 1)
    quiet = replace(exact, stated=exact.stated * (loud.stated / exact.stated) ** 0.2)
    for wide, narrow in zip(
        *(factor_rows(calibrate(rows, tuple(TRUTH))) for rows in (loud, quiet)), strict=True
    ):
        assert (
            wide["range_low"] <= wide["interval_low"] < wide["interval_high"] <= wide["range_high"]
        )
        assert narrow["interval_high"] - narrow["interval_low"] < 0.5 * (
            wide["interval_high"] - wide["interval_low"]
        )


def test_a_product_of_two_factors_cannot_be_told_apart(tmp_path: Path) -> None:
    # the CPU scores at host.bandwidth x derate.cpu_scoring; the SSD is as fast as in the runs
    file = Path(write(tmp_path / "runs.csv", TRUTH, ("infinigen",)))
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{head},set", *(f"{line},ssd.read=4GB/s" for line in lines)]))
    found = calibrate(noisy(measured(str(file)), 3), ["host.bandwidth", "derate.cpu_scoring"])
    (direction,) = found.fit.unknown
    assert abs(direction).min() > 0.3
    assert abs(found.fit.correlation[0, 1]) > 0.95 or np.all(found.fit.half == 1)
    assert any(
        "cannot separate" in requested and "host.bandwidth" in requested
        for requested in sentences(found)
    )
    assert {row["hint"] for row in factor_rows(found)} == {"not determined"}
    # nothing is fetched from nowhere: a row left out is predicted as well as it is fitted
    assert np.abs(found.left_out).max() < 1.5 * np.abs(found.fit.after).max()


def some(rows: Evidence, kept: list[int]) -> Evidence:
    """Only these rows."""
    return without(rows, [name for i, name in enumerate(rows.names) if i not in kept])


def test_default_factors_are_the_derates_that_matter(exact: Evidence) -> None:
    found = calibrate(noisy(exact, 0))
    assert set(found.factors) == {
        "derate.hbm",
        "derate.pcie",
        "derate.cpu_scoring",
        "derate.gather",
    }
    assert set(found.idle) == {"derate.gemm", "derate.fpga_dram"}
    assert "No row depends on derate.gemm" in sentences(found)[-1]


def test_one_system_alone_may_not_tell_two_rates_apart(tmp_path: Path) -> None:
    # h2o waits for the SSD and then for the link, for so many bytes each at every point
    rows = measured(write(tmp_path / "runs.csv", TRUTH, ("h2o",)))
    found = calibrate(noisy(rows, 0), ["derate.pcie", "ssd.read"])
    assert len(found.fit.unknown) == 1
    assert {row["hint"] for row in factor_rows(found)} == {"not determined"}


def line(points: Numbers) -> Numbers:
    """Residuals of a straight line, two of its four points off."""
    x = np.array([0.0, 0.5, 1.0, 0.25])
    rows: Numbers = (
        points[:, :1] + points[:, 1:] * x - (0.2 + 0.4 * x + np.array([0.0, 1e-4, 0.0, -2e-4]))
    )
    return rows


def test_a_straight_line_is_its_least_squares() -> None:
    found = fit(line, np.array([0.5, 0.5]))
    x = np.array([0.0, 0.5, 1.0, 0.25])
    design = np.stack([np.ones(4), x], axis=1)
    wanted = 0.2 + 0.4 * x + np.array([0.0, 1e-4, 0.0, -2e-4])
    expected, squares, *_ = np.linalg.lstsq(design, wanted, rcond=None)
    assert found.at == pytest.approx(expected, abs=1e-6)
    # 95 % for both: Student's t of 2 degrees of freedom at 1 - 0.05 / 4 is 6.205
    half = 6.205 * np.sqrt(squares[0] / 2 * np.diag(np.linalg.inv(design.T @ design)))
    assert found.half == pytest.approx(half, rel=1e-3)
    # leave one out of a linear fit: residual / (1 - leverage)
    leverage = np.diag(design @ np.linalg.inv(design.T @ design) @ design.T)
    assert left_out(line, found) == pytest.approx(found.after / (1 - leverage), rel=1e-3)


def test_a_row_no_factor_explains_pulls_little() -> None:
    def mean(points: Numbers) -> Numbers:
        rows: Numbers = points - np.array([0.29, 0.3, 0.3, 0.31, 1.0])
        return rows

    found = fit(mean, np.array([0.5]))
    # at the minimum the pulls r / sqrt(1 + (r / 0.1)^2) of all rows are even; least squares would say 0.44
    pulls = found.after / np.sqrt(1 + (found.after / 0.1) ** 2)
    assert np.sum(pulls) == pytest.approx(0, abs=1e-6)
    assert 0.3 < found.at[0] < 0.33


def test_a_factor_that_nothing_depends_on_is_not_determined() -> None:
    def idle(points: Numbers) -> Numbers:
        rows: Numbers = points[:, :1] - np.array([0.3, 0.31, 0.29])
        return rows

    flat = fit(idle, np.array([0.5, 0.5]))
    assert flat.half[1] == 1
    # t of 1 degree of freedom at 1 - 0.05 / 4, and the standard error of a mean of three
    assert flat.half[0] == pytest.approx(25.452 * np.sqrt(2e-4 / 3), rel=1e-3)
    assert np.abs(flat.unknown[0]) == pytest.approx([0, 1], abs=1e-6)


def test_a_row_left_out_is_predicted_by_a_fit_to_the_others(exact: Evidence) -> None:
    rows = noisy(exact, 5)
    found = calibrate(rows, tuple(TRUTH))
    for i in (0, 7):
        others = [j for j in range(len(rows.stated)) if j != i]
        less = some(rows, others)
        again = calibrate(less, tuple(TRUTH))
        exactly = float(found.residuals(again.fit.at[np.newaxis])[0, i])
        assert found.left_out[i] == pytest.approx(exactly, abs=5e-3)


def test_the_written_platform_predicts_as_fitted(exact: Evidence, tmp_path: Path) -> None:
    found = calibrate(noisy(exact, 2), ["derate.pcie", "ssd.read"])
    path = tmp_path / "my.toml"
    path.write_text(platform_file(found))
    assert tomllib.loads(path.read_text())["base"] == "aipc-4090"
    bed = load_platform(str(path))
    number = bed.roles["derate"].numbers["pcie"]
    assert (number.kind, number.source, number.low, number.high) == ("fitted", "user", 0.7, 0.9)
    assert "interval" in number.note
    assert "fitted to 18 rows" in number.at
    assert (
        bed.roles["derate"].numbers["gemm"]
        == load_platform("aipc-4090").roles["derate"].numbers["gemm"]
    )
    assert bed.roles["host"] == load_platform("aipc-4090").roles["host"]
    requested = table(Study(("h2o",), ("qwen-7b",), "2", "2k", "64", platforms=(str(path),)))[
        "step_ms"
    ][0]
    assert requested == pytest.approx(residual_rows(found)[0]["fitted"], rel=1e-5)


def test_claims_of_a_paper_are_rows() -> None:
    rows = claimed("hillinfer")
    assert rows.platform.name == "aipc-4090"
    assert {"HI-001", "HI-003 low", "HI-003 high"} <= set(rows.names)
    # bounds (HI-019) and proven inconsistencies are left out
    assert not any(name.startswith("HI-019") for name in rows.names)
    assert set(rows.names) - set(without(rows, ["HI-003", "HI-001"]).names) == {
        "HI-001",
        "HI-003 low",
        "HI-003 high",
    }
    (row,) = factor_rows(calibrate(rows, ["ssd.read"]))
    stated = rows.platform.roles["ssd"].numbers["read"]
    assert stated.kind == "fitted"
    assert row["fitted"] == pytest.approx(stated.value, rel=1e-2)


def test_claims_on_test_beds_with_the_same_derates_are_fitted_together() -> None:
    # INF² states rates of an H100 and gains of an A100; all but the GPU is one machine
    rows = claimed("inf2")
    assert {"inf2-speed-30b", "inf2-flex-abs-1t"} <= set(rows.names)
    found = calibrate(rows, ["derate.uplink", "derate.fpga_dram", "derate.unpinned"])
    stated = [
        rows.platform.roles["derate"].numbers[key] for key in ("uplink", "fpga_dram", "unpinned")
    ]
    assert [number.kind for number in stated] == ["fitted"] * 3
    assert [row["fitted"] for row in factor_rows(found)] == pytest.approx(
        [n.value for n in stated], rel=1e-2
    )


GOOD = "h2o,qwen-7b,2,2k,64,57\nh2o,qwen-7b,4,2k,64,110\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEADER}\n", "holds no runs"),
        ("", "has no column 'system'"),
        ("system,model,batch,context,step_ms\nh2o,qwen-7b,2,2k,57\n", "has no column 'output'"),
        ("system,model,batch,context,output\nh2o,qwen-7b,2,2k,64\n", "needs exactly one measured column; such as"),
        (f"{HEADER},total_s\nh2o,qwen-7b,2,2k,64,57,3\n", "needs exactly one measured column; it has step_ms, total_s"),
        (f"{HEADER},colour\nh2o,qwen-7b,2,2k,64,57,red\n", "unknown column 'colour'"),
        (f"{HEADER},batch\nh2o,qwen-7b,2,2k,64,57,2\n", "a column is there twice"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,fast\n", "line 2, step_ms: 'fast' is not a number"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,-3\n", "line 2, step_ms: '-3' must be a finite number above zero"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,0\n", "'0' must be a finite number above zero"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,nan\n", "'nan' must be a finite number above zero"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64\n", "line 2: has 5 cells for 6 columns"),
        (f"{HEADER}\nh2o,qwen-7b,half,2k,64,57\n", "line 2, batch: 'half' must be a whole number"),
        (f"{HEADER}\nh3o,qwen-7b,2,2k,64,57\n", "line 2: unknown system 'h3o'; did you mean 'h2o'"),
        (f"{HEADER}\nh2o,qwen-8b,2,2k,64,57\n", "line 2: unknown model 'qwen-8b'; did you mean 'qwen-7b'"),
        (f"{HEADER},knob\n{GOOD.splitlines()[0]},alpha=1\n", "line 2: h2o: unknown knob 'alpha'"),
        (f"{HEADER},knob\n{GOOD.splitlines()[0]},placement\n", "line 2: knob 'placement': write it as NAME=VALUE"),
        (f"{HEADER},set\n{GOOD.splitlines()[0]},\"ssd.read=2GB/s,3GB/s\"\n", "line 2: a run has one value of each knob"),
        (f"{HEADER}\nh2o,llama-13b,2,2k,64,57\n", "line 2: h2o does not fit there, gpu is short of memory"),
        (f"{HEADER}\nhilos,opt-66b,2,2k,64,57\nh2o,qwen-7b,2,2k,64,57\n", "line 3: platform 'hilos-a100'"),
        (f"{HEADER}\n{GOOD}", "2 rows cannot determine 2 factors (derate.hbm, derate.pcie); give more rows"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (path := tmp_path / "my.csv").write_text(text)
    with pytest.raises(InputError) as problem:
        calibrate(measured(str(path)))
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (["gpu.bandwidth"], "--factor gpu.bandwidth: has no range to fit it in"),
        (["derate.magic"], "unknown number 'derate.magic'"),
        (["pcie"], "'pcie' is not ROLE.KEY"),
        (
            [
                "ssd.read",
                "ssd.write",
                "host.bandwidth",
                "csd.launch",
                "derate.pcie",
                "derate.hbm",
                "derate.gather",
            ],
            "7 factors are too many; choose at most six with --factor",
        ),
    ],
)
def test_bad_factors_are_one_sentence(exact: Evidence, factors: list[str], words: str) -> None:
    with pytest.raises(InputError) as problem:
        calibrate(exact, factors)
    assert words in str(problem.value)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NEARKV, "calibrate", *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_command(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.csv", TRUTH, ("h2o", "full-cache"))
    out = tmp_path / "my.toml"
    words = ["--measurements", file, "--factor", "derate.pcie", "--factor", "ssd.read"]
    done = run(*words, "--format", "json", "-o", str(out))
    assert [row["fitted"] for row in json.loads(done.stdout)] == pytest.approx(
        [0.74, 4.0], rel=1e-3
    )
    assert load_platform(str(out)).roles["ssd"].numbers["read"].value == pytest.approx(
        4.0, rel=1e-3
    )
    assert len(json.loads(run(*words, "--residuals", "--format", "json").stdout)) == 12
    assert "12 rows, 2 factors of aipc-4090" in run(*words).stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "needs either --claims PAPER or --measurements FILE.csv"),
        (["--claims", "hillinfer", "--measurements", "my.csv"], "needs either"),
        (["--claims", "vllm"], "unknown paper 'vllm'"),
        (["--claims", "hillinfer", "--platform", "hilos-a100"], "no measured claim of 'hillinfer'"),
        (
            ["--claims", "hillinfer", "--without", "HI-01"],
            "--without: unknown row 'HI-01'; did you mean 'HI-001'",
        ),
        (["--measurements", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--measurements", "nowhere.csv", "--format", "xml"], "unknown format 'xml'"),
    ],
)
def test_a_bad_command_is_one_sentence(words: list[str], problem: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout

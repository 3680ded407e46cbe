"""What calibrate reads: a bad file, factor or command is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.measured_runs import TRUTH, write_runs
from support.warm_command import run

from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.validation.calibration import calibrate
from nearkv.sweeps.validation.evidence import Evidence, measured

HEADER = "system,model,batch,context,output_tokens,step_ms"


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    file = tmp_path_factory.mktemp("runs") / "runs.csv"
    return measured(write_runs(file, TRUTH, ("h2o", "full-cache", "infinigen")))


GOOD = "h2o,qwen-7b,2,2k,64,57\nh2o,qwen-7b,4,2k,64,110\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEADER}\n", "holds no runs"),
        ("", "has no column 'system'"),
        (
            "system,model,batch,context,step_ms\nh2o,qwen-7b,2,2k,57\n",
            "has no column 'output_tokens'",
        ),
        (
            "system,model,batch,context,output_tokens\nh2o,qwen-7b,2,2k,64\n",
            "needs exactly one measured column; such as",
        ),
        (
            f"{HEADER},total_s\nh2o,qwen-7b,2,2k,64,57,3\n",
            "needs exactly one measured column; it has step_ms, total_s",
        ),
        (f"{HEADER},colour\nh2o,qwen-7b,2,2k,64,57,red\n", "unknown column 'colour'"),
        (f"{HEADER},batch\nh2o,qwen-7b,2,2k,64,57,2\n", "a column is there twice"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,fast\n", "line 2, step_ms: 'fast' is not a number"),
        (
            f"{HEADER}\nh2o,qwen-7b,2,2k,64,-3\n",
            "line 2, step_ms: '-3' must be a finite number above 0",
        ),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,0\n", "'0' must be a finite number above 0"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64,nan\n", "'nan' must be a finite number above 0"),
        (f"{HEADER}\nh2o,qwen-7b,2,2k,64\n", "line 2: has 5 cells for 6 columns"),
        (f"{HEADER}\nh2o,qwen-7b,half,2k,64,57\n", "line 2, batch: 'half' must be a whole number"),
        (f"{HEADER}\nh3o,qwen-7b,2,2k,64,57\n", "line 2: unknown system 'h3o'; did you mean 'h2o'"),
        (
            f"{HEADER}\nh2o,qwen-8b,2,2k,64,57\n",
            "line 2: unknown model 'qwen-8b'; did you mean 'qwen",
        ),
        (f"{HEADER},knob\n{GOOD.splitlines()[0]},alpha=1\n", "line 2: h2o: unknown knob 'alpha'"),
        (
            f"{HEADER},knob\n{GOOD.splitlines()[0]},placement\n",
            "line 2: knob 'placement': write it as NAME=VALUE",
        ),
        (
            f'{HEADER},set\n{GOOD.splitlines()[0]},"ssd.read=2GB/s,3GB/s"\n',
            "line 2: a run has one value of each knob",
        ),
        (
            f"{HEADER}\nh2o,llama-13b,2,2k,64,57\n",
            "line 2: h2o does not fit there, gpu is short of memory",
        ),
        (
            f"{HEADER}\nhilos,opt-66b,2,2k,64,57\nh2o,qwen-7b,2,2k,64,57\n",
            "line 3: platform 'hilos-a100'",
        ),
        (
            f"{HEADER}\n{GOOD}",
            "2 rows cannot determine 2 factors (derate.hbm, derate.pcie); give more rows",
        ),
    ],
)
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
        (["derate.pcie", "derate.pcie"], "--factor: names 'derate.pcie' twice"),
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
    assert len(json.loads(run("calibrate", *words, "--residuals", "--format", "json").stdout)) == 12
    printed = " ".join(run("calibrate", *words).stdout.split())  # wrapped where the path ends
    assert "12 rows, 2 factors of aipc-4090" in printed


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "needs either measurements or claims"),
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
    [("my.csv", "a platform is a .toml file"), ("nowhere/my.toml", "nowhere")],
)
def test_the_place_of_the_platform_is_checked_before_the_fit(place: str, problem: str) -> None:
    done = run("calibrate", "--measurements", "does-not-exist.csv", "-o", place)
    assert done.returncode == 2
    assert problem in done.stderr

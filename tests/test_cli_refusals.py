"""Bad input on the command line: one sentence on standard error, exit 2, before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.warm_command import refused, run
from typer.testing import CliRunner

from nearkv.cli import app

POINT = ["--model", "opt-66b", "--batch", "16", "--context", "32k", "--platform", "hilos-a100"]

LARGE = [
    *("--model", "opt-66b", "--batch", "1:1000:+1", "--context", "1k:1001k:+1k"),
    *("--set", "csd.count=1:16:+1"),
]
"""A grid that would take far too long to sweep."""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["estimate", "hilos", "--model", "opt-67b"], "unknown model 'opt-67b'"),
        (["estimate", "hylos", "--model", "opt-66b"], "did you mean 'hilos'"),
        (
            ["estimate", "hilos", "--model", "opt-66b", "--platform", "hilos-b100"],
            "unknown platform",
        ),
        (["estimate", "hilos", "--model", "opt-66b", "--knob", "beta=1"], "unknown knob"),
        (
            ["estimate", "hilos", "--model", "opt-66b", "--set", "csd.cont=4"],
            "did you mean 'csd.count'",
        ),
        (["estimate", "hilos", "--model", "opt-66b", "--batch", "-1"], "--batch"),
        (["estimate", "hilos", "--model", "opt-66b", "--batch", "0"], "--batch"),
        (["estimate", "hilos", "--model", "opt-66b", "--batch", "nan"], "--batch"),
        (["estimate", "hilos", "--model", "opt-66b", "--batch", "1e400"], "--batch"),
        (["estimate", "hilos", "--model", "opt-66b", "--batch", "1,2"], "one design point"),
        (["estimate", "hilos", "--model", "opt-66b", "--set", "csd.count=2.5"], "whole number"),
        (["estimate", "hilos", "--model", "opt-66b", "--set", "gpu.flops=3 GB"], "FLOP/s"),
        (["estimate", "hilos", "--model", "opt-66b", "--format", "yaml"], "unknown format"),
        (["estimate", "hilos", "--model", "nowhere/config.json"], "cannot be read"),
        (["systems", "show", "hilo"], "did you mean 'hilos'"),
        (["estimat", "hilos"], "unknown command 'estimat'; did you mean 'estimate'"),
        (["solve", "alfa"], "solve: unknown command 'alfa'; did you mean 'alpha'"),
        (["models", "show", "opt"], "unknown model"),
        (["hardware", "show", "a100"], "unknown platform or part"),
        (["hardware", "show", "hilos-a100", "--set", "csd.count=x"], "not a number"),
        (
            ["solve", "alpha", "--model", "opt-66b", "--system", "hierarchical"],
            "unknown knob 'alpha'; valid are: chunk",
        ),
        (["sweep", "nowhere.toml"], "cannot be read"),
        (["sweep"], "no system is named"),
        (["sweep", "--system", "hilos", "--model", "opt-66b", "--batch", "1:1e15:+1"], "1e+15"),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "--resume"],
            "--resume goes on with a file",
        ),
        (["design", "--model", "opt-66b", "--resume"], "give the -o FILE that it was begun with"),
        (["compare", "vllm"], "vllm is an engine, no system; one takes it as a part, as in gpu"),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "--jobs", "2"],
            "a table needs neither",
        ),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "--jobs", "0", "-o", "out.csv"],
            "--jobs must be from 1 to 256, not 0",
        ),
        (["sweep", "--jobs", "x"], "--jobs takes a whole number"),
        (
            ["compare", "hilos", "--model", "opt-66b", "--band", "90", "--samples", "0"],
            "--samples 0: give a number from 16",
        ),
        (["solve", "hardware", "--target", "step_ms=5"], "--target is --slo now"),
        (["estimate", "hilos", "--output", "5"], "--output is --output-tokens now"),
        (["sweep", "--limit", "5"], "--limit is --slo now"),
        (["sensitivity", "--limit", "5"], "No such option: --limit"),
        (
            ["compare", "hilos", "--model", "opt-66b", "--columns", "tbt_ms"],
            "unknown column 'tbt_ms'; it is 'tpot_ms' now",
        ),
        (["compare", "hilos", "--zip", "context=1k", "batch=1"], "unknown system 'batch=1'"),
        (["estimate", "hilos", "--zip", "context=1k", "batch=1"], "in front of each NAME=VALUE"),
        (["--seed", "1", "estimate"], "options follow the command"),
        (["estimate", "hilos", "--seed", "1", "--seed=2"], "--seed is given twice"),
        (["sweep", "-o", ""], "--output-file '' is empty"),
        (["sweep", "--scheduler="], "--scheduler '' is empty"),
        (["sweep", "--best-per", ""], "--best-per '' is empty"),
        (["sweep", "--best-per", ","], "--best-per ',' is empty"),
        (["estimate", "hilos", "--trace", ""], "--trace '' is empty"),
        (["solve", "alpha", "--trace", " "], "--trace ' ' is empty"),
        (["sweep", "--by", "step_ms"], "--by step_ms: says what --top and --best-per compare by"),
        (["sweep", "--format", "json", "-o", "x.csv"], "the end of -o x.csv says what is written"),
        (
            ["sweep", "--resume", "--top", "3", "-o", "x.csv"],
            "--top and --best-per start anew",
        ),
        (["sweep", *POINT, "--system", "hilos", "--columns", "batch,batch"], "names 'batch' twice"),
        (
            ["sweep", *POINT, "--system", "hilos", "--columns", "batch,batch", "-o", "x.csv"],
            "names 'batch' twice",
        ),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "-o", "no/such/folder/out.csv"],
            "cannot be written",
        ),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "-o", "/proc/out.csv"],
            "cannot be written",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_two(arguments: list[str], printed: str) -> None:
    assert printed in refused(*arguments)


@pytest.mark.parametrize("place", ["no/such/folder/x.csv", "/dev/full", "x.xls", "."])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(place: str) -> None:
    printed = run("sweep", "--system", "hilos", *LARGE, "--top", "3", "-o", place)
    assert printed.returncode == 2
    assert printed.stderr.count("\n") == 1, "not even the estimate"
    assert "to compare" not in printed.stderr
    assert place in refused("compare", "hilos", "flexgen-ssd", *POINT, "-o", place)


def test_best_rows_want_columns_that_are_there_before_any_work() -> None:
    assert "did you mean 'step_ms'" in refused(
        "sweep", "--system", "hilos", *LARGE, "--top", "3", "--columns", "step_m"
    )


def test_a_bad_specification_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bed.toml").write_text(
        '[gpu]\npart = "a100-40gb"\ncount = { value = 1, unit = "1", kind = "paper", at = "x" }\n'
    )
    printed = refused(
        "estimate", "hilos", "--model", "opt-66b", "--platform", "bed.toml", cwd=tmp_path
    )
    assert "bed.toml: gpu: count has no source" in printed


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "intermediate_size": 100,
    "vocab_size": 1000,
    "hidden_size": 96,
    "num_attention_heads": 3,
}


def sentence(words: list[str]) -> str:
    """Sentence of a refused command line."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    (problem,) = [line for line in lines if not line.startswith("nearkv: warning:")]
    return problem


def test_more_axes_than_arrays_have_dimensions_are_refused() -> None:
    numbers = "capacity read write page power idle_power price p2p_read memory memory_bandwidth"
    numbers = f"{numbers} kernel_g1 kernel_g4 kernel_g5 kernel_power_g1 kernel_power_g4 count"
    units = {"capacity": "GB", "memory": "GB", "page": "KiB", "price": "USD", "count": ""}
    words = ["compare", "hilos", "--model", "opt-30b"]
    for role in ("csd", "raid"):
        for name in numbers.split():
            unit = units.get(name, "W" if "power" in name else "GB/s")
            unit = "TFLOP/s" if name in ("kernel_g1", "kernel_g4", "kernel_g5") else unit
            words += ["--set", f"{role}.{name}={1 if 'idle' in name else 4}{unit}"]
    for role in ("gpu", "host", "ssd"):
        for name in ("count", "price", "power", "idle_power"):
            words += ["--set", f"{role}.{name}={1 if 'idle' in name else 4}{units.get(name, 'W')}"]
    for role in ("gpu_link", "ssd_link", "uplink"):
        for name in ("count", "price"):
            words += ["--set", f"{role}.{name}=4{units.get(name, 'W')}"]
    for name in ("gpu.flops=4TFLOP/s", "gpu.memory=40GB", "gpu.bandwidth=4GB/s"):
        words += ["--set", name]
    assert "axes are more than the 56 of a grid" in sentence(words)


def test_options_before_the_command_are_refused_in_one_sentence() -> None:
    assert "options follow the command" in sentence(["--model", "opt-30b", "estimate", "hilos"])


def test_a_name_that_a_spreadsheet_would_compute_is_refused() -> None:
    assert "begins like a formula" in sentence(
        ["compare", "gpu", "--model", "opt-66b", "--trace", "=1+1.csv"]
    )


@pytest.mark.parametrize("knob", ["alpha", "spill"])
def test_a_knob_that_one_of_several_systems_lacks_is_not_solved(knob: str) -> None:
    line = f"solve {knob} --system flexgen-raid,hilos --model opt-66b --context 16k"
    assert "flexgen-raid: unknown knob" in sentence(line.split())


def test_a_batch_is_not_chosen_for_a_trace() -> None:
    line = "solve batch --system gpu --model opt-66b --trace dolphin"
    assert "leave out --trace" in sentence(line.split())


def test_a_count_of_hundreds_of_digits_is_refused() -> None:
    line = "solve placement --model opt-30b --context 256 --output-tokens 8 --gpu-batch"
    assert "gpu batch must be a whole number from 1 to" in sentence([*line.split(), "9" * 400])


def test_an_option_with_the_value_of_its_default_is_refused_as_any_other() -> None:
    """A batch is taken as 16 where none is given, so the value does not show that one was."""
    line = "solve batch --model opt-66b --batch 16"
    assert "leave out --batch" in sentence(line.split())


def test_thousands_of_heads_are_refused_where_heads_are_mapped(tmp_path: Path) -> None:
    """A table over all pairs of 6,144 heads and their modes would take terabytes."""
    file = tmp_path / "config.json"
    sizes = {"num_attention_heads": 6144, "hidden_size": 6144 * 2, "head_dim": 2}
    file.write_text(json.dumps(LLAMA | sizes | {"num_key_value_heads": 6144}))
    for system in ("oracle", "h2m2"):
        line = ["estimate", system, "--model", str(file), "--batch", "1", "--context", "64"]
        assert "more than the 1,024" in sentence(line)

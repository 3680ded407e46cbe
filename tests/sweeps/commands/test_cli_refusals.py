"""Bad input on the command line: one sentence on standard error, exit 2, before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.warm_command import refused, run

POINT = ["--model", "opt-66b", "--batch", "16", "--context", "32k", "--platform", "hilos-a100"]

LARGE = [
    *("--model", "opt-66b", "--batch", "1:1000:+1", "--context", "1k:1001k:+1k"),
    *("--set", "csd.count=1:16:+1"),
]
"""A grid that would take far too long to sweep."""


@pytest.mark.parametrize(
    ("arguments", "requested"),
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
        (["solve", "alpha", "--model", "opt-66b", "--system", "vllm-multinode"], "has no knobs"),
        (["sweep", "nowhere.toml"], "cannot be read"),
        (["sweep"], "nothing to evaluate"),
        (["sweep", "--system", "hilos", "--model", "opt-66b", "--batch", "1:1e15:+1"], "1e+15"),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "--resume"],
            "--resume goes on with a file",
        ),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "--jobs", "2"],
            "a table needs neither",
        ),
        (
            ["sweep", "--system", "hilos", "--model", "opt-66b", "--jobs", "0", "-o", "out.csv"],
            "--jobs 0",
        ),
        (["sweep", "--jobs", "x"], "--jobs takes a whole number"),
        (["solve", "hardware", "--target", "step_ms=5"], "--target is --slo now"),
        (["estimate", "hilos", "--output", "5"], "--output is --output-tokens now"),
        (["sweep", "--limit", "5"], "No such option: --limit"),
        (
            ["compare", "hilos", "--model", "opt-66b", "--columns", "tbt_ms"],
            "unknown column 'tbt_ms'; it is 'tpot_ms' now",
        ),
        (["compare", "hilos", "--zip", "context=1k", "batch=1"], "unknown system 'batch=1'"),
        (["estimate", "hilos", "--zip", "context=1k", "batch=1"], "in front of each NAME=VALUE"),
        (["--seed", "1", "estimate"], "options follow the command"),
        (["estimate", "hilos", "--seed", "1", "--seed=2"], "--seed: is given twice"),
        (["sweep", "-o", ""], "--output-file '': is empty"),
        (["sweep", "--scheduler="], "--scheduler '': is empty"),
        (["sweep", "--best-per", ""], "--best-per '': is empty"),
        (["sweep", "--best-per", ","], "--best-per ',': is empty"),
        (["estimate", "hilos", "--trace", ""], "--trace '': is empty"),
        (["solve", "alpha", "--trace", " "], "--trace ' ': is empty"),
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
def test_bad_input_is_one_sentence_and_exit_two(arguments: list[str], requested: str) -> None:
    assert requested in refused(*arguments)


@pytest.mark.parametrize("place", ["no/such/folder/x.csv", "/dev/full", "x.xls", "."])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(place: str) -> None:
    requested = run("sweep", "--system", "hilos", *LARGE, "--top", "3", "-o", place)
    assert requested.returncode == 2
    assert requested.stderr.count("\n") == 1, "not even the estimate"
    assert "to compare" not in requested.stderr
    assert place in refused("compare", "hilos", "flexgen-ssd", *POINT, "-o", place)


def test_best_rows_want_columns_that_are_there_before_any_work() -> None:
    assert "did you mean 'step_ms'" in refused(
        "sweep", "--system", "hilos", *LARGE, "--top", "3", "--columns", "step_m"
    )


def test_a_bad_specification_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bed.toml").write_text(
        '[gpu]\npart = "a100-40gb"\ncount = { value = 1, unit = "1", kind = "paper", at = "x" }\n'
    )
    requested = refused(
        "estimate", "hilos", "--model", "opt-66b", "--platform", "bed.toml", cwd=tmp_path
    )
    assert "bed.toml: gpu: count: has no source" in requested

"""The command as a user runs it: a real process, its exit code, what it prints and what it leaves."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nearkv
from nearkv.cli import app
from nearkv.sweeps.commands.failures import Registry

COMMAND = Path(sys.executable).with_name("nearkv")
POINT = ["--model", "opt-66b", "--batch", "16", "--context", "32k", "--platform", "hilos-a100"]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, check=False, timeout=60
    )


def refused(*arguments: str, cwd: Path | None = None) -> str:
    """Run what must fail: exit 2, one sentence on standard error, nothing on standard output."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def commands(group: Registry, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and every group with commands of its own, as a user writes them."""
    for name, entry in group.entries.items():
        yield (*words, name)
        if isinstance(entry, Registry):
            yield from commands(entry, (*words, name))


COMMANDS = list(commands(app))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...]) -> None:
    outcome = CliRunner().invoke(app, [*command, "-h"])
    assert outcome.exit_code == 0
    text = " ".join(outcome.stdout.split())
    if command in (("solve",), ("plot",)):
        assert "Commands:" in text
        return
    (example,) = re.findall(r"Example: (nearkv .+)", text)
    assert f"nearkv {' '.join(command)}" in example


def test_help_lists_commands_in_the_order_of_use() -> None:
    text = run("--help").stdout.split("Commands:")[1]
    names = re.findall(r"^  (\S+)", text, re.MULTILINE)
    first = ["estimate", "compare", "sweep", "solve"]
    assert names[:4] == first
    assert names[-3:] == ["systems", "models", "hardware"]


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"nearkv {nearkv.__version__}\n"
    assert run("-h").stdout == run("--help").stdout


def test_catalogues_list_and_show() -> None:
    assert "hilos" in run("systems").stdout
    assert "alpha" in run("systems", "show", "hilos").stdout
    assert json.loads(run("models", "--format", "json").stdout)[0]["layers"] > 0
    numbers = json.loads(run("hardware", "show", "hilos-a100", "--format", "json").stdout)
    assert {"part", "key", "value", "unit", "si", "kind", "source", "at"} <= numbers[0].keys()
    changed = json.loads(
        run("hardware", "show", "hilos-a100", "--set", "csd.count=16", "--format", "json").stdout
    )
    assert next(row["si"] for row in changed if (row["part"], row["key"]) == ("csd", "count")) == 16


def test_solve_alpha_answers_in_json() -> None:
    done = run("solve", "alpha", *POINT, "--format", "json")
    (row,) = json.loads(done.stdout)
    assert {
        "value",
        "step_ms",
        "gap",
        "rule",
        "rule_step_ms",
        "bound_by",
        "bound_ms",
    } <= row.keys()
    assert row["step_ms"] <= row["rule_step_ms"]
    assert row["step_ms"] == pytest.approx(row["bound_ms"])


def test_solve_alpha_explains_gqa() -> None:
    text = run("solve", "alpha", "--model", "mixtral-8x7b").stdout
    assert "X has 2 times the bytes of K and V" in " ".join(text.split())


def test_solve_spill_answers() -> None:
    (row,) = json.loads(run("solve", "spill", *POINT, "--format", "json").stdout)
    assert row["rule"] == 16
    assert 0 <= row["rule_loss"] < 1e-3
    assert row["rule_step_ms"] == pytest.approx(row["step_ms"] * (1 + row["rule_loss"]))


def test_rows_carry_the_promised_columns() -> None:
    (row,) = json.loads(run("estimate", "hilos", *POINT, "--format", "json").stdout)
    promised = (
        "system model platform batch context_tok output_tok status reason short_of short_gb note prefill_s step_ms total_s decode_tok_s "
        "throughput_tok_s energy_j_tok cost_usd tok_s_per_kusd alpha interval writeback devices"
    )
    assert set(promised.split()) <= row.keys()
    rows = json.loads(run("compare", "flexgen-ssd", "hilos", *POINT, "--format", "json").stdout)
    assert rows[0]["speedup"] == 1
    assert rows[1]["speedup"] == pytest.approx(rows[1]["decode_tok_s"] / rows[0]["decode_tok_s"])


def test_explain_shares_sum_to_one() -> None:
    rows = json.loads(run("estimate", "hilos", *POINT, "--explain", "--format", "json").stdout)
    leaves = [row for row in rows if row["resource"]]
    assert sum(row["share"] for row in leaves) == pytest.approx(1.0)
    assert all(row["equation"] for row in leaves)


def test_infeasible_says_which_memory_and_how_much() -> None:
    done = run("compare", "flexgen-ssd", "flexgen-dram", "--model", "opt-175b", "--context", "128k")
    assert done.returncode == 0
    assert "host" in done.stdout
    assert "69.02" in done.stdout


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown", "latex"])
def test_every_format_prints(form: str) -> None:
    done = run("compare", "flexgen-ssd", "hilos", *POINT, "--format", form)
    assert done.returncode == 0
    assert "hilos" in done.stdout


def test_sweep_writes_csv_and_where_its_numbers_come_from(tmp_path: Path) -> None:
    axes = [
        "--system",
        "hilos",
        "--model",
        "opt-66b",
        "--context",
        "8k:32k:x2",
        "--set",
        "csd.count=4,8",
    ]
    assert run("sweep", *axes, "-o", "out.csv", cwd=tmp_path).returncode == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["context_tok"], row["csd.count"]) for row in rows[:3]] == [
        ("8192", "4"),
        ("8192", "8"),
        ("16384", "4"),
    ]
    origin = json.loads((tmp_path / "out.csv.provenance.json").read_text())
    assert origin["command"].startswith("nearkv sweep --system hilos")
    assert {row["source"] for row in origin["platforms"]["hilos-a100"]} <= origin["sources"].keys()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "out.csv",
        "out.csv.provenance.json",
    ]


def test_sweep_of_a_study_equals_its_axes(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'systems = ["hilos"]\nmodel = ["opt-66b"]\ncontext = "8k:32k:x2"\n'
    )
    study = run("sweep", "s.toml", cwd=tmp_path)
    axes = run("sweep", "--system", "hilos", "--model", "opt-66b", "--context", "8k:32k:x2")
    assert study.stdout == axes.stdout
    assert study.stdout.startswith("system,model,platform")


def test_a_hugging_face_config_is_a_model(tmp_path: Path) -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 48,
        "n_embd": 1600,
        "n_head": 25,
        "vocab_size": 50257,
        "n_positions": 1024,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run("estimate", "hilos", "--model", str(tmp_path / "config.json")).returncode == 0
    del config["n_layer"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "which a gpt2 config must have" in refused(
        "estimate", "hilos", "--model", str(tmp_path / "config.json")
    )


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
        (["solve", "alpha", "--model", "opt-66b", "--system", "flexgen-ssd"], "has no knobs"),
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
        (["sweep", "-o", ""], "-o '': is empty"),
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
    grid = [
        "--model",
        "opt-66b",
        "--batch",
        "1:1000:+1",
        "--context",
        "1k:1001k:+1k",
        "--set",
        "csd.count=1:16:+1",
    ]
    requested = run("sweep", "--system", "hilos", *grid, "--top", "3", "-o", place)
    assert requested.returncode == 2
    assert requested.stderr.count("\n") == 1, "not even the estimate"
    assert "to compare" not in requested.stderr
    assert place in refused("compare", "hilos", "flexgen-ssd", *POINT, "-o", place)


def test_best_rows_want_columns_that_are_there_before_any_work() -> None:
    grid = [
        "--model",
        "opt-66b",
        "--batch",
        "1:1000:+1",
        "--context",
        "1k:1001k:+1k",
        "--set",
        "csd.count=1:16:+1",
    ]
    assert "did you mean 'step_ms'" in refused(
        "sweep", "--system", "hilos", *grid, "--top", "3", "--columns", "step_m"
    )


def test_a_bad_specification_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bed.toml").write_text(
        '[gpu]\npart = "a100-40gb"\ncount = { value = 1, unit = "1", kind = "paper", at = "x" }\n'
    )
    requested = refused(
        "estimate", "hilos", "--model", "opt-66b", "--platform", "bed.toml", cwd=tmp_path
    )
    assert "bed.toml: gpu: count: has no source" in requested


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """Where no more may be written, the file that was there stays as it was."""
    out = tmp_path / "out.csv"
    out.write_text("old")
    limit = (
        f"ulimit -f 1; exec {COMMAND} sweep --system hilos --model opt-66b --batch 1:64:+1 -o {out}"
    )
    done = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; {limit}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert out.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_output_pipes_into_a_reader_that_stops() -> None:
    line = f"{COMMAND} sweep --system hilos --model opt-66b --batch 1:512:+1 --context 1k:256k:x2 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("system,")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_help_needs_no_numpy() -> None:
    names = "numpy pandas scipy pulp rich"
    script = f"import sys, nearkv.cli; print([name for name in '{names}'.split() if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert done.stdout.strip() == "[]"


def test_an_output_goes_behind_a_link_and_never_in_place_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("target.csv")
    assert (
        run(
            "sweep", "--system", "hilos", "--model", "opt-66b", "-o", "link.csv", cwd=tmp_path
        ).returncode
        == 0
    )
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text().startswith("system,")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "device or a pipe" in refused(
        "sweep", "--system", "hilos", "--model", "opt-66b", "-o", "pipe.csv", cwd=tmp_path
    )

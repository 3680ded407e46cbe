"""The command as a user runs it: its exit code, what it prints and which files it leaves."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke
from support.warm_command import refused, run
from typer.main import get_command
from typer.testing import CliRunner

import nearkv
from nearkv.cli import app
from nearkv.hardware.errors import warn

COMMAND = Path(sys.executable).with_name("nearkv")
POINT = ["--model", "opt-66b", "--batch", "16", "--context", "32k", "--platform", "hilos-a100"]


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and every group with commands of its own, as a user writes them."""
    for name, command in group.commands.items():
        yield (*words, name)
        yield from commands(command, (*words, name)) if hasattr(command, "commands") else ()


COMMANDS = list(commands(get_command(app)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...]) -> None:
    outcome = CliRunner().invoke(app, [*command, "-h"])
    assert outcome.exit_code == 0
    text = " ".join(outcome.stdout.split())
    (example,) = re.findall(r"Example: (nearkv .+)", text)
    assert f"nearkv {' '.join(command)}" in example


LACKS_MEMORY = ("--model", "opt-175b", "--context", "1M", "--set", "csd.count=1")
LATENT = ("--model", "deepseek-v3")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("estimate", "hilos", *LACKS_MEMORY), 3),
        (("estimate", "hilos", *LACKS_MEMORY, "--explain"), 3),
        (("estimate", "infinigen", *LATENT, "--format", "json"), 3),
        (("compare", "hilos", *LACKS_MEMORY, "--columns", "system,batch"), 3),
        (("compare", "hilos", *LACKS_MEMORY, "--chart"), 3),
        # a table of several rows says of each whether it has an answer
        (("compare", "hilos", *LACKS_MEMORY, "--batch", "1,2"), 0),
        (("solve", "alpha", *LACKS_MEMORY), 3),
        (("solve", "spill", *LACKS_MEMORY), 3),
        (("solve", "beta", "--model", "opt-66b", "--context", "1M"), 3),
        (("solve", "batch", *LACKS_MEMORY), 0),  # of one sequence
        (("solve", "batch", *LACKS_MEMORY, "--set", "csd.capacity=1TB"), 3),
        (("solve", "hardware", *LACKS_MEMORY, "--vary", "gpu.memory", "--slo", "step_ms=1"), 3),
        (("solve", "mapping", "--model", "gpt3-175b", "--context", "1M"), 3),
        (("solve", "placement", "--model", "gpt3-175b", "--set", "gpu.memory=1GiB"), 3),
        (("estimate", "hilos", "--model", "opt-66b"), 0),
    ],
)
def test_the_exit_code_says_whether_the_only_row_has_an_answer(
    words: tuple[str, ...], code: int
) -> None:
    outcome = CliRunner().invoke(app, [*words])
    assert outcome.exit_code == code, outcome.output
    assert outcome.stdout  # the row is printed all the same


def test_help_lists_commands_in_the_order_of_use() -> None:
    text = run("--help").stdout.split("Commands:")[1]
    names = re.findall(r"^  (\S+)", text, re.MULTILINE)
    first = ["estimate", "compare", "sweep", "solve"]
    assert names[:4] == first
    assert names[-4:] == ["systems", "models", "hardware", "columns"]


def test_a_fault_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback of an unforeseen error is printed where it is asked for."""

    def breaks(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("nearkv.sweeps.commands.options.view_of", breaks)
    outcome = CliRunner().invoke(app, ["columns", "show", "step_ms"])
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith("nearkv: a fault of nearkv, ZeroDivisionError: division by")
    assert outcome.stderr.count("\n") == 1
    monkeypatch.setenv("NEARKV_TRACEBACK", "1")
    assert "Traceback" in CliRunner().invoke(app, ["columns", "show", "step_ms"]).stderr


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"nearkv {nearkv.__version__}\n"
    assert run("-h").stdout == run("--help").stdout


@pytest.mark.slow
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


@pytest.mark.slow
def test_rows_carry_the_promised_columns() -> None:
    (row,) = json.loads(run("estimate", "hilos", *POINT, "--format", "json").stdout)
    promised = (
        "system model platform batch context_tok output_tokens status reason short_of short_gb "
        "note prefill_s step_ms total_s decode_tok_s "
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
    assert "105.9" in done.stdout


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown", "latex"])
def test_every_format_prints(form: str) -> None:
    done = run("compare", "flexgen-ssd", "hilos", *POINT, "--format", form)
    assert done.returncode == 0
    assert "hilos" in done.stdout


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_output_pipes_into_a_reader_that_stops() -> None:
    sweep = "sweep --system hilos --model opt-66b --batch 1:512:+1 --context 1k:256k:x2"
    line = f"{COMMAND} {sweep} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("system,")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def loaded_by(script: str, *names: str) -> list[str]:
    """Those of some libraries that Python loads for a script."""
    lines = f"import sys\n{script}\nprint(*sys.modules.keys() & {set(names)}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    return done.stderr.split()


def test_help_needs_no_numpy() -> None:
    assert not loaded_by("import nearkv.cli", "numpy", "pandas", "scipy", "pulp", "rich")


PRINTS_ROWS = (
    ["estimate", "hilos", *POINT],
    ["compare", "flexgen-ssd", "hilos", *POINT],
    ["solve", "alpha", *POINT],
    ["solve", "hardware", *POINT, "--vary", "csd.count=1:4", "--slo", "throughput_tok_s=0.1"],
    ["pareto", "--system", "hilos", *POINT, "--set", "csd.count=1,2"],
    ["columns"],
)
"""A command for each of the ways in which rows come about."""


@pytest.mark.slow
def test_commands_that_print_rows_need_no_pandas() -> None:
    """It takes longer to load than they need."""
    calls = [f"app({words}, standalone_mode=False)" for words in PRINTS_ROWS]
    script = "\n".join(["from nearkv.cli import app", *calls])
    assert not loaded_by(script, "pandas", "pyarrow")


@pytest.mark.slow
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


@pytest.mark.processes
def test_what_a_terminal_cannot_print_is_replaced() -> None:
    """A letter that Latin-1 lacks ended a table in UnicodeEncodeError; a replica lacks memory."""
    line = [sys.executable, "-m", "nearkv", "compare", "gpu", "--model", "opt-30b"]
    line += ["--platform", "dgx-a100-pim", "--knob", "tp=l3", "--knob", "pp=1"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(line, env=environment, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (3, False)


def test_what_a_library_warns_of_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(*_: object, **__: object) -> None:
        warnings.warn("divide by zero encountered", RuntimeWarning, stacklevel=1)
        warn("a sentence of nearkv")

    monkeypatch.setattr("nearkv.sweeps.commands.catalogues.print_table", noisy)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = invoke("systems")
    assert done.stderr.splitlines() == ["nearkv: warning: a sentence of nearkv"]

"""`nearkv plot` as a user runs it: a figure from a file or a pipe, one sentence for bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NEARKV = Path(sys.executable).with_name("nearkv")
TABLE = "system,context_tok,status,step_ms\nslow,1024,ok,2\nfast,1024,infeasible,\n"


def plot(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run `nearkv plot` with a table on standard input."""
    command = [str(NEARKV), "plot", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_a_piped_table_becomes_a_figure(tmp_path: Path) -> None:
    file = tmp_path / "bars.svg"
    done = plot("bars", "-", "--value", "step_ms", "-o", str(file), text=TABLE)
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert "Step (ms)" in text
    assert "OOM" in text


def test_a_table_of_a_command_becomes_a_map_with_its_boundary(tmp_path: Path) -> None:
    study = ["--model", "opt-30b", "--batch", "1,4"]
    table, flips = tmp_path / "table.csv", tmp_path / "flips.csv"
    systems = ["flexgen-dram", "hilos"]
    compare = [str(NEARKV), "compare", *systems, *study, "--context", "1k:8k:x2"]
    table.write_text(subprocess.check_output([*compare, "--format", "csv"], text=True))
    crossover = [str(NEARKV), "solve", "crossover", "--system", ",".join(systems), *study]
    along = ["--along", "context=1k:8k", "--of", "throughput_tok_s", "--format", "csv"]
    flips.write_text(subprocess.check_output([*crossover, *along], text=True))
    file = tmp_path / "map.pdf"
    done = plot("map", str(table), "--boundaries", str(flips), "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bars", "nope.csv", "-o", "a.pdf"], "nope.csv: does not exist"),
        (["bars", "/dev/zero", "-o", "a.pdf"], "/dev/zero: is no table"),
        (["bars", "-", "-o", "a.gif"], "ends in one of .pdf, .svg, .png"),
        (["bars", "-", "-o", "no/such/folder/a.pdf"], "cannot be written"),
        (["bars", "-", "--value", "step", "-o", "a.pdf"], "step_ms"),
        (["bars", "-", "--width", "wide", "-o", "a.pdf"], "unknown width"),
        (["tornado", "-", "-o", "a.pdf"], "number"),
        (["breakdown", "-", "-o", "a.pdf"], "--breakdown"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    command = [*arguments]
    if arguments[:2] == ["bars", "-"] and "--value" not in arguments:
        command += ["--value", "step_ms"]
    done = plot(*command, text=TABLE)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1

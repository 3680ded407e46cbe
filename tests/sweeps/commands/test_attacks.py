"""What was once believed, waited for or ended in a traceback is refused in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.sweeps.evaluate.provenance import replacing
from nearkv.sweeps.jobs.formats import table_of

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "intermediate_size": 100,
    "vocab_size": 1000,
    "hidden_size": 96,
    "num_attention_heads": 3,
}


def sentence(words: list[str]) -> str:
    """What a refused command line says."""
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
    for role in ("gpu", "host", "ssd", "cluster_gpu", "cluster_host"):
        for name in ("count", "price", "power", "idle_power"):
            words += ["--set", f"{role}.{name}={1 if 'idle' in name else 4}{units.get(name, 'W')}"]
    assert "axes are more than the 56 of a grid" in sentence(words)


def test_options_before_the_command_are_refused_in_one_sentence() -> None:
    assert "options follow the command" in sentence(["--model", "opt-30b", "estimate", "hilos"])


def test_a_name_that_a_spreadsheet_would_compute_is_refused() -> None:
    assert "begins like a formula" in sentence(
        ["compare", "gpu-only", "--model", "opt-66b", "--trace", "=1+1.csv"]
    )


@pytest.mark.parametrize("knob", ["alpha", "spill"])
def test_a_knob_that_one_of_several_systems_lacks_is_not_solved(knob: str) -> None:
    line = f"solve {knob} --system flexgen-raid,hilos --model opt-66b --context 16k"
    assert "flexgen-raid: unknown knob" in sentence(line.split())


def test_a_batch_is_not_chosen_for_a_trace() -> None:
    line = "solve batch --system gpu-only --model opt-66b --trace dolphin"
    assert "leave out --trace" in sentence(line.split())


def test_a_count_of_hundreds_of_digits_is_refused() -> None:
    line = "solve placement --model opt-30b --context 256 --output-tokens 8 --gpu-batch"
    assert "gpu batch: must be a whole number from 1 to" in sentence([*line.split(), "9" * 400])


def test_a_file_takes_its_name_once_it_is_complete(tmp_path: Path) -> None:
    with replacing(tmp_path / "table.csv") as file:
        file.write("a\n")
        (being_written,) = tmp_path.iterdir()
        assert being_written.name.startswith(".table.csv.")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "a\n"


def test_numbers_beyond_64_bits_are_written_as_they_are() -> None:
    """10^19 is above 2^63: as an integer it would be written as -9223372036854775808."""
    table = table_of({"bytes": np.array([1e19]), "batch": np.array([16.0])})
    assert table.to_pylist() == [{"bytes": 1e19, "batch": 16}]


def test_an_option_with_the_value_of_its_default_is_refused_as_any_other() -> None:
    """A batch is taken as 16 where none is given, so the value does not show that one was."""
    line = "solve batch --model opt-66b --batch 16"
    assert "leave out --batch" in sentence(line.split())


def test_weights_leave_a_gpu_that_has_no_room_for_them_beside_the_cache() -> None:
    """Llama-3.1-70B takes 141 GB: a GPU of 160 GB holds it, but not 40 GB of cache as well."""
    platform = load_platform("inf2-h100").machine()
    llm = llm_from_part(load_llm("llama3.1-70b"), platform["precision"])
    work = Workload(batch=128.0, prompt=512.0, output=512.0)
    assert 40e9 < llm.kv_cache_bytes(work.batch, work.final) < 44e9
    filled: list[float] = []
    whole: list[float] = []
    for memory in (80e9, 160e9, 400e9):
        hw = platform.with_values({"gpu.memory": memory})
        for steps, choice in ((filled, 0.0), (whole, 2.0)):
            estimate = find_system("accelerate")(hw, llm, work, {"weights": choice})
            assert estimate.fits.ok, memory
            steps.append(float(estimate.step.seconds))
    assert filled[0] > filled[1] > filled[2]
    assert whole[0] == whole[1] > whole[2]
    assert filled[2] == whole[2]


def test_thousands_of_heads_are_refused_where_heads_are_mapped(tmp_path: Path) -> None:
    """A table over all pairs of 6,144 heads and their modes would take terabytes."""
    file = tmp_path / "config.json"
    sizes = {"num_attention_heads": 6144, "hidden_size": 6144 * 2, "head_dim": 2}
    file.write_text(json.dumps(LLAMA | sizes | {"num_key_value_heads": 6144}))
    for system in ("oracle", "h2m2"):
        line = ["estimate", system, "--model", str(file), "--batch", "1", "--context", "64"]
        assert "more than the 1,024" in sentence(line)


@pytest.mark.processes
def test_what_a_terminal_cannot_print_is_replaced() -> None:
    """A letter that Latin-1 lacks once ended a table in UnicodeEncodeError."""
    line = [sys.executable, "-m", "nearkv", "compare", "gpu-only", "--model", "opt-30b"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(line, env=environment, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_a_long_comparison_is_written_and_succeeds(tmp_path: Path) -> None:
    """Rows beyond what a screen shows once ended in exit code 2, the file being written."""
    file = tmp_path / "k.csv"
    words = ["compare", "hilos", "flexgen-ssd", "--model", "opt-30b", "--batch", "1:5001:+1"]
    done = CliRunner().invoke(app, [*words, "--columns", "batch,step_ms", "-o", str(file)])
    assert done.exit_code == 0, done.stderr
    assert len(file.read_text().splitlines()) == 1 + 2 * 5001

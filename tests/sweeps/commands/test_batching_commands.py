"""Sub-batches and traces on the command line: splits with their bounds, cells, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.warm_command import run

import nearkv

PAPERS_BED = ("--platform", "dgx-a100-pim", "--knob", "tp=l3", "--knob", "pp=1")
"""All on L3's machine, GPUs alone split as its Table 3 splits them."""


@pytest.mark.slow
def test_command_gives_both_splits_with_times_bound_and_gap() -> None:
    arguments = (
        "--requests",
        "2k,3k,4k,5k",
        "--model",
        "gpt-175b",
        "--platform",
        "dgx-a100-pim",
        "--format",
        "json",
    )
    rows = json.loads(run("solve", "subbatch", *arguments).stdout)
    by = {(row["load"], row["method"]): row for row in rows}
    assert by["tokens", "greedy"]["sub_batch_0"] == [2048, 5120]
    assert by["tokens", "greedy"]["sub_batch_1"] == [3072, 4096]
    assert by["tokens", "greedy"]["proof"] == "optimal"
    best = by["modelled", "optimal"]
    assert best["proof"] == "optimal"
    assert best["gap"] < 1e-9
    assert best["iteration_ms"] == pytest.approx(best["phase_0_ms"] + best["phase_1_ms"])
    assert {"chunks_0", "chunks_1", "bound_ms", "decode_ms"} <= best.keys()
    assert by["modelled", "greedy"]["rule_loss"] > 0.2
    assert by["modelled", "one-batch"]["decode_ms"] == pytest.approx(best["decode_ms"])


def test_requests_of_one_length_are_as_many_requests() -> None:
    """2 + 2 + 3 thousand tokens split into 4 and 3; prompts may be alike, too."""
    table = nearkv.solve("subbatch", "gpt-175b", requests=[2048, 2048, 3072], prompts="8,8")
    by_tokens = table[(table["load"] == "tokens") & (table["method"] == "optimal")]
    assert by_tokens["larger_tok"].tolist() == [4096]
    assert table["most_prompt_tok"].max() == 16


@pytest.mark.slow
def test_command_takes_a_trace_and_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("input_tokens,output_tokens\n" + "300,9000\n40,2000\n" * 30)
    for requests in ("dolphin", str(path)):
        done = run(
            "solve", "subbatch", "--requests", requests, "--model", "gpt-175b", "--time-limit", "2"
        )
        assert done.returncode == 0, done.stderr
        assert "optimal" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--requests", "900000"], "exceed the 466,034 that the DIMMs of a replica hold"),
        (["--requests", "2k,-3"], "must be a whole number, 1 or more"),
        (["--requests", ""], "--requests '' is empty"),
        (["--requests", "dolfin"], "did you mean 'dolphin'"),
        (["--requests", "none.csv"], "cannot be read"),
        (["--requests", "2k", "--homes", "odd"], "unknown rule 'odd'"),
        (
            ["--requests", "2k", "--prompts", "1000000000000"],
            "--prompts: 1,000,000,000,000 tokens exceed the",
        ),
        (["--requests", "2k", "--time-limit", "0"], "must be a number of seconds above 0"),
        (
            ["--requests", "2k", "--set", "gpu.memory=40GB"],
            "weights of 349.2 GB exceed the 320 GB of a replica's GPUs",
        ),
        (["--requests", "2k", "--platform", "hilos-a100"], "has no 'dimm'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_two(arguments: list[str], message: str) -> None:
    done = run("solve", "subbatch", "--model", "gpt-175b", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_compare_prints_twelve_cells_for_each_system() -> None:
    arguments = (
        "--model",
        "opt-66b,gpt-89b,gpt-175b",
        "--trace",
        "openr1,dolphin,openthoughts,longbench",
    )
    rows = json.loads(
        run(
            "compare",
            "gpu",
            "cpu-offload",
            "rank-pim",
            "hbm-pim",
            "l3",
            *PAPERS_BED,
            *arguments,
            "--format",
            "json",
        ).stdout
    )
    assert len(rows) == 60
    cells: dict[tuple[str, str], dict[str, float]] = {
        (row["model"], row["trace"]): {} for row in rows
    }
    for row in rows:
        cells[row["model"], row["trace"]][row["system"]] = row["throughput_tok_s"] or 0
    assert all(max(cell, key=cell.__getitem__) == "l3" for cell in cells.values())
    blank = {
        (row["system"], row["model"], row["trace"]) for row in rows if row["short_of"] == "gpu"
    }
    # prompts ride in the steps of l3, which then tell nothing of decoding
    assert all(
        (row["step_ms"] is None) == (row["system"] == "l3" or row["short_of"] != "") for row in rows
    )
    assert all(row["total_speedup"] is not None for row in rows if row["model"] != "opt-66b")
    assert {s for s, *_ in blank} == {"gpu", "hbm-pim"}
    assert {(m, t) for _, m, t in blank} == {("opt-66b", "openr1"), ("opt-66b", "openthoughts")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "dolfin"], "did you mean 'dolphin'"),
        (["--trace", "dolphin", "--context", "8k"], "--trace brings its own requests"),
        (["--trace", "dolphin", "--per-round", "4"], "--output-tokens and --per-round"),
        (["--method", "simulate"], "add --trace, --rate or --users"),
        (["--trace", "dolphin", "--method", "guess"], "unknown method 'guess'"),
    ],
)
def test_bad_traces_are_one_sentence(arguments: list[str], message: str) -> None:
    done = run("compare", "gpu", "l3", "--model", "gpt-175b", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_systems_with_a_queue_can_be_simulated() -> None:
    done = run(
        "compare", "hilos", "--model", "opt-66b", "--trace", "dolphin", "--method", "simulate"
    )
    assert done.returncode == 2
    assert "has no queue to play" in done.stderr


@pytest.mark.slow
def test_simulated_rows_say_so_and_leave_blank_what_they_do_not_answer() -> None:
    arguments = (
        "--model",
        "opt-66b",
        "--trace",
        "openr1,dolphin",
        "--method",
        "simulate",
        "--format",
        "json",
    )
    rows = json.loads(run("compare", "gpu", "l3", *PAPERS_BED, *arguments).stdout)
    assert {row["method"] for row in rows} == {"simulate"}
    assert [row["throughput_tok_s"] is None for row in rows] == [True, False, False, False]
    assert all(row["step_ms"] is None for row in rows)

"""Answers of `solve` and the other commands of designers, and the sentence on what binds."""

from __future__ import annotations

import json

import pytest
from support.command_line import printed, succeed
from support.warm_command import refused, run


def test_too_many_rows_to_read_are_refused_before_they_are_solved() -> None:
    words = ("solve", "alpha", "--model", "opt-66b", "--batch", "1:10001:+1")
    assert "more than 10,000 rows are too many to read" in refused(*words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("alpha --model opt-66b", "a faster gpu.tensor would raise it, a faster csd.flash"),
        ("spill --model opt-30b --context 16k", "a larger csd.page would raise both"),
        ("beta --model qwen-7b --batch 8 --context 12k", "a faster CPU would raise it"),
        ("mapping --model gpt3-175b", "bound by hbm.memory: no further head fits"),
        ("subbatch --model gpt-175b --requests 2k,3k", "would make two pay"),
        ("placement --model opt-30b --gpu-batch 8 --num-batches 2", "bound by"),
        ("batch --system flexgen-ssd --model opt-66b --knob weights=paper", "bound by host; more"),
        (
            "hardware --model opt-66b --vary csd.count=1:16 --slo throughput_tok_s=0.1",
            "csd.flash binds there: were it faster, less would do",
        ),
        (
            "crossover --model opt-66b --knob weights=host --along context=1k:64k",
            "hilos leads from",
        ),
    ],
    ids=lambda words: words.split()[0],
)
@pytest.mark.slow
def test_every_solve_says_what_binds(words: str, sentence: str) -> None:
    text = " ".join(printed("solve", *words.split()).split())
    assert sentence in text
    assert text.endswith(".")


def answer(*arguments: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(run(*arguments, "--format", "json").stdout)
    return rows


@pytest.mark.slow
def test_placement_answers() -> None:
    sizes = [
        "--set",
        "gpu.memory=16GiB",
        "--set",
        "host.memory=200GiB",
        "--set",
        "disk.capacity=1500GiB",
    ]
    (row,) = answer("solve", "placement", "--model", "opt-30b", "--search", "paper", *sizes)
    assert row["throughput_tok_s"] == pytest.approx(7.094728, rel=1e-6)
    assert (row["gpu_batch"], row["num_batches"]) == (32, 5)
    given = [
        "--fix",
        "wg=20%",
        "--fix",
        "wc=0.8",
        "--fix",
        "cc=1",
        "--fix",
        "hc=1",
        "--gpu-batch",
        "48",
        "--num-batches",
        "3",
    ]
    (row,) = answer("solve", "placement", "--model", "opt-30b", "--set", "gpu.memory=28GB", *given)
    assert row["throughput_tok_s"] == pytest.approx(7.135733, rel=1e-6)
    rows = answer(
        "solve",
        "placement",
        "--model",
        "opt-30b,mixtral-8x7b",
        "--set",
        "precision.weight=16bit,4bit",
    )
    assert len(rows) == 4
    assert all(row["status"] == "optimal" for row in rows)


def test_a_placement_that_does_not_fit_says_what_is_short() -> None:
    (row,) = answer("solve", "placement", "--model", "opt-175b", "--set", "gpu.memory=2GB")
    assert row["status"] == "infeasible"
    assert row["throughput_tok_s"] is None
    assert "the gpu is short of 6.839 GiB" in str(row["reason"])
    assert "more" not in refused(
        "solve", "placement", "--model", "opt-30b", "--fix", "wg=0.9", "--fix", "wc=0.2"
    )


@pytest.mark.slow
def test_hardware_batch_crossover_pareto_and_sensitivity_answer() -> None:
    point = ["--model", "opt-66b", "--batch", "16", "--context", "64k"]
    target = ["--vary", "csd.count", "--slo", "throughput_tok_s=0.5"]
    (row,) = answer("solve", "hardware", "--system", "hilos", *point, *target)
    assert row["limit"] == "at least"
    (row,) = answer("solve", "batch", "--system", "hilos", "--model", "opt-66b", "--context", "64k")
    assert row["short_of"] == "csd"
    assert answer("solve", "crossover", *point, "--along", "csd.count=1:64")[0]["to"] == "hilos"
    rows = answer(
        "pareto",
        "--system",
        "hilos",
        *point,
        "--set",
        "csd.count=1:16:+1",
        "--columns",
        "csd.count",
    )
    assert len(rows) == 16
    assert answer("sensitivity", "hilos", *point)[0]["elasticity"]
    assert "its 90 % band" in run("sensitivity", "hilos", *point).stdout


def test_questions_without_an_answer_are_one_sentence() -> None:
    point = ["--model", "opt-66b"]
    assert "unknown column" in refused("pareto", *point, "--system", "hilos", "--by", "a,b")
    assert "one design point" in refused("sensitivity", "hilos", *point, "--batch", "1,2")
    assert "did you mean 'context'" in refused(
        "solve", "crossover", *point, "--along", "contxt=1:2"
    )


def test_fixed_shares_are_read_as_the_help_writes_them() -> None:
    place = ["solve", "placement", "--model", "opt-6.7b", "--search", "paper"]
    listed = answer(*place, "--fix", "wg=0.2, cc=100%")
    assert listed == answer(*place, "--fix", "wg=20%", "--fix", "cc=1")
    assert listed[0]["wg"] == pytest.approx(0.2)


def test_a_limit_is_in_the_unit_of_its_column() -> None:
    words = ("solve", "hardware", "--system", "hilos", "--vary", "csd.count=1:16", "--model")
    told = printed(*words, "opt-30b", "--slo", "step_ms=20s", code=2)
    assert "the number is in ms, the unit of step_ms; leave out the unit" in told


def test_a_crossover_that_never_comes_ends_as_one_without_an_answer() -> None:
    words = ("--model", "opt-66b", "--along", "context=8k:16k")
    text = succeed("solve", "crossover", "--system", "flexgen-ssd,hilos", *words, code=3)
    assert "never: hilos leads from 8k to 16k" in text


def test_a_crossover_says_where_both_run() -> None:
    pair = ("--system", "hilos,inf2", "--model", "opt-30b", "--knob", "weights=host")
    words = ("solve", "crossover", *pair, "--along")
    on_both = printed(*words, "context=16k:32k")
    assert "hilos on hilos-a100, inf2 on inf2-a100" in " ".join(on_both.split())
    alike = printed(*words, "context=16k:32k", "--platform", "inf2-a100")
    assert "inf2 on" not in alike


def test_a_table_is_no_study() -> None:
    assert "out.csv is a table, no study" in printed("report", "out.csv", "-o", "r.html", code=2)

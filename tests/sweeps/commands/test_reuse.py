"""`nearkv reuse` as a user runs it, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.command_line import refusal, succeed

from nearkv.sweeps.study.block_traces import CURVES

ASKED = ("reuse", "--model", "llama3.1-70b")
PREFIX = ("--prefix", "16k", "--rate", "0.5")
LINE = {"input_length": 512, "output_length": 1}


def test_a_stored_curve_answers() -> None:
    words = ("--trace", "conversation", "--policy", "exclusive", "--tier", "dram=1TB")
    assert "% of the blocks are reused" in succeed(*ASKED, *words)


def test_a_saved_curve_answers_as_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        {**LINE, "timestamp": at * 1e4, "hash_ids": [block]}
        for at, block in enumerate([1, 2, 3, 1, 2, 4])
    ]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ("--policy", "inclusive", "--tier", "dram=0.4GB", "--format", "csv")
    of_trace = succeed(*ASKED, *words, "--trace", "t.jsonl", "--save-curve", "c.json")
    of_curve = succeed(*ASKED, *words, "--trace", "c.json")
    (before,), (after,) = (list(csv.DictReader(io.StringIO(t))) for t in (of_trace, of_curve))
    for column in ("hit_share", "load_ms", "write_gb_s"):
        assert float(after[column]) == pytest.approx(float(before[column]), rel=1e-4)
    again = refusal(*ASKED, *words, "--trace", "t.jsonl", "--save-curve", "c.json")
    assert "File exists" in again


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--tier dram=1TB --hit 1.2", "1.2 is no share"),
        ("--tier dram=1TB --hit nan", "nan is no share"),
        ("--tier dram=1", "has no unit"),
        ("--tier dram=0GB", "more than zero"),
        ("--tier dram=2x1TB", "state all memory of a node"),
        ("--tier ssd=2.5x1TB", "whole number"),
        ("--tier tape=1TB", "valid are: cxl, dram, hbm, object, pool, pool-ssd, ssd"),
        ("--tier hbm=1.2TB", "the weights leave 1,065 GB"),
        ("--tier ssd=1TB --routing random", "need a trace"),
        ("--tier ssd=1TB --slo tpot_ms=2", "asked for a mean TTFT"),
        ("--tier ssd=1TB --drive 4s", "--drive"),
        ("--tier ssd=1TB --drive 0TB", "must hold something"),
        ("--tier dram=1TB --drive 8TB", "dram does not wear out"),
        ("--tier ssd=1TB --set ssd.read=0GB/s", "more than zero"),
        ("--tier ssd=1TB --platform hgx-h200", "has no ssd"),
        ("--tier dram", "write it as dram=512GB"),
        ("--tier dram=1TB --tier ssd=1TB", "in one tier"),
        ("--tier dram=1TB --tier dram=2TB", "names a tier twice"),
        ("--tier dram=1TB --policy lru", "are of a trace"),
        ("--tier dram=1TB --admission second-touch", "need a trace"),
        ("--tier dram=1TB --trace conversation", "are for no trace"),
        ("--tier dram=6TB --save-curve c.json", "no trace whose curve"),
        ("--tier dram=1GB", "holds 3,052 tokens, and the prefix has 16,384"),
        ("--tier ssd=1TB --tier dram=1TB", "the nearest first, as dram, ssd"),
        ("--tier dram=1TB --rate-scale 2", "are of a trace"),
        ("", "name at least one"),
    ],
)
def test_what_cannot_be_asked_is_refused(words: str, says: str) -> None:
    assert says in refusal(*ASKED, *PREFIX, *words.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--tier dram=1TB", "give --trace FILE"),
        ("--tier dram=1TB --trace conversation --policy victim", "its summary alone"),
        ("--tier dram=1TB --trace conversation --policy lru", "exclusive, inclusive, victim"),
        ("--tier dram=1TB --trace conversation --set gpu.count=1", "lacks 5.4 GB for this model"),
        (
            "--tier dram=1TB --trace synthetic --policy exclusive --routing random",
            "the trace itself",
        ),
        ("--tier dram=1TB --trace nix.json --policy exclusive", "nix.json"),
        ("--tier dram=1TB --trace conversation --block -1", "--block"),
        ("--tier dram=1TB --trace conversation --block 16", "is of blocks of 512"),
        ("--tier dram=1TB --prefix 1k,2k --rate 1", "must be a whole number"),
        ("--tier dram=1TB --prefix 1k --rate 1e10/s", "at most 1e+09 requests"),
        ("--tier dram=1TB --trace synthetic --policy exclusive --rate-scale 0", "above 0"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused(words: str, says: str) -> None:
    assert says in refusal(*ASKED, *words.split())


def test_a_json_that_is_no_curve_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    words = ("--tier", "dram=1TB", "--policy", "exclusive", "--trace", str(file))
    for text in ("{}", "[]", '{"curve": {}, "prompts": [1]}', "\x00"):
        file.write_text(text)
        assert "is no summary" in refusal(*ASKED, *words)


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("curve.hits", [0.5, 0.2]),
        ("curve.drift", [0.0]),
        ("error", float("nan")),
        ("prompts", []),
        ("block", 0.5),
        ("accesses", 1e-3),
        ("curve.distinct", -1.0),
    ],
)
def test_a_curve_with_numbers_of_no_trace_is_refused(
    tmp_path: Path, address: str, value: object
) -> None:
    file = tmp_path / "c.json"
    numbers = json.loads((CURVES / "conversation.json").read_text())
    place, _, key = address.rpartition(".")
    (numbers[place] if place else numbers)[key] = value
    file.write_text(json.dumps(numbers))
    assert "is no summary" in refusal(*ASKED, "--tier", "dram=1TB", "--trace", str(file))


def test_pictures_of_hits_and_of_times_are_drawn(tmp_path: Path) -> None:
    hits, times = tmp_path / "hits.svg", tmp_path / "times.svg"
    succeed("plot", "reuse", "--trace", "conversation,synthetic", "-o", str(hits))
    succeed("plot", *ASKED, "--tier", "dram=1TB", "--tier", "object=9TB", "-o", str(times))
    assert "synthetic" in hits.read_text()
    assert "load from object" in times.read_text()
    both = ("--trace", "conversation", "--tier", "dram=1TB")
    assert "give --trace for hits" in refusal("plot", *ASKED, *both, "-o", str(hits))


def test_an_answer_that_is_none_says_so_in_every_form() -> None:
    """One drive bears no writes of two nodes: no time is stated, and the exit code is 3."""
    words = (
        "--trace",
        "conversation",
        "--nodes",
        "2",
        "--tier",
        "ssd=1x7.68TB",
        "--format",
        "json",
    )
    (row,) = json.loads(succeed(*ASKED, *words, code=3))
    assert row["status"] == "infeasible"
    assert row["write_share"] == pytest.approx(1.006, abs=0.01)
    assert row["load_ms"] is None
    assert row["ttft_s"] in (None, "inf")


def test_a_missed_target_names_the_rate_that_meets_it() -> None:
    words = ("--trace", "conversation", "--tier", "dram=128GB", "--slo", "ttft_s=2")
    said = " ".join(succeed(*ASKED, *words).split())  # lines wrap at any width
    assert "2.75 requests per second would have" in said

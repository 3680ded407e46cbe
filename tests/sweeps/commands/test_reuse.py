"""`nearkv reuse` as a user runs it, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.command_line import refusal, succeed

ASKED = ("reuse", "--model", "llama3.1-70b")
PREFIX = ("--prefix", "16k", "--rate", "0.5")
LINE = {"input_length": 512, "output_length": 1}


def test_a_stored_trace_answers_and_says_what_was_read() -> None:
    told = " ".join(succeed(*ASKED, "--trace", "conversation", "--tier", "dram=1TB").split())
    assert "% of the blocks are reused" in told
    assert "12,031 requests in 3,537 s, 3.4 per second as recorded; times are in ms" in told


def test_a_trace_in_seconds_is_read_as_such(tmp_path: Path) -> None:
    """As Bailian publishes it: 48 tokens of the second prompt were asked for 10 s before."""
    lines = [
        {"chat_id": 1, "timestamp": 5.5, "input_length": 64, "hash_ids": [1, 2, 3, 4]},
        {"chat_id": 2, "timestamp": 15.5, "input_length": 64, "hash_ids": [1, 2, 3, 9]},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps(line | {"output_length": 1}) for line in lines))
    words = (*ASKED, "--trace", str(path), "--tier", "dram=64GB", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(succeed(*words)))
    token = 80 * 2 * 8 * 128 * 2
    assert float(row["hit_share"]) == pytest.approx(3 / 8)
    assert float(row["write_gb_s"]) == pytest.approx(5 / 2 * 16 * token * 0.1 / 1e9)


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
        ("--tier hbm=1.2TB", "a node of 'h200-node' has"),
        ("--tier dram=1PB", "1,000,000 GB are asked, a node of 'h200-node' has 2,199 GB; state"),
        ("--tier ssd=64x1TB", "64,000 GB in 64 are asked, "),
        ("--tier ssd=100TB", "has 61,440 GB in 8; state less"),
        ("--tier ssd=1TB --routing random", "need a trace"),
        ("--tier ssd=1TB --slo tpot_ms=2", "asked for a mean TTFT"),
        ("--tier ssd=1TB --drive 4s", "--drive"),
        ("--tier ssd=1TB --drive 0TB", "must hold something"),
        ("--tier dram=1TB --drive 8TB", "dram does not wear out"),
        ("--tier ssd=1TB --set ssd.read=0GB/s", "more than zero"),
        ("--tier ssd=1TB --platform hgx-h200", "has no ssd"),
        ("--tier dram=1TB --tier ssd=1TB", "in one tier"),
        ("--tier dram=1TB --tier dram=2TB", "names a tier twice"),
        ("--tier dram=1TB --policy lru", "exclusive, inclusive, victim, write-through"),
        ("--tier dram=1TB --admission second-touch", "need a trace"),
        ("--tier dram=1TB --trace conversation", "brings its own requests"),
        ("--tier dram=1TB --requests 9", "add --groups"),
        ("--tier dram=1TB --turns 3", "add --groups"),
        ("--tier dram=1TB --groups 3", "2 or more"),
        ("--tier dram=1TB --time-unit s", "are of a trace"),
        ("--tier dram=1TB --knob tp=3", "do not divide over this many GPUs, or take another"),
        ("--tier dram=1TB --knob copies=twice", "valid are: once, per-gpu"),
        ("--tier dram=1TB --knob snapshots=never", "valid are: block, prompt"),
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
        ("--tier dram=1TB --trace conversation --policy lru", "exclusive, inclusive, victim"),
        ("--tier dram=1TB --trace conversation --set gpu.count=1", "GB for this model; add GPUs"),
        ("--tier dram=1TB --trace nix.jsonl", "stored are conversation and synthetic"),
        ("--tier dram=1TB --trace conversation --block -1", "--block"),
        ("--tier dram=1TB --trace conversation --block 16", "state the block's size"),
        ("--tier dram=1TB --trace conversation --groups 3", "brings its own requests"),
        ("--tier dram=1TB --prefix 1k,2k --rate 1", "must be a whole number"),
        ("--tier dram=1TB --prefix 1k --rate 1e10/s", "at most 1e+09 requests"),
        ("--tier dram=1TB --trace synthetic --rate-scale 0", "above 0"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused(words: str, says: str) -> None:
    assert says in refusal(*ASKED, *words.split())


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
        "--rate-scale",
        "2",
        "--format",
        "json",
    )
    (row,) = json.loads(succeed(*ASKED, *words, code=3))
    assert row["status"] == "infeasible"
    assert row["write_share"] == pytest.approx(1.281, abs=0.01)
    assert row["load_ms"] is None
    assert row["ttft_s"] in (None, "inf")


def test_a_missed_target_names_the_rate_that_meets_it() -> None:
    words = ("--groups", "30", "--prefix", "16k", "--requests", "300", "--rate", "0.8")
    asked = (*ASKED, *words, "--nodes", "1", "--tier", "dram=32GB", "--slo")
    told = " ".join(succeed(*asked, "ttft_s=0.8").split())  # lines wrap at any width
    assert "requests per second would have" in told
    none = " ".join(succeed(*asked, "ttft_s=0.01").split())
    assert "No cache of any size gives 0.8" in none

"""Traces of blocks: both forms read alike, and what cannot be is one sentence."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearkv.costmodel.mechanisms.reuse.curve import reuse_curve
from nearkv.hardware.errors import InputError
from nearkv.sweeps.study import block_traces
from nearkv.sweeps.study.block_traces import CURVES, read_blocks, read_summary

LINES = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]},
    {"timestamp": 500, "input_length": 1025, "output_length": 7, "hash_ids": [1, 2, 3]},
]


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_json_lines_csv_and_gzip_are_one_trace(tmp_path: Path) -> None:
    plain = read_blocks(written(tmp_path / "t.jsonl", LINES))
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    table = tmp_path / "t.csv"
    table.write_text(
        "timestamp,input_length,output_length,hash_ids\n0,1000,5,1 2\n500,1025,7,1 2 3\n"
    )
    for trace in (plain, read_blocks(packed), read_blocks(table)):
        assert trace.blocks.tolist() == [1, 2, 1, 2, 3]
        assert trace.ends.tolist() == [2, 5]
        assert trace.prompt.tolist() == [1000, 1025]
        assert trace.summary.rate == 4.0
        assert trace.share == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timestamp": -1}, "timestamp: is -1"),
        ({"timestamp": "soon"}, "'soon' is no number"),
        ({"input_length": float("nan")}, "input_length: is nan"),
        ({"hash_ids": [1, 2]}, "1025 tokens are 3 blocks of 512, hash_ids has 2"),
        ({"hash_ids": [1, "b", 3]}, "list of whole numbers"),
        ({"hash_ids": [1, 2, 1 << 80]}, "list of whole numbers"),
        ({"hash_ids": 7}, "list of whole numbers"),
        ({"hash_ids": [1, 2.5, 3]}, "list of whole numbers"),
    ],
)
def test_a_request_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    path = written(tmp_path / "t.jsonl", [LINES[0], {**LINES[1], **change}])
    with pytest.raises(InputError, match="line 2") as refusal:
        read_blocks(path)
    assert says in str(refusal.value)


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="before the request"):
        read_blocks(written(tmp_path / "order.jsonl", LINES[::-1]))
    with pytest.raises(InputError, match="two requests"):
        read_blocks(written(tmp_path / "one.jsonl", LINES[:1]))
    (tmp_path / "text.jsonl").write_text("no json\n")
    with pytest.raises(InputError, match="is no JSON"):
        read_blocks(tmp_path / "text.jsonl")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}" * 9)[:-5])
    with pytest.raises(InputError, match="cannot be read"):
        read_blocks(tmp_path / "cut.jsonl.gz")
    with pytest.raises(InputError, match="is not there"):
        read_blocks(tmp_path / "none.jsonl")


def test_a_long_trace_is_sampled_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    lines = [
        {
            "timestamp": 10 * number,
            "input_length": 16 * 512,
            "output_length": 1,
            "hash_ids": rng.integers(0, 4_000, 16).tolist(),
        }
        for number in range(3_000)
    ]
    path = written(tmp_path / "t.jsonl", lines)
    every = read_blocks(path)
    monkeypatch.setattr(block_traces, "MOST_ACCESSES", 12_000)
    monkeypatch.setattr(block_traces, "SAMPLE", 12_000)
    some = read_blocks(path)
    table = tmp_path / "t.csv"
    rows = [f"{line['timestamp']},8192,1,{' '.join(map(str, line['hash_ids']))}" for line in lines]
    table.write_text("\n".join(["timestamp,input_length,output_length,hash_ids", *rows]))
    assert 0.1 < read_blocks(table).share < 0.4
    assert 0.1 < some.share < 0.4
    assert len(some.blocks) == pytest.approx(12_000, rel=0.2)
    for capacity in (500, 1_000, 2_000):
        exact = float(reuse_curve(every.blocks).hit_ratio(np.array(capacity)))
        sampled = float(some.summary.curve.hit_ratio(np.array(capacity)))
        assert sampled == pytest.approx(exact, abs=0.025)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        # exact LRU of kvcache-ai/Mooncake's traces by stack distances, percent
        ("conversation", "2.53 3.82 4.17 4.22 5.32 8.39 13.55 20.61 28.52 35.12 35.88 36.35"),
        ("synthetic", "0.03 0.23 1.13 4.86 13.95 22.73 30.94 42.01 56.65 63.93 63.96 63.96"),
    ],
)
def test_stored_curves_are_near_exact_lru_of_their_traces(name: str, exact: str) -> None:
    millions = np.array([0.01, 0.03, 0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 50])
    curve = read_summary(CURVES / f"{name}.json").curve
    percent = 100 * curve.hit_ratio(millions * 1e6 / 512)
    assert percent == pytest.approx(np.array(list(map(float, exact.split()))), abs=1.5)


def test_the_band_of_the_first_half_covers_the_curve_of_the_second() -> None:
    """Halves of Mooncake's conversations, each as --save-curve writes it."""
    halves = Path(__file__).with_name("halves")
    first, second = (read_summary(halves / f"{half}.json").curve for half in ("first", "second"))
    blocks = np.array([0.01, 0.03, 0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 50]) * 1e6 / 512
    apart = np.abs(second.hit_ratio(blocks) - first.hit_ratio(blocks))
    assert (apart <= first.half_band(blocks)).all()


def test_the_synthetic_trace_alone_is_not_stationary() -> None:
    stored = {name: read_summary(CURVES / f"{name}.json") for name in ("conversation", "synthetic")}
    assert stored["conversation"].curve.is_stationary
    assert not stored["synthetic"].curve.is_stationary


def test_the_error_of_a_sample_covers_how_far_it_is_off(tmp_path: Path) -> None:
    """Samples of a tenth of the blocks by other hashes: 19 of 20 within two standard errors."""
    rng = np.random.default_rng(5)
    lines = [
        {
            "timestamp": 10 * number,
            "input_length": 16 * 512,
            "output_length": 1,
            "hash_ids": np.minimum(rng.zipf(1.2, 16), 10_000).tolist(),
        }
        for number in range(1_000)
    ]
    every = read_blocks(written(tmp_path / "t.jsonl", lines))
    hits = every.summary.curve.ceiling
    off = []
    for _ in range(60):
        kept = rng.random(10_001) < 0.1
        blocks = every.blocks[kept[every.blocks]]
        some = replace(every, blocks=blocks, share=len(blocks) / len(every.blocks))
        off.append(abs(some.summary.curve.ceiling - hits) / some.summary.error)
    assert np.mean(np.array(off) < 2) > 0.6


def test_random_routing_makes_a_block_of_each_node_its_own(tmp_path: Path) -> None:
    trace = read_blocks(written(tmp_path / "t.jsonl", LINES))
    assert trace.routed(1).blocks.tolist() == [0, 1, 0, 1, 2]
    routed = [part.tolist() for part in np.split(trace.routed(4).blocks, trace.ends[:-1])]
    nodes = [{block % 4 for block in blocks} for blocks in routed]
    assert all(len(node) == 1 for node in nodes)
    assert [[block // 4 for block in blocks] for blocks in routed] == [[0, 1], [0, 1, 2]]

"""Traces of blocks: both forms read alike, and what cannot be is one sentence."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.evaluate.kv_policies import tier_hits
from nearkv.sweeps.study import block_traces
from nearkv.sweeps.study.block_traces import STORED_TRACES, PromptGroups, read_blocks

LINES = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]},
    {"timestamp": 500, "input_length": 1025, "output_length": 7, "hash_ids": [1, 2, 3]},
]


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_first_mebibyte_alone_says_how_many_blocks_a_trace_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read twice; here no block comes before 1.2 MB."""
    monkeypatch.setattr(block_traces, "MOST_ACCESSES", 1)
    trace = tmp_path / "t.jsonl"
    trace.write_text((" " * 1023 + "\n") * 1200 + ("," * 1023 + "\n") * 1200)
    assert block_traces._share_kept(trace) == 1


def test_json_lines_csv_and_gzip_are_one_trace(tmp_path: Path) -> None:
    plain = read_blocks(written(tmp_path / "t.jsonl", LINES))
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    table = tmp_path / "t.csv"
    table.write_text(
        "timestamp,input_length,output_length,hash_ids\n0,1000,5,1 2\n500,1025,7,1 2 3\n"
    )
    for trace in (plain, read_blocks(packed), read_blocks(table)):
        first, second, again, and_second, third = trace.prompts.blocks.tolist()
        assert (first, second) == (again, and_second)
        assert len({first, second, third}) == 3
        assert trace.prompts.ends.tolist() == [2, 5]
        assert trace.prompt.tolist() == [1000, 1025]
        assert trace.output.tolist() == [5, 7]
        assert trace.rate == 2.0  # one request in half a second after the first
        assert trace.unit == "ms"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timestamp": -1}, "timestamp: -1"),
        ({"timestamp": "soon"}, "'soon' is no number"),
        ({"input_length": float("nan")}, "input_length: nan"),
        ({"hash_ids": [1, 2]}, "1025 tokens are 3 blocks of 512, hash_ids has 2"),
        ({"hash_ids": [1, "b", 3]}, "list of whole numbers"),
        ({"hash_ids": [1, 2, 1 << 80]}, "list of whole numbers"),
        ({"hash_ids": 7}, "list of whole numbers: 1 2 3 in CSV, [1, 2, 3] in JSON lines"),
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
    with pytest.raises(InputError, match=r'is no JSON; a request is \{"timestamp"'):
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
            "hash_ids": (1 << 20 | 16 * rng.integers(0, 250) + np.arange(16)).tolist(),
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
    assert len(some.prompts.blocks) == pytest.approx(12_000, rel=0.2)
    for capacity in (500, 1_000, 2_000):
        exact, sampled = (
            np.mean(trace.prompts.recency < trace.share * capacity) for trace in (every, some)
        )
        assert sampled == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        # exact LRU of kvcache-ai/Mooncake's traces, heads of a prompt first to go, percent
        ("conversation", "2.53 3.82 4.17 4.22 5.32 8.39 13.55 20.61 28.52 35.12 35.88 36.35"),
        ("synthetic", "0.03 0.23 1.13 4.86 13.95 22.73 30.94 42.01 56.65 63.93 63.96 63.96"),
    ],
)
def test_stored_traces_hit_as_lru_does(name: str, exact: str) -> None:
    """Where a prompt's tail goes first, caches of a few prompts hit a little more."""
    trace = read_blocks(STORED_TRACES / f"{name}.jsonl.gz")
    millions = np.array([0.01, 0.03, 0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 50])
    hits = [100 * np.mean(trace.prompts.recency < size * 1e6 / 512) for size in millions]
    stated = np.array(list(map(float, exact.split())))
    assert hits[4:] == pytest.approx(stated[4:], abs=0.4)
    assert (np.array(hits[:4]) > stated[:4] - 0.1).all()


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
    accessed = every.prompts.blocks
    off = []
    for _ in range(60):
        kept = rng.random(np.max(accessed) + 1) < 0.1
        prompts = replace(every.prompts, blocks=accessed[kept[accessed]])
        some = replace(every, prompts=prompts, share=float(np.mean(kept[accessed])))
        off.append(abs(some.ceiling - every.ceiling) / some.sampling_error)
    assert np.mean(np.array(off) < 2) > 0.6


def test_random_routing_makes_a_block_of_each_node_its_own(tmp_path: Path) -> None:
    trace = read_blocks(written(tmp_path / "t.jsonl", LINES))
    own = trace.prompts.blocks.tolist()
    assert trace.routed(1).prompts.blocks.tolist() == own
    routed = np.split(trace.routed(4).prompts.blocks, trace.prompts.ends[:-1])
    assert all(len({block % 4 for block in part.tolist()}) == 1 for part in routed)
    assert (np.concatenate(routed) // 4).tolist() == own


PUBLISHED = {
    "bailian.jsonl": """\
{"chat_id": 1, "timestamp": 61.5, "input_length": 17, "output_length": 2, "hash_ids": [7, 8]}
{"chat_id": 2, "timestamp": 63.5, "input_length": 16, "output_length": 2, "hash_ids": [7]}
""",
    "burst.csv": """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
35,ChatGPT,17,2,19,API log
37,ChatGPT,16,2,18,API log
""",
    "azure.csv": """\
TIMESTAMP,ContextTokens,GeneratedTokens
2026-01-05 09:00:59.6294661,17,2
2026-01-05 09:01:01.6294661,16,2
""",
    "own.csv": "arrival_s,input_tokens,output_tokens\n3,17,2\n5,16,2\n",
    "own.jsonl": """\
{"arrival_s": 0, "input_tokens": 17, "output_tokens": 2, "hash_ids": [7]}
{"arrival_s": 2, "input_tokens": 16, "output_tokens": 2, "hash_ids": [7]}
""",
}
"""Two requests, two seconds apart, as each of them is published."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_formats_are_recognised_by_their_keys(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(PUBLISHED[name])
    trace = read_blocks(path)
    assert trace.arrival == pytest.approx([0, 2], abs=1e-5)
    assert trace.prompt.tolist() == [17, 16]
    assert trace.output.tolist() == [2, 2]
    assert trace.block == (16 if name == "bailian.jsonl" else 512)


def test_a_time_unit_is_as_stated_and_fractions_of_milliseconds_are_doubted(tmp_path: Path) -> None:
    lines = [{**line, "timestamp": 0.25 + at} for at, line in enumerate(LINES)]
    path = written(tmp_path / "t.jsonl", lines)
    assert read_blocks(path, time_unit="s").span == 1.0
    with pytest.warns(NearkvWarning, match="--time-unit s reads seconds"):
        assert read_blocks(path).span == pytest.approx(1e-3)
    with pytest.raises(InputError, match="valid are"):
        read_blocks(path, time_unit="hours")


def test_a_file_of_another_form_is_refused_with_an_example(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", [{"when": 3, "tokens": 5}])
    with pytest.raises(InputError, match=r"has the keys when, tokens.*\"hash_ids\": \[46, 47\]"):
        read_blocks(path)


def test_blocks_stand_for_all_before_them(tmp_path: Path) -> None:
    """Hashes of one block each: the second block of another prompt is another one."""
    lines = [{**LINES[0], "hash_ids": [first, 2]} for first in (1, 3)]
    lines[1]["timestamp"] = 1
    trace = read_blocks(written(tmp_path / "t.jsonl", lines))
    assert len(set(trace.prompts.blocks.tolist())) == 4


def test_groups_share_their_prefix_and_conversations_grow() -> None:
    """Two documents in turn; then two conversations of three turns behind a shared prompt."""
    documents = PromptGroups(groups=2, prefix=1000, requests=4, order="round").trace(512)
    assert documents.prompt.tolist() == [1000] * 4
    one, two = documents.prompts.blocks[:2].tolist(), documents.prompts.blocks[2:4].tolist()
    assert documents.prompts.blocks.tolist() == [*one, *two, *one, *two]
    at_once = PromptGroups(1, 512, 6, turns=20, grow=512, rate=2).trace(512)
    assert at_once.arrival.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert at_once.rate == 2
    turns = PromptGroups(1, 512, 6, turns=3, grow=512, pause=10, rate=0.1).trace(512)
    assert turns.prompt.tolist() == [1024, 1536, 2048] * 2
    assert turns.arrival.tolist() == [0, 10, 20, 30, 40, 50]
    hits = tier_hits(turns.prompts, [99], "exclusive", "all").found[:, 0]
    assert hits.tolist() == [0, 2, 3, 1, 2, 3]


def test_questions_behind_a_document_are_of_one_request_each() -> None:
    """1,000 tokens shared and 100 of each: the block that holds both is no one else's."""
    trace = PromptGroups(groups=1, prefix=1000, requests=3, grow=100).trace(512)
    hits = tier_hits(trace.prompts, [99], "exclusive", "all").found[:, 0]
    assert hits.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (PromptGroups(2, 1000, 1), "2 or more"),
        (PromptGroups(2, 0, 9), "--prefix 30k"),
        (PromptGroups(2, 1000, 9, order="sorted"), "--order"),
    ],
)
def test_groups_that_make_no_requests_are_refused(groups: PromptGroups, says: str) -> None:
    with pytest.raises(InputError, match=says):
        groups.trace(512)

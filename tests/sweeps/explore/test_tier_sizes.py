"""The cheapest sizes of tiers against every size, and against what `reuse` says of them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.command_line import refusal, succeed

import nearkv
from nearkv.costmodel.mechanisms.reuse.tiers import TIERS
from nearkv.hardware.errors import InputError
from nearkv.sweeps.explore.design.certificate import certificate_of, fault_of
from nearkv.sweeps.explore.kv_node import Node, node_of
from nearkv.sweeps.explore.reuse import Reuse, curve_hits
from nearkv.sweeps.explore.tier_sizes import TierSizes, sizes_of
from nearkv.sweeps.study.block_traces import CURVES, ReuseSummary, read_summary
from nearkv.sweeps.study.study import Study

CASES = int(os.environ.get("NEARKV_CASES", "12"))
MODEL = "llama3.1-70b"
STUDY = Study(("gpu",), (MODEL,), "1", "1", output_tokens="1", platforms=("h200-node",))
PRICED = [name for name in TIERS if name != "hbm"]


@cache
def node() -> Node:
    return node_of(STUDY, 512, staged=False)


@cache
def conversation() -> ReuseSummary:
    return read_summary(CURVES / "conversation.json")


def every_point(asked: TierSizes) -> NDArray[np.int64]:
    sides = [np.arange(len(sizes.capacity)) for sizes in asked.sizes]
    return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))


def random_case(rng: np.random.Generator) -> TierSizes:
    """Up to four tiers of up to six sizes, with a target that some sizes meet."""
    chosen = rng.permutation(PRICED)[: rng.integers(1, 5)]
    names = [name for name in TIERS if name in chosen]
    drawn = [np.round(10 ** rng.uniform(10, 13.5, rng.integers(1, 6)), -9) for _ in names]
    texts = [
        f"{name}={','.join(f'{size:.0f}B' for size in np.unique(each))}"
        for name, each in zip(names, drawn, strict=True)
    ]
    sizes = [sizes_of(node(), text) for text in texts]
    question = Reuse(
        node=node(),
        tiers=[each.text(len(each.capacity) - 1) for each in sizes],
        summary=conversation().faster(float(rng.uniform(0.2, 2))),
        policy=str(rng.choice(["exclusive", "inclusive"])),
        nodes=int(rng.integers(1, 6)),
    )
    asked = TierSizes(question, sizes, 4.0)
    times = asked.ttft(every_point(asked))
    finite = times[np.isfinite(times)]
    target = float(np.quantile(finite, rng.random())) if len(finite) else 1.0
    return replace(asked, question=replace(question, ttft=target))


def cases(number: int) -> Iterator[TierSizes]:
    rng = np.random.default_rng(42)
    for _ in range(number):
        yield random_case(rng)


def test_the_answer_is_the_cheapest_of_all_sizes_and_its_cuts_prove_it() -> None:
    for asked in cases(CASES):
        points = every_point(asked)
        value = asked.value(np.zeros(len(points), np.int64), points)[:, 0]
        answer = asked.solved()
        if not np.isfinite(value).any():
            assert not len(answer.point)
        else:
            assert answer.value[0, 0] == value.min()
        certificate = json.loads(json.dumps(certificate_of(asked, answer)))
        assert not fault_of(asked, certificate)
        cuts = answer.cuts
        for low, high, bound in zip(cuts.low, cuts.high, asked.bound(cuts)[:, 0], strict=True):
            inside = np.all((points >= low) & (points <= high), axis=1)
            # the wear of a box and of its corner are sums of their own
            assert bound <= value[inside].min() * (1 + 1e-12)


def test_sizes_have_the_same_time_alone_and_among_others() -> None:
    """To the bit: a target that equals a time is met by both."""
    for asked in cases(3):
        points = every_point(asked)
        alone = [asked.ttft(points[[place]])[0] for place in range(len(points))]
        assert asked.ttft(points).tolist() == alone


def least_ttft(asked: TierSizes, points: NDArray[np.int64]) -> NDArray[np.float64]:
    return asked.least_ttft(curve_hits(asked.at(points)))


def test_no_size_is_faster_than_its_bound() -> None:
    for asked in cases(10):
        points = every_point(asked)
        times, least = asked.ttft(points), least_ttft(asked, points)
        assert (times >= least * (1 - 1e-12)).all()
        # and no point has a lower bound than one that is larger in every tier
        assert (least >= least_ttft(asked, asked.boxes.high) * (1 - 1e-12)).all()


def usd_hour(table: pd.DataFrame) -> float:
    """Price of tiers over four years, or of what is written as a share of the drives' life."""
    bought = table["usd"] / (4 * 365 * 24)
    worn = 3600 * 1e9 * table["write_gb_s"] * table["usd_tb_written"] / 1e12
    return float(np.maximum(bought, worn.fillna(0)).sum())


@pytest.mark.parametrize("policy", ["exclusive", "inclusive"])
def test_reuse_says_the_same_of_the_answer(policy: str) -> None:
    table = nearkv.solve("tiers", MODEL, slo="ttft_s=3.7", trace="conversation", policy=policy)
    asked = table.attrs["conclusion"][1].removesuffix(".").split(" --tier ")[1:]
    again = nearkv.reuse(
        MODEL,
        trace="conversation",
        policy=policy,
        tiers=asked,
        nodes=int(table["nodes"][0]),
    )
    assert again["ttft_s"][0] == pytest.approx(table["ttft_s"][0], rel=1e-6)
    assert again["hit_share"].sum() == pytest.approx(table["hit_share"][0], rel=1e-6)
    assert usd_hour(again) == pytest.approx(table["usd_hour"][0], rel=1e-6)


def test_that_nothing_is_fast_enough_is_proven(tmp_path: Path) -> None:
    asked = "--trace conversation --slo ttft_s=0.1 --nodes 2 --tier dram=1TB"
    words = ("solve", "tiers", "--model", MODEL, *asked.split())
    proof = str(tmp_path / "proof.json")
    succeed(*words, "--certificate", proof, code=3)
    assert "holds: " in succeed(*words, "--check", proof)


def test_what_no_nodes_reach_is_an_answer_with_its_reason() -> None:
    words = ("solve", "tiers", "--trace", "conversation", "--model", MODEL)
    answer = succeed(*words, "--slo", "ttft_s=0.1", code=3)
    assert "infeasible: the first token comes after" in answer
    assert "gap" in succeed(*words, "--slo", "ttft_s=4")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--slo ttft_s=2 --tier hbm=10GB", "states no price"),
        ("--slo ttft_s=2 --policy victim", "its summary alone"),
        ("--slo ttft_s=2 --policy lru", "valid are: exclusive, inclusive, victim"),
        ("--slo ttft_s=2 --admission second-touch", "for --policy victim alone"),
        ("--slo ttft_s=2 --check nix.json", "nix.json"),
        ("--slo ttft_s=2 --years 0", "must be above 0"),
        ("--slo ttft_s=2 --minimize usd", "by price, usd_hour"),
        ("--slo ttft_s=2 --tier dram=1GB:2GB", "must be low:high"),
        ("", "state the mean time"),
        ("--slo ttft_s=2 --tier dram=1GB --tier dram=2GB", "names a tier twice"),
    ],
)
def test_what_cannot_be_sized_is_refused(words: str, says: str) -> None:
    given = ("solve", "tiers", "--trace", "conversation", "--model", MODEL)
    assert says in refusal(*given, *words.split())


def test_a_study_holds_no_trace() -> None:
    with pytest.raises(InputError, match="give a name"):
        nearkv.solve("tiers", STUDY, slo="ttft_s=2", trace="conversation")


def test_victims_are_sized_by_a_replay_of_each_size(tmp_path: Path) -> None:
    first = 4 * np.random.default_rng(1).geometric(0.3, 60)
    asked = [[int(block) + place for place in range(4)] for block in first]
    line = {"input_length": 2048, "output_length": 1}
    lines = [line | {"timestamp": 4e3 * at, "hash_ids": ids} for at, ids in enumerate(asked)]
    trace, proof = tmp_path / "t.jsonl", tmp_path / "proof.json"
    trace.write_text("\n".join(map(json.dumps, lines)))
    times = {}
    for dram, ssd in product((0, 1, 2, 3), (0, 2, 4)):
        tiers = [f"{n}={size}GB" for n, size in (("dram", dram), ("ssd", ssd)) if size]
        if tiers:
            table = nearkv.reuse(MODEL, trace=trace, tiers=tiers, nodes=1, admission="second-touch")
            times[usd_hour(table)] = table["ttft_s"][0]
    target = float(np.median(list(times.values())))
    cheapest = min(usd for usd, seconds in times.items() if seconds <= target)
    words = ["solve", "tiers", "--model", MODEL, "--trace", str(trace), "--nodes", "1"]
    words += ["--policy", "victim", "--admission", "second-touch"]
    words += ["--tier", "dram=1GB,2GB,3GB", "--tier", "ssd=2GB,4GB", "--slo"]
    slo = f"ttft_s={target!r}"
    printed = succeed(*words, slo, "--certificate", str(proof), "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(printed))
    assert float(row["usd_hour"]) == pytest.approx(cheapest)
    assert cheapest > min(times)
    assert "holds: " in succeed(*words, slo, "--check", str(proof))
    assert "of another objective" in refusal(*words, "ttft_s=1", "--check", str(proof))
    many = ("--tier", "pool=1GB:100GB:+1GB")
    assert "replays two tiers at most" in refusal(*words, slo, *many)
    alone = [*words[:10], "--tier", "dram=1GB:300GB:+1GB", "--slo", slo]
    assert "replays 256 sizes at most" in refusal(*alone)


@pytest.mark.parametrize(
    "change",
    [
        {"cases": "x"},
        {"cases": []},
        {"cuts": [[0]]},
        {"cuts": [[0, ["a", 0], [1, 1]]]},
        {"best": [[5, [0, 0], [1.0]]]},
        {"best": [[0, [0, 0], ["x"]]]},
        {"goal": None},
    ],
)
def test_a_certificate_that_was_changed_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    asked = "--trace conversation --slo ttft_s=3 --nodes 2 --tier dram=1TB,2TB --tier ssd=8TB"
    words = ("solve", "tiers", "--model", MODEL, *asked.split())
    proof = tmp_path / "proof.json"
    succeed(*words, "--certificate", str(proof))
    proof.write_text(json.dumps(json.loads(proof.read_text()) | change))
    assert "proof.json: " in refusal(*words, "--check", str(proof))

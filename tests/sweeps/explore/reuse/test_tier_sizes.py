"""The cheapest sizes of tiers against every size, and against what `reuse` says of them."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.command_line import refusal, succeed
from support.tiers_by_hand import simulate, walks

import nearkv
from nearkv.costmodel.mechanisms.kv_tiers import TIERS
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.kv_policies import ADMISSIONS, REUSE_POLICIES
from nearkv.sweeps.explore.reuse.node import Node, node_of
from nearkv.sweeps.explore.reuse.question import ReuseQuestion
from nearkv.sweeps.explore.reuse.service import Hits, serve, write_loads
from nearkv.sweeps.explore.reuse.tier_sizes import TierSizes, sizes_of
from nearkv.sweeps.study.block_traces import BlockTrace
from nearkv.sweeps.study.prompt_blocks import PromptBlocks
from nearkv.sweeps.study.study import Study

MODEL = "llama3.1-70b"
STUDY = Study(("gpu",), (MODEL,), "1", "1", output_tokens="1", platforms=("h200-node",))
PRICED = [name for name in TIERS if name != "hbm"]
GROUPS = "--groups 30 --prefix 16k --requests 300 --rate 2"
"""Documents that a few drives hold, faster asked than one node computes them."""
TOKEN = 80 * 2 * 8 * 128 * 2
"""KV bytes: 80 layers, keys and values of 8 heads of 128 in 16 bits."""


@cache
def node() -> Node:
    return node_of(STUDY, 512)


def every_point(asked: TierSizes) -> NDArray[np.int64]:
    sides = [np.arange(len(sizes.capacity)) for sizes in asked.sizes]
    return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))


def random_case(rng: random.Random, policies: tuple[str, ...]) -> tuple[TierSizes, list[list[str]]]:
    """Up to three tiers of up to four sizes, prompts, and a target that some sizes meet."""
    requests = walks(rng, rng.randint(30, 120))
    numbers: dict[str, int] = {}
    blocks = [numbers.setdefault(block, len(numbers)) for each in requests for block in each]
    ends = np.cumsum(list(map(len, requests)))
    lengths = 512.0 * np.diff(ends, prepend=0)
    trace = BlockTrace(
        name="walks",
        unit="s",
        arrival=np.linspace(0.0, len(requests) * rng.uniform(0.3, 2), len(requests)),
        prompt=lengths,
        output=np.ones(len(requests)),
        prompts=PromptBlocks(np.array(blocks), ends),
        block=512,
    )
    chosen = rng.sample(PRICED, rng.randint(1, 3))
    names = [name for name in TIERS if name in chosen]
    texts = []
    for name in names:
        drawn = {rng.randint(1, max(len(numbers) // 2, 2)) for _ in range(rng.randint(1, 3))}
        listed = ",".join(f"{512 * TOKEN * (size + 0.5):.0f}B" for size in sorted(drawn))
        texts.append(f"{name}={listed}")
    sizes = [sizes_of(node(), text) for text in texts]
    question = ReuseQuestion(
        node=node(),
        tiers=tuple(node().tier(each.text(len(each.capacity) - 1)) for each in sizes),
        trace=trace,
        policy=rng.choice(policies),
        admission=rng.choice(ADMISSIONS),
        nodes=1,
    )
    sizes_open = TierSizes(question, sizes, 4.0)
    times = np.array([sizes_open.answer(row)["ttft_s"] for row in range(prod(sizes_open.shape))])
    finite = times[np.isfinite(times)]
    target = float(np.quantile(finite, rng.random())) if len(finite) else 1.0
    return replace(sizes_open, question=replace(question, ttft=target)), requests


def by_hand(sizes_open: TierSizes, requests: list[list[str]], point: list[int]) -> float:
    """Price of sizes whose hits and writes are simulated, infinite where they are too slow."""
    question = sizes_open.question_of(point)
    held = [
        int(sizes.capacity[at] // (512 * TOKEN))
        for sizes, at in zip(sizes_open.sizes, point, strict=True)
    ]
    found, written = simulate(requests, held, question.policy, question.admission)
    upto = np.cumsum(found, axis=1) * 512.0
    assert question.trace
    hits = Hits(
        share=np.zeros(len(held)),
        margin=np.zeros(len(held)),
        prompts=question.trace.prompt,
        outputs=np.ones(len(requests)),
        tokens=np.diff(upto, axis=1, prepend=0.0),
        weights=np.full(len(requests), 1 / len(requests)),
        written=np.array(written) * 512.0 * TOKEN / len(requests),
    )
    if (write_loads(question, hits) > 1).any() or serve(question, hits).ttft > question.ttft:
        return np.inf
    price = 0.0
    for tier, bytes_written in zip(question.tiers, hits.written, strict=True):
        bought = float(tier.capacity * tier.byte_price) / (4 * 365 * 24)
        life = float(tier.endurance) / (bytes_written * question.rate_of_all or 1e-30) / 3600
        price += max(bought, float(tier.capacity * tier.byte_price) / life if bought else 0.0)
    return price


def assert_cheapest(seed: int, policies: tuple[str, ...]) -> None:
    """The answer is the cheapest of all sizes."""
    asked, requests = random_case(random.Random(seed), policies)
    points = every_point(asked)
    value = np.array([by_hand(asked, requests, point) for point in points.tolist()])
    kept = asked.solved().kept
    assert len(kept.rows) == np.isfinite(value).any(), seed
    if len(kept.rows):
        assert kept.costs[0, 1] == pytest.approx(value.min(), rel=1e-9), seed


@pytest.mark.parametrize("seed", range(10))
def test_the_answer_is_the_cheapest_of_all_sizes(seed: int) -> None:
    assert_cheapest(seed, REUSE_POLICIES)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10, 100))
def test_the_answer_is_the_cheapest_of_all_sizes_in_depth(seed: int) -> None:
    assert_cheapest(seed, REUSE_POLICIES)


def usd_hour(table: pd.DataFrame) -> float:
    """Price of tiers over four years, or of what is written as a share of the drives' life."""
    bought = table["usd"] / (4 * 365 * 24)
    worn = 3600 * 1e9 * table["write_gb_s"] * table["usd_tb_written"] / 1e12
    return float(np.maximum(bought, worn.fillna(0)).sum())


@pytest.mark.parametrize("policy", ["exclusive", "inclusive"])
def test_reuse_says_the_same_of_the_answer(policy: str) -> None:
    made: dict[str, Any] = {"groups": 30, "prefix": "16k", "requests": 300, "rate": 2}
    tiers = ["dram=16GB:256GB:x2", "ssd=1TB"]
    table = nearkv.solve("tiers", MODEL, slo="ttft_s=0.8", policy=policy, tiers=tiers, **made)
    asked = table.attrs["conclusion"][1].removesuffix(".").split(" --tier ")[1:]
    again = nearkv.reuse(
        MODEL,
        policy=policy,
        **made,
        tiers=asked,
        nodes=int(table["nodes"][0]),
    )
    assert again["ttft_s"][0] == pytest.approx(table["ttft_s"][0], rel=1e-6)
    assert again["hit_share"].sum() == pytest.approx(table["hit_share"][0], rel=1e-6)
    assert usd_hour(again) == pytest.approx(table["usd_hour"][0], rel=1e-6)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 30))]
)
def test_order_company_and_prices_of_tiers(seed: int) -> None:
    """Changes that must leave the cheapest sizes as they are, and those that must not."""
    rng = random.Random(seed)
    made: dict[str, Any] = {"groups": 30, "prefix": "16k", "requests": 200, "rate": 2, "nodes": 1}
    sizes = {"dram": rng.sample(range(16, 300, 16), 4), "ssd": rng.sample(range(500, 4000, 250), 3)}
    made["policy"] = rng.choice(["exclusive", "inclusive", "write-through"])
    slo = f"ttft_s={rng.uniform(0.6, 2.0):.3f}"

    def asked(dram: list[int], ssd: list[int], **changed: Any) -> pd.Series:
        tiers = [f"dram={gigabytes(dram)}", f"ssd={gigabytes(ssd)}"]
        words: dict[str, Any] = {"slo": slo, "tiers": tiers, **made, **changed}
        return nearkv.solve("tiers", MODEL, **words).iloc[0]

    whole = asked(sizes["dram"], sizes["ssd"])
    some = asked(sizes["dram"][:2], sizes["ssd"][:1])
    assert whole["status"] == "ok" or some["status"] == "infeasible"
    if some["status"] == "ok":
        assert whole["usd_hour"] <= some["usd_hour"] * (1 + 1e-9)
    if whole["status"] != "ok":
        return
    met = asked(sizes["dram"], sizes["ssd"], slo=f"ttft_s={float(whole['ttft_s'])!r}")
    chosen = ["dram_gb", "ssd_gb", "usd_hour", "ttft_s"]
    assert met[chosen].tolist() == whole[chosen].tolist()
    roles = load_platform("h200-node").roles
    prices = {f"{role}.price": f"{2 * roles[role].si['price']!r}USD" for role in ("dram", "ssd")}
    dear = asked(sizes["dram"], sizes["ssd"], sets=prices)
    assert dear[chosen[:2]].tolist() == whole[chosen[:2]].tolist()
    assert dear["usd_hour"] == pytest.approx(2 * whole["usd_hour"], rel=1e-9)


def gigabytes(sizes: list[int]) -> str:
    return ",".join(f"{size}GB" for size in sorted(sizes))


def test_what_no_nodes_reach_is_an_answer_with_its_reason() -> None:
    words = ("solve", "tiers", *GROUPS.split(), "--model", MODEL, "--tier", "dram")
    answer = succeed(*words, "--slo", "ttft_s=0.01", code=3)
    assert "infeasible: the first token comes after" in answer
    assert " meet it." in succeed(*words, "--slo", "ttft_s=4")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--slo ttft_s=2 --tier hbm=10GB", "states no price"),
        ("--slo ttft_s=2 --policy victim", "replays 256 sizes at most"),
        ("--slo ttft_s=2 --policy lru", "valid are: exclusive, inclusive, victim"),
        (
            "--slo ttft_s=2 --tier dram=1GB:2000GB:+1GB --tier ssd=1GB:9000GB:+1GB",
            "the longest axis is ssd, with 9,001 values",
        ),
        ("--slo ttft_s=2 --years 0", "must be above 0"),
        ("--slo ttft_s=2 --minimize usd", "by price, usd_hour"),
        ("--slo ttft_s=2 --tier dram=1GB:2GB", "must be low:high"),
        ("", "state the mean time"),
        ("--slo ttft_s=2 --tier dram=256GB:8TB:+256GB", "2,304 GB are asked, a node of"),
        ("--slo ttft_s=2 --tier dram=1GB --tier dram=2GB", "names a tier twice"),
    ],
)
def test_what_cannot_be_sized_is_refused(words: str, says: str) -> None:
    given = ("solve", "tiers", *GROUPS.split(), "--model", MODEL)
    assert says in refusal(*given, *words.split())


def test_a_study_holds_no_trace() -> None:
    with pytest.raises(InputError, match="give a name"):
        nearkv.solve("tiers", STUDY, slo="ttft_s=2", trace="conversation")


def test_victims_are_sized_by_a_replay_of_each_size(tmp_path: Path) -> None:
    first = 4 * np.random.default_rng(1).geometric(0.3, 60)
    asked = [[int(block) + place for place in range(4)] for block in first]
    line = {"input_length": 2048, "output_length": 1}
    lines = [line | {"timestamp": 4e3 * at, "hash_ids": ids} for at, ids in enumerate(asked)]
    trace = tmp_path / "t.jsonl"
    trace.write_text("\n".join(map(json.dumps, lines)))
    times = {}
    for dram, ssd in product((0, 1, 2, 3), (0, 2, 4)):
        tiers = [f"{n}={size}GB" for n, size in (("dram", dram), ("ssd", ssd)) if size]
        if tiers:
            table = nearkv.reuse(
                MODEL,
                trace=trace,
                tiers=tiers,
                nodes=1,
                policy="victim",
                admission="second-touch",
            )
            times[usd_hour(table)] = table["ttft_s"][0]
    target = float(np.median(list(times.values())))
    cheapest = min(usd for usd, seconds in times.items() if seconds <= target)
    words = ["solve", "tiers", "--model", MODEL, "--trace", str(trace), "--nodes", "1"]
    words += ["--policy", "victim", "--admission", "second-touch"]
    words += ["--tier", "dram=1GB,2GB,3GB", "--tier", "ssd=2GB,4GB", "--slo"]
    slo = f"ttft_s={target!r}"
    printed = succeed(*words, slo, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(printed))
    assert float(row["usd_hour"]) == pytest.approx(cheapest)
    assert cheapest > min(times)
    many = ("--tier", "pool=1GB:100GB:+1GB")
    assert "replays 256 sizes at most" in refusal(*words, slo, *many)

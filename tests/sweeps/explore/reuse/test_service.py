"""Prompts that are found in part, beside decoding: the closed form against a simulation."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nearkv.costmodel.model.workload import ENDLESS_TOKENS, Arrivals
from nearkv.sweeps.explore.reuse.node import Node, node_of
from nearkv.sweeps.explore.reuse.question import ReuseQuestion
from nearkv.sweeps.explore.reuse.service import hits_of, request_seconds, serve
from nearkv.sweeps.simulate.play import simulate
from nearkv.sweeps.study.block_traces import PromptGroups
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.traces import Trace

MODEL = "llama3.1-8b"


@cache
def node() -> Node:
    """One H100, whose prompts of some thousand tokens take about as long as an answer."""
    sets = {"gpu.count": "1", "gpu_link.count": "1"}
    study = Study(
        ("gpu",), (MODEL,), "1", "1", output_tokens="1", platforms=("h200-node",), sets=sets
    )
    return node_of(study, 512)


def ttfts(seed: int) -> tuple[float, float]:
    """Mean TTFT of a workload of groups in closed form, and simulated."""
    rng = random.Random(seed)
    groups = PromptGroups(
        groups=rng.choice((5, 20, 60)),
        prefix=512.0 * rng.randint(4, 40),
        requests=400,
        order=rng.choice(("random", "round")),
        turns=rng.choice((1, 1, 4)),
        grow=512.0 * rng.randint(1, 6),
        pause=rng.choice((0.0, 20.0)),
        output=float(rng.choice((16, 64, 256))),
    )
    trace = groups.trace(512)
    tiers = (node().tier(f"dram={rng.choice((4, 16, 64))}GB"),)
    question = ReuseQuestion(node=node(), tiers=tiers, trace=trace, nodes=1)
    hits = hits_of(question)
    mean = float(np.mean(request_seconds(question, hits, 0.0)))
    # a part of the rate at which prompts alone fill the time, less what decoding takes
    rate = rng.uniform(0.1, 0.6) / (mean + hits.outputs[0] * 2e-3)
    service = serve(question, hits, rate)
    computed = node().equivalent(request_seconds(question, hits, rate))
    played = Trace(
        "", hits.prompts, hits.outputs, known=hits.prompts - np.minimum(computed, hits.prompts)
    )
    arrivals = Arrivals(rate=rate)
    work = replace(played.workload, batch=ENDLESS_TOKENS, arrivals=arrivals)
    serving = node().serve(work).serving
    assert serving
    queue = simulate(played, serving, arrivals, seed)
    return service.ttft, float(np.mean(queue.ttft))


def share_within(seeds: range) -> float:
    """Share of the workloads whose TTFT is within 15 % of the simulated one."""
    pairs = [ttfts(seed) for seed in seeds]
    return float(np.mean([abs(closed / played - 1) < 0.15 for closed, played in pairs]))


def test_ttft_is_near_that_of_a_simulation() -> None:
    assert share_within(range(10, 16)) >= 0.8


@pytest.mark.deep
def test_ttft_is_near_that_of_a_simulation_in_depth() -> None:
    assert share_within(range(100)) >= 0.9

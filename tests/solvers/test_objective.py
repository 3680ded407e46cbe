"""Objective of `auto`, of a batch and where requests arrive."""

from __future__ import annotations

from typing import Any

import nearkv
from nearkv.costmodel.model.workload import Arrivals, Workload
from nearkv.solvers.goodput import load_cost
from nearkv.solvers.knobs import MISSES_LEAST
from nearkv.solvers.objective import STEP, TOTAL, objective

TIGHT: dict[str, Any] = {
    "model": "llama3.1-70b",
    "context": "32k",
    "output_tokens": 512,
    "platform": "hgx-h100",
    "slo": "ttft_s=0.5,tpot_ms=5",
}


def test_a_batch_is_short_as_a_whole_and_requests_that_arrive_keep_limits() -> None:
    batch = Workload(1.0, 10.0, 5.0)
    arriving = Workload(1.0, 10.0, 5.0, arrivals=Arrivals(rate=1.0))
    answer = nearkv.estimate("hilos", "opt-30b").estimate
    assert objective(batch)(answer) == TOTAL(answer).seconds
    assert objective(batch, STEP)(answer) == STEP(answer).seconds
    assert objective(arriving) is load_cost
    assert objective(arriving, STEP)(answer) == STEP(answer).seconds


def test_where_no_split_keeps_the_limits_the_least_miss_is_taken() -> None:
    """Of all splits of eight H100, by the larger of TTFT / 0.5 s and TPOT / 5 ms."""
    best = nearkv.estimate("gpu", rate=0.1, **TIGHT)
    assert MISSES_LEAST in best["note"]
    stated = nearkv.compare(
        "gpu",
        rate=0.1,
        knobs={"tp": [1, 2, 4, 8], "dp": [1, 2, 4, 8], "pp": 1, "ep": 1, "attention": ["tp", "dp"]},
        **TIGHT,
    )
    answered = stated[stated["status"] == "ok"]
    misses = answered[["ttft_s", "tpot_ms"]].div([0.5, 5]).max(axis=1)
    assert max(best["ttft_s"] / 0.5, best["tpot_ms"] / 5) <= misses.min() * (1 + 1e-9)
    assert best["tp"] * best["dp"] == 8


def test_a_prompt_chunk_is_chosen_for_the_prompt() -> None:
    """One pass reads the experts once; chunks of 512 read them twice and one token 1,024 times."""
    asked: dict[str, Any] = {"model": "gpt-oss-120b", "context": "1k", "batch": 1}
    best = nearkv.estimate("cpu-only", knobs={"chunk": "auto"}, **asked)
    usual = nearkv.estimate("cpu-only", **asked)
    assert best["chunk"] in (0, 1024), "the whole prompt, by either name"
    assert best["total_s"] <= usual["total_s"]
    assert "chunk is the best of 563 values from 0 to 1,048,576" in best["note"]


def test_a_chunk_under_load_is_a_whole_number_no_worse_than_others() -> None:
    best = nearkv.estimate("gpu", "llama3.1-8b", rate=1, knobs={"chunk": "auto"})
    chunks = [1, 87, 93, 203, 512, 2048, 8192, 32_768]
    others = nearkv.compare("gpu", model="llama3.1-8b", rate=1, knobs={"chunk": chunks})
    assert best["chunk"] == int(best["chunk"])
    assert best["tpot_ms"] <= others["tpot_ms"].min() * (1 + 1e-9)


def test_a_stated_degree_keeps_tensor_parallel_attention() -> None:
    """Of a model whose cache tensor parallelism copies, so that `auto` takes the other."""
    asked: dict[str, Any] = {"model": "deepseek-v3", "batch": 256, "context": "8k"}
    stated = nearkv.estimate("gpu", knobs={"tp": 8}, **asked)
    both = nearkv.estimate("gpu", knobs={"tp": 8, "attention": "auto"}, **asked)
    assert stated["attention"] == "tp"
    assert both["attention"] == "dp"
    assert both["total_s"] < stated["total_s"]


def test_a_place_of_weights_may_leave_prompts_larger_chunks() -> None:
    """Weights that fill host memory first leave a chunk of half a million tokens no room here."""
    asked: dict[str, Any] = {
        "model": "qwen2.5-32b",
        "platform": "common",
        "batch": 1,
        "context": "512k",
        "output_tokens": 1024,
    }
    rows = nearkv.compare("hilos", knobs={"weights": "filled,gpu,auto"}, **asked)
    filled, gpu, auto = rows["total_s"]
    assert auto == min(filled, gpu)
    assert gpu < 0.95 * filled

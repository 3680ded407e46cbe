"""Draw the pictures of README and the site: `python docs/pictures.py`, or `make pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

import nearkv
from nearkv.sweeps.api import reuse as reuse_api

FOLDER = Path(__file__).parent / "pictures"


def systems() -> None:
    """Decoding rate of the systems of all five papers, of FlexGen and of a GPU, on equal ground."""
    names = ["flexgen-ssd", "hilos", "inf2", "hillinfer", "l3", "h2m2", "gpu"]
    table = nearkv.compare(
        names, model="llama3.1-8b", batch=4, context="8k:1M:x2", platform="common"
    )
    axes = nearkv.plot.lines(table, "decode_tok_s")
    nearkv.plot.save(axes.figure, FOLDER / "systems.svg")


def parity() -> None:
    """Predictions beside what the papers and others state, one paper a colour."""
    rows = nearkv.validate()
    axes = nearkv.plot.parity(rows, by="paper")
    nearkv.plot.save(axes.figure, FOLDER / "parity.svg")


def reuse() -> None:
    """Hits of two traces over capacity, and a prefix's times over its length."""
    hits = reuse_api.hit_curves("conversation,synthetic")
    axes = nearkv.plot.lines(
        hits, "hit_share", over="capacity_tok", by="trace", width="column"
    )
    nearkv.plot.save(axes.figure, FOLDER / "reuse-hits.svg")
    tiers = ("dram=1TB", "ssd=8x7.68TB", "pool=4TB", "object=100TB")
    times = reuse_api.fetch_times("llama3.1-70b", tiers=tiers)
    axes = nearkv.plot.lines(times, "fetch_ms", over="prefix_tok", by="way", width="column")
    nearkv.plot.save(axes.figure, FOLDER / "reuse-times.svg")


def experts() -> None:
    """Time of a prompt by its length, its experts computed by the cores or streamed."""
    ways = {"prompts": ["cpu", "stream"], "chunk": 8192, "gpu_experts": 0, "experts": "cpu"}
    table = nearkv.compare(
        "expert-offload",
        model="gpt-oss-120b-gguf",
        batch=1,
        context="32:8k:x2",
        output_tokens=2,
        knobs=ways,
    )
    axes = nearkv.plot.lines(table, "prefill_s", over="context_tok", by="prompts")
    nearkv.plot.save(axes.figure, FOLDER / "experts.svg")


def front() -> None:
    """Throughput over price of the machines that serve 16 users of gpt-oss-120b at 64k."""
    table = nearkv.design(
        "gpu,expert-offload",
        "gpt-oss-120b",
        context="64k",
        output_tokens="1k",
        users=16,
        slo="tpot_ms=250",
        budget="100kUSD",
        pareto="cost_usd,throughput_tok_s",
    )
    axes = nearkv.plot.pareto(table)
    axes.axvline(100_000, color="0.4", linestyle=":")
    nearkv.plot.save(axes.figure, FOLDER / "front.svg")


def load() -> None:
    """Time to first token and per output token over the rate of requests, of three machines."""
    table = nearkv.compare(
        "gpu",
        model="llama3.1-70b",
        context="8k",
        output_tokens=512,
        rate=[0.125, 0.25, 0.375, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4],
        platform="hgx-a100,hgx-h100,hgx-b200",
        knobs={"tp": 8, "pp": 1, "dp": 1, "ep": 1},
    )
    for column, name in (("ttft_s", "load-ttft"), ("tpot_ms", "load-tpot")):
        axes = nearkv.plot.lines(table, column, over="rate_req_s", by="platform")
        nearkv.plot.save(axes.figure, FOLDER / f"{name}.svg")


def main() -> None:
    """Draw all pictures; the same numbers give the same bytes."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "nearkv"
    systems()
    parity()
    front()
    reuse()
    experts()
    load()


if __name__ == "__main__":
    main()

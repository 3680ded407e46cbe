"""Draw the pictures of README and the site: `python docs/pictures.py`, or `make pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

import nearkv
from nearkv.sweeps.api import reuse as reuse_api

FOLDER = Path(__file__).parent / "pictures"


def systems() -> None:
    """Throughput of HILOS and its baselines, relative to FLEX(SSD)."""
    names = ["flexgen-ssd", "flexgen-dram", "flexgen-16ssd", "hilos"]
    table = nearkv.compare(
        names, model="opt-66b", context="16k:128k:x2", sets={"csd.count": 16}
    )
    axes = nearkv.plot.bars(
        table, "throughput_tok_s", over="context_tok", baseline="flexgen-ssd"
    )
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


def main() -> None:
    """Draw all pictures; the same numbers give the same bytes."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "nearkv"
    systems()
    parity()
    reuse()


if __name__ == "__main__":
    main()

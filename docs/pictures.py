"""Draw the pictures of README and the site: `python docs/pictures.py`, or `make pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

import nearkv

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


def main() -> None:
    """Draw all pictures; the same numbers give the same bytes."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "nearkv"
    systems()
    parity()


if __name__ == "__main__":
    main()

"""Design points a second of a sparse 4-axis grid of a million points, in one process."""

import time
from collections.abc import Callable

import numpy as np

from nearkv.sweeps.evaluate.evaluate import columns, keep_freed_memory
from nearkv.sweeps.study.grid import POINTS_AT_ONCE, Box
from nearkv.sweeps.study.study import Block, Study, blocks

AXES = {"csd.count": "1:20:+1", "uplink.bandwidth": "10GB/s:59GB/s:+1GB/s"}


def study(alpha: str, batch: str = "1:20:+1") -> Study:
    """Some batches x 50 contexts x 20 device counts x 50 uplinks of `hilos`."""
    return Study(
        ("hilos",),
        ("opt-66b",),
        batch=batch,
        context="4k:200k:+4k",
        sets=AXES,
        knobs={"alpha": alpha, "weights": "paper"},
    )


def million(alpha: str) -> Block:
    """A million design points: 20 batches."""
    (block,) = blocks(study(alpha))
    return block


def seconds(run: Callable[[Block, Box], object], block: Block) -> float:
    """Wall-clock time of one pass over the block, box by box."""
    start = time.perf_counter()
    for box in block.grid.boxes(POINTS_AT_ONCE):
        run(block, box)
    return time.perf_counter() - start


def step_only(block: Block, box: Box) -> object:
    """The fast path: the step's seconds alone."""
    hw, llm, work, requested = block.inputs(box)
    return np.add(block.system(hw, llm, work, {**requested}).step.seconds, 0.0)  # type: ignore[dict-item]


def with_breakdown(block: Block, box: Box) -> object:
    """Seconds and the time every leaf is to blame for."""
    hw, llm, work, requested = block.inputs(box)
    return block.system(hw, llm, work, {**requested}).step.breakdown()  # type: ignore[dict-item]


def rows(block: Block, box: Box) -> object:
    """Every column of a table."""
    return columns(block, box)


def main() -> None:
    keep_freed_memory()
    fixed, solved = million("0.5"), million("auto")
    for what, run, block in (
        ("seconds only, alpha fixed", step_only, fixed),
        ("with the breakdown, alpha fixed", with_breakdown, fixed),
        ("all columns, alpha fixed", rows, fixed),
        ("all columns, alpha solved", rows, solved),
    ):
        spent = seconds(run, block)
        rate = block.grid.size / spent / 1e6
        print(f"hilos, {what}: {block.grid.size:,} points in {spent:.2f} s, {rate:.2f} M points/s")

"""Seconds to simulate 1,000 requests of a trace, against the fluid model's one evaluation."""

import time

from nearkv.sweeps.evaluation.evaluate import columns
from nearkv.sweeps.space.study import Block, Study, blocks


def main() -> None:
    for model, trace in (("gpt-175b", "openr1"), ("opt-66b", "openr1"), ("gpt-89b", "longbench")):
        (block,) = blocks(Study(("l3",), (model,), traces=(trace,)))
        played = Study(("l3",), (model,), traces=(trace,), method="simulate")
        (simulation,) = blocks(played)
        start = time.perf_counter()
        columns(block, block.grid.whole, ("throughput_tok_s",))
        fluid = time.perf_counter() - start
        spent = min(_played(simulation) for _ in range(3))
        print(
            f"l3, {model}, {trace}: 1,000 requests in {spent:.3f} s (at most 0.2), "
            f"fluid model {1e3 * fluid:.1f} ms"
        )


def _played(block: Block) -> float:
    start = time.perf_counter()
    columns(block, block.grid.whole, ("throughput_tok_s",))
    return time.perf_counter() - start

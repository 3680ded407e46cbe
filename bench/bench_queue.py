"""Seconds to simulate 1,000 requests of a trace, against the fluid model's one evaluation."""

import time
from dataclasses import replace

from nearkv.sweeps.evaluate.evaluate import columns
from nearkv.sweeps.study.study import Block, Study, blocks

QUEUES = (
    ("gpt-175b", "openr1"),
    ("opt-66b", "openr1"),
    ("gpt-89b", "longbench"),
)


def main() -> None:
    for model, trace in QUEUES:
        # two sub-batches, as the paper's: solving for them asks for two estimates
        study = Study(("l3",), (model,), traces=(trace,), knobs={"interleave": "on"})
        (block,) = blocks(study)
        (simulation,) = blocks(replace(study, method="simulate"))
        fluid = spent_on(block)
        spent = min(spent_on(simulation) for _ in range(3))
        print(
            f"l3, {model}, {trace}: 1,000 requests in {spent:.3f} s (at most 0.2), "
            f"fluid model {1e3 * fluid:.1f} ms"
        )


def spent_on(block: Block) -> float:
    """Time to compute the throughput of a block [s]."""
    start = time.perf_counter()
    columns(block, block.grid.whole, ("throughput_tok_s",))
    return time.perf_counter() - start

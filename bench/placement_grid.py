"""CPU seconds to place OPT-30B in a setting alone in a process, or in all of a grid.

It imports no more than a question of the library does: what a first placement loads is timed.
"""

import sys
import time
from collections.abc import Sequence
from itertools import product

from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.placement.placement import place
from nearkv.sweeps.validation.questions import model_on

SETTINGS = tuple(product((100e9, 175e9, 250e9, 325e9, 400e9), (256.0, 512.0, 1024.0, 2048.0)))
"""Host memories [B] and prompts [1] of a grid."""


def cpu_seconds(settings: Sequence[tuple[float, float]]) -> float:
    """User and system time of this process to place OPT-30B in each setting."""
    hw, llm = model_on("t4-flexgen", "opt-30b")
    start = time.process_time()
    for memory, prompt in settings:
        place(hw.with_values({"host.memory": memory}), llm, Workload(1.0, prompt, 32.0))
    return time.process_time() - start


if __name__ == "__main__":
    chosen = [SETTINGS[int(number)] for number in sys.argv[1:]]
    print(cpu_seconds(chosen or SETTINGS))

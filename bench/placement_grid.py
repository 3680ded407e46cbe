"""CPU seconds to place OPT-30B in a setting alone in a process, or in all of a grid.

It imports no more than a question of the library does: what a first placement loads is timed.
"""

import sys
import time
from collections.abc import Sequence
from itertools import product

from nearkv.costmodel.llm import LLM, llm_of
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.placement import place

SETTINGS = tuple(product((100e9, 175e9, 250e9, 325e9, 400e9), (256.0, 512.0, 1024.0, 2048.0)))
"""Host memories [B] and prompts [1] of a grid."""


def machine_and_model() -> tuple[Machine, LLM]:
    """FlexGen's machine and OPT-30B."""
    hw = load_platform("t4-flexgen").machine()
    shape = {name: number.si for name, number in load_llm("opt-30b").numbers.items()}
    return hw, llm_of(shape, hw["precision"])


def cpu_seconds(settings: Sequence[tuple[float, float]]) -> float:
    """User and system time of this process to place OPT-30B in each setting."""
    hw, llm = machine_and_model()
    start = time.process_time()
    for memory, prompt in settings:
        place(hw.with_values({"host.memory": memory}), llm, Workload(1.0, prompt, 32.0))
    return time.process_time() - start


if __name__ == "__main__":
    chosen = [SETTINGS[int(number)] for number in sys.argv[1:]]
    print(cpu_seconds(chosen or SETTINGS))

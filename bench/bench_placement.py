"""FlexGen's placement of OPT-30B: 543 LPs in a CBC process each, as FlexGen has them, and ours."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pulp

from bench.placement_grid import SETTINGS
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.placement.blocks import BlockProblem, Box
from nearkv.solvers.placement.linear import Optimum, Program, Simplex, reference
from nearkv.solvers.placement.placement import place
from nearkv.solvers.placement.search import paper
from nearkv.sweeps.validation.questions import model_on

EVERY = 4
"""Settings alone for each time that all are placed in a grid."""
PROGRAMS = 543
"""What FlexGen's search solves for OPT-30B, prompt 512, output 32."""


class Recorded(Simplex):
    """Remembers every program it solves."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[Program] = []

    def __call__(self, program: Program, basis: Any = None) -> Optimum | None:
        self.programs.append(program)
        return super().__call__(program, basis)


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    hw, llm = model_on("t4-flexgen", "opt-30b")
    work = Workload(1.0, 512.0, 32.0)
    problem, walk = BlockProblem(hw, llm, work, {}), Recorded()
    found = paper(problem, walk, Box(1, problem.most, 1, problem.most))
    assert found is not None
    programs = [*walk.programs, problem.program(found.block)]
    assert len(programs) == PROGRAMS
    cbc = seconds(
        lambda: [reference(program, pulp.PULP_CBC_CMD(msg=False)) for program in programs]
    )
    print(f"{PROGRAMS} PuLP/CBC processes: {cbc:.2f} s, {1e3 * cbc / PROGRAMS:.1f} ms each")
    for search, most in (("paper", 1 / 10), ("full", 1 / 5)):
        spent = seconds(lambda search=search: place(hw, llm, work, search=search))  # type: ignore[misc]
        print(
            f"--search {search}: {spent:.3f} s, 1/{cbc / spent:.0f} of CBC's time "
            f"(at most 1/{1 / most:.0f} wanted)"
        )
    numbers = range(len(SETTINGS))
    singly: list[float] = []
    together: list[float] = []
    for number in numbers:  # in turns: a machine is not always as fast
        singly.append(grid_seconds(str(number)))
        if number % EVERY == 0:
            together.append(grid_seconds())
    alone, shared = sum(singly) / len(numbers), statistics.median(together) / len(numbers)
    print(
        f"{len(numbers)} settings in a grid: {1e3 * shared:.1f} ms of CPU each, "
        f"{shared / alone:.2f} of {1e3 * alone:.1f} ms alone in a process (at most 1/3 wanted)"
    )


def grid_seconds(*numbers: str) -> float:
    """CPU time to place settings of a grid in a new process, all or those numbered [s]."""
    command = [sys.executable, "-m", "bench.placement_grid", *numbers]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)

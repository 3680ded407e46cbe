"""FlexGen's placement of OPT-30B: 543 LPs in a CBC process each, as FlexGen has them, and ours."""

import time
from collections.abc import Callable

import pulp

from nearkv.costmodel.llm import llm_of
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.solvers.placement.blocks import BlockProblem, Box
from nearkv.solvers.placement.linear import Optimum, Program, Simplex, reference
from nearkv.solvers.placement.placement import place
from nearkv.solvers.placement.walks import paper

PROGRAMS = 543
"""What FlexGen's search solves for OPT-30B, prompt 512, output 32."""


class Recorded(Simplex):
    """Remembers every program it solves."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[Program] = []

    def __call__(self, program: Program) -> Optimum | None:
        self.programs.append(program)
        return super().__call__(program)


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    hw = load_platform("t4-flexgen").machine()
    shape = {name: number.si for name, number in load_llm("opt-30b").numbers.items()}
    llm, work = llm_of(shape, hw["precision"]), Workload(1.0, 512.0, 32.0)
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

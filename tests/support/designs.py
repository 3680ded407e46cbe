"""Random questions of which machine to build, and their answers by looking at every machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nearkv.costmodel.model.metrics import Evaluated as Answered
from nearkv.hardware.errors import InputError
from nearkv.solvers.boxes import Boxes, Integers, Numbers
from nearkv.sweeps.evaluate.slo import Target, higher_is_better
from nearkv.sweeps.explore.design.answer import Answer, best_machines
from nearkv.sweeps.explore.design.measures import Goal, Space
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.study.study import Study, blocks

SYSTEMS = (
    "flexgen-dram", "flexgen-ssd", "hilos", "inf2", "zero-inference", "deepspeed-uvm",
    "cpu-offload", "infinigen", "leoam", "h2o", "gpu", "full-cache", "l3", "hbm-pim", "rank-pim",
    "hillinfer", "expert-offload", "accelerate", "flexgen-percent", "flexgen-16ssd",
    "h2m2", "hierarchical",
)  # fmt: skip
MAPPED = ("h2m2", "hierarchical")
"""Systems with a mapping of heads, on a server of no maker."""
ASYMMETRIC = str(Path(__file__).with_name("asymmetric-server.toml"))
SERVERS = (
    "workstation-2gpu", "workstation-4gpu", "pcie-4gpu-server", "pcie-8gpu-server",
    "hilos-server", "inf2-server", "gh200-server", "dgx-spark-desktop", "hgx-h100-server",
    "l3-server", "hillinfer-server", "mac-studio-desktop", "hgx-a100-server",
)  # fmt: skip
MODELS = ("opt-30b", "opt-66b", "llama3.1-70b", "qwen2.5-32b", "opt-6.7b", "gpt-oss-20b")
OBJECTIVES = ("cost_usd", "throughput_tok_s", "usd_mtok", "energy_j_tok", "tpot_ms", "power_cap_w")
REVERSED = 0.1
"""Share of questions for the worst machine within limits, which nothing bounds."""
LIMITS = ("cost_usd", "tpot_ms", "ttft_s", "throughput_tok_s", "power_cap_w", "batch_run")


def random_question(seed: int, most: float = 1e5) -> tuple[Question, Space]:
    """A question over at most so many machines, with limits that some of them meet."""
    rng = np.random.default_rng(seed)
    while True:
        try:
            return _drawn(rng, most)
        except InputError:
            continue  # no machine of these servers and systems can be built


def _drawn(rng: np.random.Generator, most: float) -> tuple[Question, Space]:
    """One draw of a question.

    Raises:
        InputError: no machine can be built, or too many can.
    """
    study = Study(
        tuple(rng.choice(SYSTEMS, int(rng.integers(1, 4)), replace=False)),
        str(rng.choice(MODELS)),
        batch=int(rng.choice([1, 4, 16, 24])),
        context=int(rng.choice([2048, 16384, 65536])),
        output_tokens=int(rng.choice([32, 512])),
    )
    servers = tuple(rng.choice(SERVERS, int(rng.integers(1, 3)), replace=False))
    if not set(MAPPED).isdisjoint(study.systems):
        servers = (*servers, ASYMMETRIC)
    objective = str(rng.choice(OBJECTIVES))
    is_reversed = rng.random() < REVERSED
    goal = Goal((objective,), (higher_is_better(objective) != is_reversed,), ())
    space, _ = Question(study, goal, servers).space()
    if np.sum(space.boxes.sizes) > most:
        raise InputError("too many machines")
    limits = []
    for column in rng.choice(LIMITS, int(rng.integers(0, 4)), replace=False):
        if len(known := column_of(space, str(column))):
            at_least = higher_is_better(str(column))
            beside = 1 - 1e-6 if at_least else 1 + 1e-6  # not on a machine, but for rounding
            value = beside * float(rng.choice(known))
            limits.append(Target(str(column), "", at_least, value, "--slo"))
    question = Question(study, Goal((objective,), goal.highest, tuple(limits)), servers)
    return question, question.space()[0]


def column_of(space: Space, column: str, most: int = 300) -> Numbers:
    """Values of a column at some machines of a space that have one."""
    case, point = points_of(space.boxes)
    step = max(len(case) // most, 1)
    goal = Goal((column,), (False,), ())
    values = Space(space.cases, space.study, goal).value(case[::step], point[::step])[:, 0]
    return values[np.isfinite(values) & (values > 0)]


def points_of(boxes: Boxes) -> tuple[Integers, Integers]:
    """All points of some boxes, and their cases."""
    shape = boxes.high - boxes.low + 1
    counts = np.prod(shape, axis=1)
    case = np.repeat(boxes.case, counts)
    place = np.concatenate([np.arange(count) for count in counts])
    axes = []
    for axis in range(shape.shape[1] - 1, -1, -1):
        side = np.repeat(shape[:, axis], counts)
        axes.append(place % side)
        place = place // side
    return case, np.stack(axes[::-1], axis=1) + np.repeat(boxes.low, counts, axis=0)


def alone(space: Space, number: int, point: Integers) -> float:
    """The value of one machine as `estimate` knows it, among no others; inf where it has none."""
    case = space.cases[number]
    value = space.value(np.array([number]), point[np.newaxis])
    knobs = space.knobs(number, point) if np.isfinite(value).all() else {}
    study = space.study.but(
        systems=(case.system.name,),
        platforms=(case.machine(point.tolist()),),
        knobs={**space.study.knobs, **knobs},
    )
    (block,) = blocks(study)
    try:
        resolved = block.resolved(block.grid.whole)
    except InputError:
        return np.inf
    hw, *_ = block.inputs(block.grid.whole)
    worth, _ = space.worth(Answered(resolved.estimate, hw, case.system.owns), 1)
    return float(worth[0, 0])


def by_brute_force(space: Space) -> dict[str, float]:
    """The best value of each system over every machine, to be made small."""
    case, point = points_of(space.boxes)
    values = space.value(case, point)[:, 0]
    names, system = space.systems()
    least = {
        name: np.min(values[system[case] == place], initial=np.inf)
        for place, name in enumerate(names)
    }
    return {name: float(value) for name, value in least.items() if np.isfinite(value)}


def searched(question: Question) -> tuple[Answer | None, dict[str, float]]:
    """The answer of the search, and its best value of each system."""
    try:
        answer = best_machines(question)
    except InputError:
        return None, {}
    names, _ = answer.space.systems()
    best = zip(answer.optimum.group, answer.optimum.value[:, 0], strict=True)
    return answer, {names[group]: float(value) for group, value in best}

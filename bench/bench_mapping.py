"""Time of the mapping solvers on GPT3-175B, all in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import head_tables
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.mapping.checks import brute, milp
from nearkv.solvers.mapping.exact import exact
from nearkv.solvers.mapping.policies import greedy
from nearkv.sweeps.evaluate.evaluate import keep_freed_memory
from nearkv.sweeps.validation.questions import model_on


def median(call: Callable[[], object], times: int) -> float:
    return medians([call], times)[0]


def medians(calls: list[Callable[[], object]], times: int) -> list[float]:
    """Median seconds of calls that take turns, so that all meet the same machine."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(times + 1):
        for call, seconds in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds[1:]) for seconds in taken]


def main() -> None:
    keep_freed_memory()
    hw, llm = model_on("gh-asymmetric", "gpt3-175b")
    work = Workload(32.0, 1024.0, 1.0, fixed_context=1024.0)
    tables = head_tables(hw, llm, work)
    contexts = np.linspace(64.0, 4096.0, 1000).round()
    many = head_tables(hw, llm, Workload(32.0, contexts, 1.0, fixed_context=contexts))
    seconds = {
        "tables": median(lambda: head_tables(hw, llm, work), 100),
        "greedy": median(lambda: greedy(tables), 500),
        "exact": median(lambda: exact(tables), 500),
        "brute": median(lambda: brute(tables), 25),
        "milp": median(lambda: milp(tables), 3),
    }
    in_grid = medians([lambda: exact(many), lambda: greedy(many)], 51)
    for name, took in zip(("exact", "greedy"), in_grid, strict=True):
        seconds[f"{name}, each of 1000 contexts"] = took / 1000
    for name, took in seconds.items():
        print(f"{name:30s} {1e6 * took:10.1f} us")
    print(f"exact in a grid: {1e3 * in_grid[0]:.1f} us a point (at most 50)")
    over = seconds["exact"] / seconds["greedy"]
    under = seconds["brute"] / seconds["exact"]
    print(f"exact / greedy {over:.2f} (at most 10)")
    print(f"brute / exact {under:.1f} (at least 50)")

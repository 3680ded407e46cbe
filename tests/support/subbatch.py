"""The sub-batch problem of L3 solved by trying every split."""

from __future__ import annotations

import numpy as np

from nearkv.solvers.subbatch.problem import BatchSplit, SubbatchProblem, phases


def exhaustive(problem: SubbatchProblem) -> tuple[BatchSplit, float]:
    """The fastest split of a few requests, and its D_0 + D_1 without prompts [s]."""
    n = len(problem.contexts)
    assert n <= 16, "too many splits to try"
    numbers = np.arange(2 ** (n - 1))[:, np.newaxis]  # halves may be swapped: the last is in 0
    splits = (numbers >> np.arange(n)) % 2 == 1
    seconds = [sum(phases(problem, split)) for split in splits]
    best = int(np.argmin(seconds))
    return splits[best], seconds[best]

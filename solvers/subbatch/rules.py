"""Sub-batches by rule, with nothing proven: the paper's greedy (L3 sec. 5.3), and one batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.solvers.subbatch.problem import (
    CHUNK_TOKENS,
    Chunks,
    Costs,
    Schedule,
    SubbatchProblem,
    even_halves,
    gpu_seconds,
    phases,
    pim_seconds,
)


def greedy(problem: SubbatchProblem) -> Schedule:
    """The paper's scheduler, steps 2 to 4 of sec. 5.3 (step 1 chose the requests).

    Prompts join sub-batch 1, then 0, in order, while T_GPU stays below the other's T_PIM; the last
    one is cut to a multiple of 16 tokens. Where decoding alone fills the GPU, none joins.
    """
    in_one = even_halves(problem.contexts)
    of = (~in_one, in_one)
    chunks: list[Chunks] = [(), ()]
    queue = list(enumerate(problem.prompts.tolist()))
    for s in (1, 0):
        limit = pim_seconds(problem, of[1 - s], 0.0)
        n = float(of[s].sum())
        while queue:
            j, length = queue[0]
            whole = (*chunks[s], (j, length))
            if gpu_seconds(problem.costs, n, whole) <= limit:
                chunks[s] = whole
                queue.pop(0)
                continue
            part = _longest_chunk(problem.costs, n, chunks[s], j, length, limit)
            if part:
                chunks[s] = (*chunks[s], (j, part))
                queue.pop(0)
            break
    return by_rule(problem, in_one, (chunks[0], chunks[1]))


def _longest_chunk(
    costs: Costs, n: float, chunks: Chunks, j: int, length: float, limit: float
) -> float:
    steps, above = 0, int(length) // CHUNK_TOKENS + 1
    while above - steps > 1:
        middle = (steps + above) // 2
        fits = gpu_seconds(costs, n, (*chunks, (j, float(CHUNK_TOKENS * middle)))) <= limit
        steps, above = (middle, above) if fits else (steps, middle)
    return float(CHUNK_TOKENS * steps)


def by_rule(
    problem: SubbatchProblem,
    in_one: NDArray[np.bool_],
    chunks: tuple[Chunks, Chunks] = ((), ()),
) -> Schedule:
    """A split that claims nothing."""
    decode = sum(phases(problem, in_one))
    return Schedule(in_one, chunks, phases(problem, in_one, chunks), decode, decode)


def one_batch(problem: SubbatchProblem) -> Schedule:
    """All requests undivided, no prompts."""
    return by_rule(problem, np.zeros(len(problem.contexts), bool))

"""Objective of everything that is left to `auto`: stated here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.workload import Workload

Timed = Callable[[Estimate], Span]
"""Time of an answer that is to be short."""
Cost = Callable[[Estimate], Real]
"""Objective that a choice minimises."""
TOTAL: Timed = attrgetter("total")
"""The whole request: prompts, then all steps."""
STEP: Timed = attrgetter("step")
"""One decode step, which the papers make short (HILOS sec. 4.2, HillInfer eq. 2, H2M2 sec. 4.3)."""


def objective(work: Workload, timed: Timed = TOTAL) -> Cost:
    """Objective that a choice minimises.

    Of a batch, the seconds of the whole request, prompts included, and so of users without limits:
    N of them are answered N / T times a second (Little's law). Elsewhere as many requests as can be
    keep the level of service; where none do, they miss it by the least (`goodput.load_cost`).

    Args:
        work: a batch, or requests that arrive.
        timed: what is to be short, where a question names it; `TOTAL` otherwise.
    """
    if work.arrivals is None or work.arrivals.are_free_users or timed is not TOTAL:
        return lambda estimate: timed(estimate).seconds
    from nearkv.solvers.goodput import load_cost

    return load_cost

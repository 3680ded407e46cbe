"""A batch in rounds of fewer sequences: each as the system serves as many, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.model.estimate import IN_ROUNDS, Estimate, Latency
from nearkv.costmodel.model.workload import Workload


def of_one_round(work: Workload) -> Workload:
    """The sequences of one round."""
    return replace(work, batch=work.batch / work.rounds, per_round=np.inf)


def of_all_rounds(estimate: Estimate, work: Workload) -> Estimate:
    """The answer of all rounds: as many times the time and the amounts, in the same memory.

    A mean request waits for half of the other rounds before its own.

    Args:
        estimate: of one round.
        work: of all of them.
    """
    several = (work.rounds > 1) & estimate.fits.ok
    waited = (work.rounds - 1) / 2 * estimate.total.seconds
    own = estimate.latency
    return replace(
        estimate,
        prefill=work.rounds * estimate.prefill,
        step=work.rounds * estimate.step,
        work=work,
        queued=Latency(waited + own.ttft, own.tpot),
        notes={**estimate.notes, IN_ROUNDS: estimate.notes.get(IN_ROUNDS, False) | several},
    )

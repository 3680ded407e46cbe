"""What differs from the workload as asked, in sentences that stand beside an answer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload

Notes = dict[str, NDArray[np.bool_]]
"""Sentence -> the design points where it holds."""
ROUNDING = 1e-9
"""A batch that runs but for a smaller share runs as a whole."""


def notes_of(
    estimate: Estimate, llm: LLM, work: Workload, counts: Mapping[str, tuple[Real, str]]
) -> Notes:
    """What differs from the workload as asked, whatever the system.

    Args:
        estimate: the system's answer.
        llm, work: what was asked.
        counts: knob -> its value and the number of the workload that bounds what it can use.
    """
    fewer = np.less(estimate.batch_run, np.multiply(work.batch, 1 - ROUNDING))
    beyond = "prompt and output exceed the model's context window"
    notes = {
        beyond: np.greater(work.longest, llm.longest),
        "batch_run sequences at a time, times count all rounds": fewer & estimate.fits.ok,
    }
    for knob, (value, most) in counts.items():
        sentence = f"{knob} beyond the {most}, which leaves some without work"
        notes[sentence] = np.greater(value, getattr(work, most))
    return {sentence: where for sentence, where in notes.items() if np.any(where)}

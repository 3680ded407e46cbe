"""Columns that a table has only where they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload

BOTTLENECK = "bottleneck"
"""What names of columns of the resource with most of the time begin with."""
TIMES = "time_s:"
"""What names of columns of seconds by resource begin with."""
FOOTPRINT = "footprint_gb:"
"""What names of columns of what a model keeps in memory begin with."""
ON_REQUEST = (BOTTLENECK, TIMES, FOOTPRINT)
"""Columns that begin so take longer than others, or say what no system decides."""


def on_request(names: Collection[str]) -> tuple[str, ...]:
    """Which of `ON_REQUEST` some names of columns ask for.

    >>> on_request(["step_ms", "time_s:csd.flash"])
    ('time_s:',)
    """
    named = "\n".join(["", *names])
    return tuple(start for start in ON_REQUEST if f"\n{start}" in named)


def is_usual(name: str, extra: Collection[str]) -> bool:
    """Whether a table has a column where none is named, with what of `ON_REQUEST` is asked for."""
    if name.startswith(tuple(extra)):
        return True
    return not name.startswith(ON_REQUEST)


def footprint(llm: LLM, work: Workload) -> dict[str, Callable[[], Real]]:
    """What a batch needs somewhere, whatever the system: weights, and K and V at the end [GB]."""
    return {
        f"{FOOTPRINT}weights": lambda: np.divide(llm.weight_bytes, 1e9),
        f"{FOOTPRINT}kv": lambda: np.divide(
            llm.kv_cache_bytes(work.batch, work.final), 1e9
        ),
    }

"""Iterations of a queue; of few design points several are computed as one along a further axis.

They come before all axes of the design points. Computing so many takes the time to build one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from nearkv.costmodel.deferred import Deferred
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload

_FEW = 1 << 12
"""Seconds computed at once: from there on building spans costs less than computing them."""


def load_of(work: Workload, serving: Serving, sequences: Real, prompt: Real) -> Load:
    """An iteration of so many sequences at the context of the step, and so many prompt tokens."""
    tokens = sequences * work.context
    hottest = tokens * serving.skew(sequences, work.spread.context_square)
    squares = prompt * work.prompt * work.spread.prompt_square
    load = Load(sequences, tokens, hottest, prompt, squares)
    return load.on_kinds(serving.kinds, serving.skew)


def iteration_of(work: Workload, serving: Serving, sequences: Real, prompt: Real) -> Span:
    """An iteration under the load of so many sequences and prompt tokens."""
    return serving.iteration(load_of(work, serving, sequences, prompt))


def iterations_alone(
    work: Workload, serving: Serving, decoding: Sequence[Real], like: Real
) -> list[Span]:
    """Iterations of so many sequences each, without prompts; of few points built when needed.

    Args:
        work, serving: as in `fluid.steady`.
        decoding: sequences of each iteration [1].
        like: seconds of another iteration, over the same design points.
    """
    alone = partial(iteration_of, work, serving, prompt=0.0)
    if not _are_few(like, len(decoding)):
        return [alone(sequences) for sequences in decoding]
    loads = [(sequences, 0.0) for sequences in decoding]
    seconds = _at_once(work, serving, loads, like)
    return [
        Deferred(1.0, partial(alone, sequences), once)
        for sequences, once in zip(decoding, seconds, strict=True)
    ]


def iteration_seconds(
    work: Workload, serving: Serving, loads: Sequence[tuple[Real, Real]]
) -> list[Real]:
    """Seconds of iterations of so many sequences and prompt tokens each [s]."""
    first, *others = loads
    like = iteration_of(work, serving, *first).seconds
    if _are_few(like, len(others)):
        return [like, *_at_once(work, serving, others, like)]
    return [like, *(iteration_of(work, serving, *load).seconds for load in others)]


def _are_few(like: Real, iterations: int) -> bool:
    """Whether so many iterations of some design points are better computed at once."""
    return isinstance(like, float | np.ndarray) and iterations * np.size(like) <= _FEW


def _at_once(
    work: Workload,
    serving: Serving,
    loads: Sequence[tuple[Real, Real]],
    like: Real,
) -> Iterator[Real]:
    """Seconds of iterations as those of one along a further axis [s].

    Args:
        work, serving, loads: as in `iteration_seconds`.
        like: seconds of another iteration, over the same design points.
    """
    shapes = [np.shape(number) for load in loads for number in load]
    points = np.broadcast_shapes(np.shape(like), *shapes)
    sequences, prompts = (
        np.stack([np.broadcast_to(number, points) for number in numbers])
        for numbers in zip(*loads, strict=True)
    )
    together = iteration_of(work, serving, sequences, prompts)
    return iter(np.broadcast_to(together.seconds, sequences.shape))

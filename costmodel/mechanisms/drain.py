"""The end of a queue: nothing waits any more, and fewer and fewer requests decode.

Symbols: n tokens of an answer, t iterations since the last admission, r mean remainder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.compose import serial
from nearkv.costmodel.deferred import Deferred
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload

_NODES, _GAUSS = np.polynomial.legendre.leggauss(6)
_TIMES, _WEIGHTS = (1 + _NODES) / 2, _GAUSS / 2
"""Points and weights of the integral over the drain, as shares of its length."""
_FEW = 1 << 12
"""Seconds computed at once: from there on building spans costs less than computing them."""


def load_of(work: Workload, serving: Serving, sequences: Real, prompt: Real) -> Load:
    """An iteration of so many sequences at the context of the step, and so many prompt tokens."""
    tokens = sequences * work.context
    hottest = tokens * serving.skew(sequences, work.spread.context_square)
    squares = prompt * work.prompt * work.spread.prompt_square
    load = Load(sequences, tokens, hottest, prompt, squares)
    return load.on_kinds(serving.kinds, serving.skew)


@dataclass(frozen=True)
class Drain:
    """The end of a run: nothing waits any more, and the last requests leave one after another.

    Shares of the last requests that still decode follow (1 - t / t_max)^k, which has the longest
    answer as its end and their mean remainder r as its integral: k = t_max / r - 1. It is exact for
    equal requests out of step (k = 1) and for a geometric law (k large).

    Attributes:
        longest: iterations until the last request ends, t_max [1].
        remainder: of a mean request among the last ones, r [1].
    """

    longest: Real
    remainder: Real

    def pieces(self) -> Iterator[tuple[Real, Real]]:
        """Parts of the drain: iterations each takes, and the share that decodes in it [1]."""
        exponent = self.longest / np.maximum(self.remainder, 1e-9) - 1
        for time, weight in zip(_TIMES, _WEIGHTS, strict=True):
            yield self.longest * weight, (1 - time) ** exponent


def drain_of(work: Workload, queued: NDArray[np.bool_]) -> Drain:
    """How the last requests leave; those that never queued have begun together.

    Requests of equal length end together: nothing drains.
    """
    steps = np.maximum(work.output - 1, 0.0)
    spread = work.spread
    differ = np.greater(spread.output_square, 1)
    residual = steps * spread.output_square / 2
    remainder = np.where(queued, residual, steps)
    last = steps * spread.longest_output
    longest = np.maximum(last, remainder)
    return Drain(
        longest=np.where(differ, longest, 0.0),
        remainder=np.where(differ, remainder, 0.0),
    )


@dataclass(frozen=True)
class Run:
    """The iterations of a whole run.

    Attributes:
        step: all of them over the tokens of a request beyond the first.
        token_seconds: what one place of n_d waits, weighted by how many of them are taken [s].
    """

    step: Span
    token_seconds: Real


def decode_run(
    work: Workload,
    serving: Serving,
    sequences: Real,
    carried: Real,
    full: Real,
    drain: Drain,
) -> Run:
    """Full iterations with the prompts they carry, then the drain.

    Args:
        work, serving: as in `fluid.steady`.
        sequences: decoding in a full iteration [1].
        carried: prompt tokens in a full iteration [1].
        full: how many full iterations [1].
        drain: what follows.
    """
    steps = np.maximum(work.output - 1, 1e-9)
    iteration = serving.iteration(load_of(work, serving, sequences, carried))
    queue = (full / steps) * iteration
    token_seconds = full * iteration.seconds
    if not np.any(drain.remainder):
        return Run(queue, token_seconds)
    parts: dict[str, Span] = {"queue": queue}
    pieces = list(drain.pieces())
    decoding = [share * sequences for _, share in pieces]
    drained = _iterations(work, serving, decoding, iteration.seconds)
    for number, ((iterations, share), last) in enumerate(
        zip(pieces, drained, strict=True), 1
    ):
        times = iterations / steps
        parts[f"drain_{number}"] = times * last
        places = iterations * share
        token_seconds = token_seconds + places * last.seconds
    return Run(serial(**parts), token_seconds)


def _iterations(
    work: Workload, serving: Serving, decoding: Sequence[Real], like: Real
) -> Sequence[Span]:
    """Iterations of some sequences each, without prompts; of few design points built when needed.

    Args:
        work, serving: as in `fluid.steady`.
        decoding: sequences of each iteration [1].
        like: seconds of another iteration, over the same design points.
    """

    def alone(sequences: Real) -> Span:
        return serving.iteration(load_of(work, serving, sequences, 0.0))

    if not _are_few(like, len(decoding)):
        return [alone(sequences) for sequences in decoding]
    loads = [(sequences, 0.0) for sequences in decoding]
    return [
        Deferred(1.0, partial(alone, sequences), seconds)
        for sequences, seconds in zip(
            decoding, _at_once(work, serving, loads, like), strict=True
        )
    ]


def iteration_seconds(
    work: Workload, serving: Serving, loads: Sequence[tuple[Real, Real]]
) -> list[Real]:
    """Seconds of iterations of so many sequences and prompt tokens each [s]."""
    first, *others = loads
    like = serving.iteration(load_of(work, serving, *first)).seconds
    if _are_few(like, len(others)):
        return [like, *_at_once(work, serving, others, like)]
    iterations = [serving.iteration(load_of(work, serving, *load)) for load in others]
    return [like, *(iteration.seconds for iteration in iterations)]


def _are_few(like: Real, iterations: int) -> bool:
    """Whether so many iterations of some design points are better computed at once."""
    return isinstance(like, float | np.ndarray) and iterations * np.size(like) <= _FEW


def _at_once(
    work: Workload,
    serving: Serving,
    loads: Sequence[tuple[Real, Real]],
    like: Real,
) -> Iterator[Real]:
    """Seconds of iterations as those of one along a further axis, before all others [s].

    It takes the time to build one. Arguments as in `iteration_seconds`, and `like`: seconds of
    another iteration, over the same design points.
    """
    points = np.broadcast_shapes(
        np.shape(like), *(np.shape(number) for load in loads for number in load)
    )
    sequences, prompts = (
        np.stack([np.broadcast_to(number, points) for number in numbers])
        for numbers in zip(*loads, strict=True)
    )
    spans = serving.iteration(load_of(work, serving, sequences, prompts))
    shape = (len(loads), *points)
    return iter(np.broadcast_to(spans.seconds, shape))

"""The end of a queue: nothing waits any more, and fewer and fewer requests decode.

Symbols: n tokens of an answer, t iterations since the last admission, r mean remainder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.workload import Workload

_NODES, _GAUSS = np.polynomial.legendre.leggauss(6)
_PLACES, _WEIGHTS = (1 + _NODES) / 2, _GAUSS / 2
"""Points and weights of the integral over the drain, as shares of its length."""
_FAST = 2.0
"""Exponent of the law from which on shares fall so fast that their logarithm is stepped through."""


@dataclass(frozen=True)
class Piece:
    """A part of the drain.

    Attributes:
        iterations: that it takes [1].
        decoding: share of the last requests that decode in each [1].
        served: the same as the law of their remainders has it, less where one goes on alone [1].
    """

    iterations: Real
    decoding: Real
    served: Real


@dataclass(frozen=True)
class Drain:
    """The end of a run: nothing waits any more, and the last requests leave one after another.

    Shares of the last requests that still decode follow (1 - t / t_max)^k, which has the longest
    answer as its end and their mean remainder r as its integral: k = t_max / r - 1. It is exact for
    equal requests out of step (k = 1) and for a geometric law (k large). Until t_max at least one
    decodes, which takes the time of a whole iteration.

    Attributes:
        longest: iterations until the last request ends, t_max [1].
        remainder: of a mean request among the last ones, r [1].
    """

    longest: Real
    remainder: Real

    def pieces(self, least: Real) -> Iterator[Piece]:
        """Parts of the drain, the last of which is that of the last request.

        Args:
            least: share of the requests that decodes until the end, one on each replica [1].
        """
        k = np.maximum(self.longest / np.maximum(self.remainder, 1e-9) - 1, 1e-9)
        steepness = -np.log(least) / k
        until_last = -np.expm1(-steepness)
        slow = np.less_equal(k, _FAST)
        is_any_slow, is_all_slow = np.any(slow), np.all(slow)
        for place, weight in zip(_PLACES, _WEIGHTS, strict=True):
            left, length = 1 - place * until_last, until_last
            if not is_all_slow:
                steeply = np.exp(-place * steepness)
                along = steepness * steeply
                left = np.where(slow, left, steeply) if is_any_slow else steeply
                length = np.where(slow, length, along) if is_any_slow else along
            share = left**k
            yield Piece(self.longest * weight * length, share, share)
        alone = self.longest * (1 - until_last)
        yield Piece(alone, least, least / (k + 1))


def drain_of(work: Workload, queued: NDArray[np.bool_], iterations: Real) -> Drain:
    """How the last requests leave; those that never queued have begun together.

    Requests of equal length end together: nothing drains. The last ones have no more to generate
    than all: where nearly all are resident from the start, their mean remainder is what is left.

    Args:
        work: mean lengths and moments of the requests.
        queued: where some waited.
        iterations: of as many requests at a time as decode together, if none drained [1].
    """
    steps = np.maximum(work.output - 1, 0.0)
    spread = work.spread
    differ = np.greater(spread.output_square, 1)
    residual = steps * spread.output_square / 2
    remainder = np.where(queued, np.minimum(residual, iterations), steps)
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
        work, serving: the queue.
        sequences: decoding in a full iteration [1].
        carried: prompt tokens in a full iteration [1].
        full: how many full iterations [1].
        drain: what follows.
    """
    steps = np.maximum(work.output - 1, 1e-9)
    iteration = serving.iteration_of(work, sequences, carried)
    token_seconds = full * iteration.seconds
    parts: dict[str, Span] = {"queue": (full / steps) * iteration}
    least = serving.one_on_each(sequences)
    pieces = drain.pieces(least) if np.any(drain.remainder) else ()
    for number, piece in enumerate(pieces, 1):
        drained = serving.iteration_of(work, piece.decoding * sequences, 0.0)
        parts[f"drain_{number}"] = (piece.iterations / steps) * drained
        token_seconds = token_seconds + piece.iterations * piece.served * drained.seconds
    step = serial(**parts) if len(parts) > 1 else parts["queue"]
    return Run(step, token_seconds)

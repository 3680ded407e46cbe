"""Iterations of a queue; of few design points several are computed as one along a further axis.

That axis comes before all axes of the design points. Computing so many takes the time to build one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard

import numpy as np

from nearkv.costmodel.algebra.deferred import Deferred
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.queue import Load, Serving
from nearkv.costmodel.model.workload import Workload

_FEW = 1 << 12
"""Seconds computed at once: from there on building spans costs less than computing them."""


@dataclass
class Iterations:
    """The iterations of one queue, each given as its sequences and its prompt tokens [1].

    Attributes:
        work: mean lengths and moments of the requests.
        serving: how the system serves them.
        like: seconds of any of them, whose axes are those of the design points; None before one was
            computed [s].
    """

    work: Workload
    serving: Serving
    like: Real | None = None

    def span(self, sequences: Real, prompt: Real) -> Span:
        """An iteration under such a load."""
        load = load_of(self.work, self.serving, sequences, prompt)
        span = self.serving.iteration(load)
        if self.like is None:
            self.like = span.seconds
        return span

    def spans(self, loads: Sequence[tuple[Real, Real]]) -> list[Span]:
        """Iterations under several loads; of few points built once they are looked into."""
        known: list[Span] = []
        if self.like is None:
            first = self.span(*loads[0])
            known.append(first)
        later = loads[len(known) :]
        if not _are_few(self.like, len(later)):
            built = [self.span(*load) for load in later]
            return known + built
        seconds = self._at_once(later, self.like)
        for load, once in zip(later, seconds, strict=True):
            deferred = Deferred(1.0, partial(self.span, *load), once)
            known.append(deferred)
        return known

    def seconds(self, loads: Sequence[tuple[Real, Real]]) -> list[Real]:
        """Seconds of iterations under several loads [s]."""
        return [span.seconds for span in self.spans(loads)]

    def _at_once(self, loads: Sequence[tuple[Real, Real]], like: Real) -> Iterator[Real]:
        """Seconds of iterations as those of one along a further axis [s].

        Args:
            loads: as in `spans`.
            like: seconds of another, over the same design points [s].
        """
        # `np.shape` makes an array of each scalar
        shapes: set[tuple[int, ...]] = {np.shape(like)}
        for load in loads:
            shapes |= {getattr(number, "shape", ()) for number in load}
        points = np.broadcast_shapes(*shapes) if len(shapes) > 1 else shapes.pop()
        sequences, prompts = np.empty((2, len(loads), *points))
        for place, load in enumerate(loads):
            sequences[place], prompts[place] = load
        together = self.span(sequences, prompts)
        return iter(np.broadcast_to(together.seconds, sequences.shape))


def _are_few(like: Real | None, loads: int) -> TypeGuard[Real]:
    """Whether so many iterations of some design points are better computed at once."""
    return (
        isinstance(like, float | np.ndarray) and loads > 1 and loads * np.size(like) <= _FEW
    )


def load_of(work: Workload, serving: Serving, sequences: Real, prompt: Real) -> Load:
    """An iteration of so many sequences at the context of the step, and so many prompt tokens."""
    tokens = sequences * work.context
    hottest = tokens * serving.skew(sequences, work.spread.context_square)
    squares = prompt * work.prompt * work.spread.prompt_square
    load = Load(sequences, tokens, hottest, prompt, squares)
    return load.on_kinds(serving.kinds, serving.skew)

"""Seconds of the iterations of one replica, tabulated once and read many times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.workload import Load, Serving

_ONE_BY_ONE = np.arange(9.0)
"""Numbers of sequences where sub-batches and experts begin."""
_NODES = 32
"""Further nodes along each axis, at equal ratios; times are close to affine between two."""


class Interpolant:
    """A function of a few variables, affine between the nodes at which it is evaluated once."""

    def __init__(self, function: Callable[..., Real], *axes: Numbers) -> None:
        mesh = np.meshgrid(*axes, indexing="ij", sparse=True)
        values = np.broadcast_to(function(*mesh), [len(axis) for axis in axes])
        self._values = values.tolist()
        self._axes = [(axis.tolist(), len(axis) - 1) for axis in axes]

    def __call__(self, *place: float) -> float:
        """The function at a place; plain Python, which is fastest for single numbers."""
        steps = []
        for (nodes, last), x in zip(self._axes, place, strict=True):
            below = bisect_right(nodes, x, 1, last) - 1
            low = nodes[below]
            steps.append((below, (x - low) / (nodes[below + 1] - low)))
        return _between(self._values, steps)


def _between(values: list[Any], steps: Sequence[tuple[int, float]], axis: int = 0) -> float:
    """A value in nested lists.

    Args:
        values: at the nodes of this axis and of those behind it.
        steps: of each axis the node below, and the share of the way to the next.
        axis: the first of `values`.
    """
    below, share = steps[axis]
    low, high = values[below], values[below + 1]
    axis += 1
    if axis < len(steps):
        low = _between(low, steps, axis)
        if share:
            high = _between(high, steps, axis)
    value: float = low + share * (high - low) if share else low
    return value


class Iterations:
    """Seconds of the iterations of one replica; `alone` of a prompt, while decoding pauses.

    Args:
        serving: how one design point serves, all numbers scalar.
        sequences: the most that decode on a replica [1].
        lengths: of the shortest prompt, and of the longest request [tokens].
        prompt: the most prompt tokens of an iteration [tokens].
        sizes: mean square over squared mean of the contexts [1].
    """

    def __init__(
        self,
        serving: Serving,
        sequences: float,
        lengths: tuple[float, float],
        prompt: float,
        sizes: Real,
    ) -> None:
        self._serving = serving
        self._sizes = sizes
        self._lengths = lengths
        self._most = max(sequences, _ONE_BY_ONE[-1] + 1)
        self._chunks = np.append(0.0, np.geomspace(1.0, max(prompt, 2.0), _NODES))

    def _load(self, n: Real, context: Real, tokens: Real = 0.0, length: Real = 0.0) -> Load:
        """Load of all replicas, each with as much [1]."""
        dp = self._serving.replicas
        return self._serving.load_at(dp * n, context, self._sizes, dp * tokens, length)

    def _iteration(self, *load: Real) -> Real:
        return self._serving.iteration(self._load(*load)).seconds

    def _prompt(self, n: Real, length: Real) -> Real:
        """A prompt of a replica, n of which are computed at a time [s]."""
        prompts = self._load(0.0, 0.0, n * length, length)
        return self._serving.prefill(self._serving.replicas * n, prompts).seconds / n

    def _counts(self, nodes: int) -> Numbers:
        """Numbers of sequences, the first ones one by one [1]."""
        return np.unique([*_ONE_BY_ONE, *np.geomspace(_ONE_BY_ONE[-1], self._most, nodes)])

    def _tokens(self, nodes: int) -> Numbers:
        """Tokens of a request [1]."""
        shortest, longest = self._lengths
        return np.geomspace(shortest, longest + 1, nodes)

    @cached_property
    def _decode(self) -> Interpolant:
        return Interpolant(
            self._iteration, self._counts(4 * _NODES), self._tokens(2 * _NODES)
        )

    @cached_property
    def _mixed(self) -> Interpolant:
        tokens = self._tokens(_NODES // 4)
        return Interpolant(
            self._iteration, self._counts(_NODES), tokens, self._chunks, tokens
        )

    @cached_property
    def _alone(self) -> Interpolant:
        return Interpolant(self._prompt, _ONE_BY_ONE[1:], self._tokens(4 * _NODES))

    def alone(self, present: float, tokens: float) -> float:
        """A prompt during which no other token comes; those present fill the other stages [s].

        Args:
            present: requests of the replica, this one among them [1].
            tokens: of it [1].
        """
        return self._alone(min(present, _ONE_BY_ONE[-1]), tokens)

    def seconds(
        self, n: float, tokens: float, prompt: float = 0, squares: float = 0
    ) -> float:
        """An iteration: one token of n sequences, and a part of the prompts that wait [s].

        Args:
            n: sequences that decode [1].
            tokens: of context they attend to, in all [1].
            prompt: prompt tokens beside them [1].
            squares: of those, the sum of l^2 + 2 l c0 over chunks of l tokens after c0 [1].
        """
        context = tokens / n if n else 0.0
        if not prompt:
            return self._decode(n, context)
        return self._mixed(n, context, prompt, squares / prompt)

"""How a system serves a queue of requests: what an iteration carries and how much memory holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearkv.costmodel.span import Real, Span


@dataclass(frozen=True)
class Load:
    """What one iteration carries, over all replicas.

    Attributes:
        sequences: decoding, one token each [1].
        tokens: context they attend to, in all [1].
        hottest: the same as if every rankset held as much as the fullest [1].
        prompt: prompt tokens computed beside them [1].
        squares: causal attention of those, the sum of l^2 + 2 l c0 over chunks of l tokens
            after c0 [1].
    """

    sequences: Real
    tokens: Real
    hottest: Real
    prompt: Real = 0.0
    squares: Real = 0.0

    def share(self, part: Real) -> Load:
        """An even part of the load."""
        parts = (self.sequences, self.tokens, self.hottest, self.prompt, self.squares)
        return Load(*[part * amount for amount in parts])


@dataclass(frozen=True)
class Serving:
    """How a system serves a queue, for the fluid model and for a simulation.

    Attributes:
        iteration: one token more for every sequence of a load, and its prompts.
        prefill: prompts alone: (how many, a load of their tokens).
        room: tokens of KV cache all replicas hold together [1].
        longest_room: tokens one request may hold, all replicas together, where that is more [1].
        minimum_chunk: prompt tokens that ride in an iteration even if decoding alone fills it [1].
        replicas: dp [1].
        chunked: 1 where prompts ride in decode iterations, 0 where they come first.
        reserve: 1 where a request is admitted with its final length, 0 where it grows page by page.
        skew: sequences -> load of the fullest rankset over the mean [1].
    """

    iteration: Callable[[Load], Span]
    prefill: Callable[[Real, Load], Span]
    room: Real
    replicas: Real
    chunked: Real = 0.0
    reserve: Real = 0.0
    skew: Callable[[Real], Real] = lambda sequences: 1.0
    longest_room: Real = 0.0
    minimum_chunk: Real = 0.0

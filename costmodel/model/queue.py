"""Service of a queue of requests: what an iteration carries and how much memory holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span, serial
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload

Skew = Callable[[Real, Real], Real]
"""Sequences, mean square over squared mean of their sizes -> fullest rankset over the mean [1]."""


def even(sequences: Real, sizes: Real) -> Real:
    """All ranksets hold as much [1]."""
    return 1.0


@dataclass(frozen=True)
class Load:
    """Load of one iteration, over all replicas.

    Attributes:
        sequences: decoding, one token each [1].
        tokens: context they attend to, in all [1].
        hottest: the same as if every rankset held as much as the fullest [1].
        prompt: prompt tokens computed beside them [1].
        squares: causal attention of those, the sum of l^2 + 2 l c0 over chunks of l tokens
            after c0 [1].
        products: tokens that decoding queries multiply with, where a layer's are not those it
            reads [1].
        kept_share: of the prompt tokens, those whose KV a cache keeps [1].
        by_type: the load as the layers of each type see it; none where all are alike.
    """

    sequences: Real
    tokens: Real
    hottest: Real
    prompt: Real = 0.0
    squares: Real = 0.0
    products: Real = 0.0
    kept_share: Real = 1.0
    by_type: Mapping[str, Load] = field(default_factory=dict)

    def share(self, part: Real) -> Load:
        """An even part of the load."""
        return Load(
            part * self.sequences,
            part * self.tokens,
            part * self.hottest,
            part * self.prompt,
            part * self.squares,
            part * self.products,
            self.kept_share,
            {name: layer_type.share(part) for name, layer_type in self.by_type.items()},
        )

    def on_layer_types(self, layer_types: Mapping[str, Seen], skew: Skew) -> Load:
        """This load with what the layers of each type see of it."""
        if not layer_types:
            return self
        return replace(
            self,
            by_type={
                name: layer_type.of(self, skew) for name, layer_type in layer_types.items()
            },
        )


@dataclass(frozen=True)
class Seen:
    """Share of a load that layers of one type see, over what full attention sees.

    Attributes:
        tokens: cached tokens that attention reads, or one state of a sequence [1].
        products: what decoding queries multiply with [1].
        squares: causal attention of prompts [1].
        kept: prompt tokens that a cache keeps [1].
        sizes: mean square over squared mean of the tokens that attention reads of a request [1].
    """

    tokens: Real
    products: Real
    squares: Real
    kept: Real
    sizes: Real

    def of(self, load: Load, skew: Skew) -> Load:
        """The load as these layers see it."""
        tokens = self.tokens * load.tokens
        return replace(
            load,
            tokens=tokens,
            hottest=tokens * skew(load.sequences, self.sizes),
            products=self.products * load.tokens,
            squares=self.squares * load.squares,
            kept_share=self.kept,
        )


def over_layer_types(llm: LLM, load: Load, layer: Callable[[LLM, Load], Span]) -> Span:
    """All layers under a load one after the other, each type under what it sees of the load.

    Args:
        llm: the model.
        load: of an iteration, or prompts alone.
        layer: one layer, given as a model whose layers are all like it, and its load -> its span.
    """
    if not llm.layer_types:
        return llm.layers * layer(llm, load)
    spans = {
        name: layer_type.layers * layer(layer_type, load.by_type[name])
        for name, layer_type in llm.layer_types.items()
    }
    return serial(**spans)


@dataclass(frozen=True)
class Serving:
    """Service of a queue by a system, for the fluid model and for a simulation.

    Attributes:
        iteration: one token more for every sequence of a load, and its prompts.
        prefill: prompts alone: (how many, a load of their tokens).
        capacity: tokens of KV cache all replicas hold together; where layers keep different numbers
            of tokens, those of as many requests of mean size as memory holds [1].
        longest_capacity: tokens one request may hold, over all replicas, where that is more [1].
        minimum_chunk: prompt tokens that ride in an iteration even if decoding alone fills it [1].
        budget: tokens of an iteration of one replica, decoding ones among them, where that limits
            the prompts that ride; 0 where as many ride as decoding hides [1].
        replicas: dp [1].
        chunked: 1 where prompts ride in decode iterations, 0 where they come first.
        reserve: 1 where a request is admitted with its final length, 0 where it grows page by page.
        skew: sequences, mean square over squared mean of their sizes -> load of the fullest
            rankset over the mean [1].
        sequences: requests that one replica runs at once, at most [1].
        by_type: what layers of each type see of a load; none where all layers are alike.
        in_parts: whether the memory may hold parts of requests, whose rest another one holds.
    """

    iteration: Callable[[Load], Span]
    prefill: Callable[[Real, Load], Span]
    capacity: Real
    replicas: Real
    chunked: Real = 0.0
    reserve: Real = 0.0
    skew: Skew = even
    longest_capacity: Real = 0.0
    minimum_chunk: Real = 0.0
    budget: Real = 0.0
    sequences: Real = np.inf
    by_type: Mapping[str, Seen] = field(default_factory=dict)
    in_parts: bool = False

    @property
    def most_running(self) -> Real:
        """Requests that all replicas run at once, at most, whatever memory holds [1]."""
        return self.replicas * self.sequences

    def one_on_each(self, sequences: Real) -> Real:
        """Share of sequences that is one on each replica; 1 where they are fewer [1]."""
        return np.minimum(self.replicas / np.maximum(sequences, 1e-9), 1.0)

    def iteration_of(self, work: Workload, sequences: Real, prompt: Real) -> Span:
        """The iteration of some sequences at the context of the step, and some prompt tokens.

        Args:
            work: mean lengths and moments of the requests.
            sequences: decoding, over all replicas [1].
            prompt: prompt tokens computed beside them [1].
        """
        return self.iteration(self.load_of(work, sequences, prompt))

    def load_of(self, work: Workload, sequences: Real, prompt: Real) -> Load:
        """Load that `iteration_of` carries; arguments as there."""
        sizes = work.spread.context_square
        length = work.prompt * work.spread.prompt_square
        return self.load_at(sequences, work.context, sizes, prompt, length)

    def load_at(
        self, sequences: Real, context: Real, sizes: Real, prompt: Real, length: Real
    ) -> Load:
        """Load of an iteration, over all replicas, as layers of each type see it.

        Args:
            sequences: decoding [1].
            context: tokens that each attends to, on average [1].
            sizes: mean square over squared mean of these [1].
            prompt: prompt tokens computed beside them [1].
            length: of their prompts, on average over tokens [1].
        """
        tokens = sequences * context
        hottest = tokens * self.skew(sequences, sizes)
        load = Load(sequences, tokens, hottest, prompt, prompt * length)
        return load.on_layer_types(self.by_type, self.skew)

"""The workload of a system: sequences, their prompts and the tokens they generate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nearkv.costmodel.algebra.span import Real

LENGTH_PARTS = 8
"""Equal parts of a sequence's life at which costs that are not affine in it are averaged."""


@dataclass(frozen=True)
class Lengths:
    """Lengths in order, in parts of equal weight: the mean of each part over that of all [1].

    What is affine in a length needs its mean alone.

    Attributes:
        contexts: that a step sees, each for an equal part of the time.
        finals: how long the requests that a step sees become, each for an equal part of the time.
        prompts: each of an equal part of the requests.
        prompt_parts: prompts, each part of as many tokens.
        outputs: generated tokens, each of an equal part of the requests.
    """

    contexts: tuple[Real, ...]
    finals: tuple[Real, ...]
    prompts: tuple[Real, ...]
    prompt_parts: tuple[Real, ...]
    outputs: tuple[Real, ...]


@dataclass(frozen=True)
class Spread:
    """Spread of the requests of a trace from their means; all 1 where they are equal.

    A step of continuous batching sees a request in proportion to the tokens it generates, hence
    the products with n.

    Attributes:
        prompt_square: E[s^2] / E[s]^2 [1].
        output_square: E[n^2] / E[n]^2 [1].
        product: E[s n] / (E[s] E[n]) [1].
        context_square: mean square over squared mean of the contexts a step sees [1].
        longest: longest request over the mean one, max(s + n) / E[s + n] [1].
        longest_output: longest answer over the mean one, max(n) / E[n] [1].
        lengths: parts of the requests, in order of their lengths; none where they are equal.
    """

    prompt_square: Real = 1.0
    output_square: Real = 1.0
    product: Real = 1.0
    context_square: Real = 1.0
    longest: Real = 1.0
    longest_output: Real = 1.0
    lengths: Lengths | None = None


ENDLESS_TOKENS = 1e6
"""Stands for the batch of requests that arrive without end: as many as memory holds [1]."""


GROWS = "requests come faster than they are answered, so the queue grows without end"


@dataclass(frozen=True)
class Arrivals:
    """Arrival of requests one by one, and what is asked of their answers.

    Attributes:
        rate: requests per second over the machine, at random (Poisson) [1/s].
        users: in place of a rate, that each ask again when they are answered [1].
        ttft_slo, tpot_slo: longest times to first token and per output token that count [s].
        overload: what is said of requests that come faster than they are answered; nothing where
            they end and are simulated to the last one.
    """

    rate: Real = 0.0
    users: Real | None = None
    ttft_slo: Real = np.inf
    tpot_slo: Real = np.inf
    overload: str = GROWS


@dataclass(frozen=True)
class Workload:
    """A batch of requests; every field broadcasts over design points.

    Attributes:
        batch: sequences served together [1].
        prompt: tokens each brings, on average (s) [1].
        output: tokens each generates, on average (n) [1].
        fixed_context: evaluate a decode step at this context instead of the mean [1].
        spread: how the requests differ; equal unless a trace says otherwise.
        arrivals: how they come, where they do not all wait from the start.
        distinct: bytes that memory keeps of requests that run, over the sum of theirs; less than 1
            where they share the pages of a prefix [1].
    """

    batch: Real
    prompt: Real
    output: Real
    fixed_context: Real | None = None
    spread: Spread = field(default_factory=Spread)
    arrivals: Arrivals | None = None
    distinct: Real = 1.0

    @property
    def context(self) -> Real:
        """Tokens attended to in a decode step [1].

        The n - 1 steps after prefill see s + 1 ... s + n - 1 tokens; their mean is s + n / 2,
        exact for any step that is affine in the context. Where requests differ, a step meets long
        ones more often: E[s n] / E[n] + E[n^2] / (2 E[n]).
        """
        if self.fixed_context is not None:
            return self.fixed_context
        prompt = self.prompt * self.spread.product
        return prompt + self.output * self.spread.output_square / 2

    @property
    def contexts(self) -> list[Real]:
        """Contexts that a step sees, each for an equal part of the time; their mean is `context`.

        For what bends with the context, as a window's min(s, w) [1].
        """
        if self.fixed_context is not None:
            return [self.fixed_context]
        if self.spread.lengths:
            return [part * self.context for part in self.spread.lengths.contexts]
        middles = (np.arange(LENGTH_PARTS) + 0.5) / LENGTH_PARTS
        return [self.prompt + float(middle) * self.output for middle in middles]

    @property
    def finals(self) -> list[Real]:
        """Lengths at their ends of the sequences that a step sees; their mean is `final_seen`."""
        lengths = self.spread.lengths
        return [part * self.final_seen for part in (lengths.finals if lengths else (1.0,))]

    @property
    def prompts(self) -> list[Real]:
        """Prompts, each for an equal part of the requests; their mean is `prompt` [1]."""
        lengths = self.spread.lengths
        return [part * self.prompt for part in (lengths.prompts if lengths else (1.0,))]

    @property
    def prompt_parts(self) -> list[Real]:
        """Prompts, each part with as many tokens, so that long ones are told apart [1]."""
        lengths = self.spread.lengths
        return [
            part * self.prompt for part in (lengths.prompt_parts if lengths else (1.0,))
        ]

    @property
    def outputs(self) -> list[Real]:
        """Generated tokens, each for an equal part of the requests; their mean is `output` [1]."""
        lengths = self.spread.lengths
        return [part * self.output for part in (lengths.outputs if lengths else (1.0,))]

    @property
    def final(self) -> Real:
        """Tokens of a sequence when it ends, s + n [1]."""
        return self.prompt + self.output

    @property
    def final_seen(self) -> Real:
        """Tokens at the end of a sequence that a decode step sees, E[(s + n) n] / E[n] [1]."""
        return self.prompt * self.spread.product + self.output * self.spread.output_square

    @property
    def longest(self) -> Real:
        """Tokens the longest sequence holds when it ends [1]."""
        return self.final * self.spread.longest

    def at(self, context: Real) -> Workload:
        """This work with its decode step at one context [1]."""
        return replace(self, fixed_context=context)

"""The workload of a system: sequences, prompts and tokens they generate, and queues of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span, choose, serial
from nearkv.costmodel.model.llm import LLM

LENGTH_PARTS = 8
"""Equal parts of a sequence's life at which costs that are not affine in it are averaged."""


@dataclass(frozen=True)
class Lengths:
    """Lengths in order, in parts of equal weight: the mean of each part over that of all [1].

    What is affine in a length needs its mean alone.

    Attributes:
        contexts: that a step sees, each for an equal part of the time; none where all grow alike.
        finals: how long the requests that a step sees become, each for an equal part of the time.
        prompts: each of an equal part of the requests.
        prompt_parts: prompts, each part of as many tokens.
        outputs: generated tokens, each of an equal part of the requests.
    """

    contexts: tuple[Real, ...] = ()
    finals: tuple[Real, ...] = (1.0,)
    prompts: tuple[Real, ...] = (1.0,)
    prompt_parts: tuple[Real, ...] = (1.0,)
    outputs: tuple[Real, ...] = (1.0,)


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
        lengths: parts of the requests, in order of their lengths; one where they are equal.
    """

    prompt_square: Real = 1.0
    output_square: Real = 1.0
    product: Real = 1.0
    context_square: Real = 1.0
    longest: Real = 1.0
    longest_output: Real = 1.0
    lengths: Lengths = Lengths()


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

    @property
    def are_free_users(self) -> bool:
        """True if users ask without a limit on their waiting."""
        is_free = np.isposinf(self.ttft_slo) & np.isposinf(self.tpot_slo)
        return self.users is not None and bool(np.all(is_free))


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
        chunk: tokens of a prompt that pass a layer together; 0 the whole prompt [1].
        before: tokens that the cache holds before each prompt, as a prefix that was found [1].
        per_round: sequences that run together at most, in as few equal rounds as that takes [1].
    """

    batch: Real
    prompt: Real
    output: Real
    fixed_context: Real | None = None
    spread: Spread = field(default_factory=Spread)
    arrivals: Arrivals | None = None
    distinct: Real = 1.0
    chunk: Real = 0.0
    before: Real = 0.0
    per_round: Real = np.inf

    @property
    def rounds(self) -> Real:
        """Equal rounds, R = ceil(B / b): of 24 sequences, 16 at most, 2 rounds of 12 [1]."""
        return np.maximum(np.ceil(self.batch / self.per_round), 1.0)

    @property
    def together(self) -> Real:
        """Tokens of a prompt that pass a layer together, c <= s [1]."""
        in_parts = self.chunk > 0
        return choose(in_parts, np.minimum(self.chunk, self.prompt), self.prompt)

    @property
    def chunks(self) -> Real:
        """Chunks of a prompt, n = ceil(s / c); one of an empty prompt [1]."""
        return np.maximum(np.ceil(self.prompt / np.maximum(self.together, 1e-9)), 1.0)

    @property
    def context(self) -> Real:
        """Tokens attended to in a decode step [1].

        The n - 1 steps after prefill see s + 1 ... s + n - 1 tokens; their mean is s + n / 2,
        exact for any step that is affine in the context. Where requests differ, a step meets long
        ones more often: E[s n] / E[n] + E[n^2] / (2 E[n]).
        """
        if self.fixed_context is not None:
            return self.fixed_context
        prompt = self.before + self.prompt * self.spread.product
        return prompt + self.output * self.spread.output_square / 2

    @property
    def contexts(self) -> list[Real]:
        """Contexts that a step sees, each for an equal part of the time; their mean is `context`.

        For what bends with the context, as a window's min(s, w) [1].
        """
        if self.fixed_context is not None:
            return [self.fixed_context]
        if self.spread.lengths.contexts:
            return [part * self.context for part in self.spread.lengths.contexts]
        middles = (np.arange(LENGTH_PARTS) + 0.5) / LENGTH_PARTS
        begun = self.before + self.prompt
        return [begun + float(middle) * self.output for middle in middles]

    @property
    def finals(self) -> list[Real]:
        """Lengths at their ends of the sequences that a step sees; their mean is `final_seen`."""
        return [part * self.final_seen for part in self.spread.lengths.finals]

    @property
    def prompts(self) -> list[Real]:
        """Prompts, each for an equal part of the requests; their mean is `prompt` [1]."""
        return [part * self.prompt for part in self.spread.lengths.prompts]

    @property
    def prompt_parts(self) -> list[Real]:
        """Prompts, each part with as many tokens, so that long ones are told apart [1]."""
        return [part * self.prompt for part in self.spread.lengths.prompt_parts]

    @property
    def outputs(self) -> list[Real]:
        """Generated tokens, each for an equal part of the requests; their mean is `output` [1]."""
        return [part * self.output for part in self.spread.lengths.outputs]

    @property
    def final(self) -> Real:
        """Tokens of a sequence when it ends, s + n, and those before its prompt [1]."""
        return self.before + self.prompt + self.output

    @property
    def final_seen(self) -> Real:
        """Tokens at the end of a sequence that a decode step sees, E[(s + n) n] / E[n] [1]."""
        prompt = self.before + self.prompt * self.spread.product
        return prompt + self.output * self.spread.output_square

    @property
    def longest(self) -> Real:
        """Tokens the longest sequence holds when it ends [1]."""
        return self.before + (self.prompt + self.output) * self.spread.longest

    def at_context(self, context: Real) -> Workload:
        """This work with its decode step at one context [1]."""
        return replace(self, fixed_context=context)


# --- the queue of requests: what an iteration carries, and how much memory holds ------------------

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

    def on_layer_types(self, layer_types: Mapping[str, LayerLoad], skew: Skew) -> Load:
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
class LayerLoad:
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
        before: tokens that the cache holds before each prompt [1].
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
    by_type: Mapping[str, LayerLoad] = field(default_factory=dict)
    in_parts: bool = False
    before: Real = 0.0

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
        squares = prompt * (length + 2 * self.before)
        load = Load(sequences, tokens, hottest, prompt, squares)
        return load.on_layer_types(self.by_type, self.skew)

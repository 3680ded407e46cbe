"""Two sub-batches and prompt chunks for one iteration of L3: the problem, its times, its bounds.

Phase s lets the GPU compute sub-batch s, prompts included, while the banks attend for the other
one: D_s = max(T_GPU,s, T_PIM,1-s). An empty sub-batch costs the GPU nothing, so one batch is a
split too. Among the splits that decode fastest (T* = D_0 + D_1 without prompts), the one that
carries the most prompt tokens within (1 + epsilon) T* is best.

Symbols: z_i request i is in sub-batch 1, y_s sub-batch s is used, D_s seconds of phase s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import overlap
from nearkv.costmodel.algebra.span import Numbers, Span
from nearkv.costmodel.mechanisms.serving.parallel import data_parallel, in_use
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.queue import Load
from nearkv.costmodel.systems.l3 import gpu_side, pim_side, prompt_cache
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.subbatch.planes import Planes, planes

CHUNK_TOKENS = 16
"""Granularity of a chunk (L3 sec. 5.3) [tokens]."""
_ROUNDING = 1e-12
"""Taken off a bound, relative, so that rounding does not lift it above the optimum."""

Chunks = tuple[tuple[int, float], ...]
"""(prompt, tokens) of every prompt that rides in a sub-batch."""
Split = NDArray[np.bool_]
"""True where a request is in sub-batch 1."""


@dataclass(frozen=True)
class Costs:
    """Seconds of a phase on one replica.

    Attributes:
        gpu: planes over (sequences, prompt tokens, squares) of the sub-batch the GPU computes.
        pim: planes over (sequences, hottest tokens, prompt tokens): the first two of the sub-batch
            that is attended to, the prompts of the other.
    """

    gpu: Planes
    pim: Planes


@dataclass(frozen=True)
class SubbatchProblem:
    """What one iteration must serve.

    Attributes:
        contexts: tokens of each decoding request [1].
        rankset_of: the rankset that holds each request's KV; -1 where it is spread over all.
        ranksets: how many [1].
        prompts: tokens of each waiting prompt, in order [1].
        costs: of a phase.
    """

    contexts: Numbers
    rankset_of: NDArray[np.int64]
    ranksets: int
    prompts: Numbers
    costs: Costs

    @property
    def loads(self) -> Numbers:
        """Tokens each request puts on each rankset, as if spread evenly [1].

        Shape (requests, ranksets).
        """
        contexts = self.contexts[:, np.newaxis]
        if np.all(self.rankset_of < 0):
            return contexts
        on_rankset = self.rankset_of[:, np.newaxis] == np.arange(self.ranksets)
        load: Numbers = self.ranksets * contexts * on_rankset
        return load

    def __post_init__(self) -> None:
        if len(self.contexts) == 0:
            raise InputError("no requests to split; give at least one length")
        if np.any(self.contexts < 1) or np.any(self.prompts < 1):
            raise InputError(
                "a request has less than one token; lengths are whole numbers from 1"
            )


def tokens_of(chunks: Chunks) -> float:
    """Prompt tokens of one sub-batch [1]."""
    return sum(tokens for _, tokens in chunks)


def costs_of(hw: Machine, llm: LLM) -> Costs:
    """Seconds of a phase on one replica of a machine; every replica does the same at once."""
    hw = in_use(hw, llm)
    replicas = float(np.ravel(data_parallel(hw, llm))[0])

    def load(
        n: object, hottest: object = 0.0, prompt: object = 0.0, squares: object = 0.0
    ) -> Load:
        def on_all(amount: object) -> Numbers:
            return replicas * np.asarray(amount, float)

        held = on_all(hottest)
        return Load(on_all(n), held, held, on_all(prompt), on_all(squares))

    def gpu_phase(n: object, prompt: object, squares: object) -> Span:
        work = load(n, 0.0, prompt, squares)
        return llm.layers * gpu_side(hw, llm, work)

    def pim_phase(n: object, hottest: object, prompt: object) -> Span:
        attention = pim_side(hw, llm, load(n, hottest, prompt), 1.0)
        cache = prompt_cache(hw, llm, load(0.0, 0.0, prompt), 1.0)
        return llm.layers * overlap(pim=attention, cache=cache)

    return Costs(planes(gpu_phase, 3), planes(pim_phase, 3))


def gpu_seconds(costs: Costs, sequences: float, chunks: Chunks) -> float:
    """T_GPU of a sub-batch; nothing to compute takes no time [s]."""
    tokens = tokens_of(chunks)
    if not sequences and not tokens:
        return 0.0
    squares = sum(size**2 for _, size in chunks)
    seconds = costs.gpu @ [1.0, sequences, tokens, squares]
    return float(np.max(seconds))


def pim_seconds(problem: SubbatchProblem, mine: Split, prompt_tokens: float) -> float:
    """T_PIM of a sub-batch while the GPU sends the other's prompts [s].

    The fullest rankset decides.
    """
    on_ranksets = problem.loads[mine].sum(axis=0)
    hottest = float(np.max(on_ranksets, initial=0.0))
    sequences = float(mine.sum())
    seconds = problem.costs.pim @ [1.0, sequences, hottest, prompt_tokens]
    return float(np.max(seconds))


def phases(
    problem: SubbatchProblem, in_one: Split, chunks: tuple[Chunks, Chunks] = ((), ())
) -> tuple[float, float]:
    """D_0 and D_1 of a split [s]."""
    first = _phase(problem, ~in_one, chunks[0], in_one)
    second = _phase(problem, in_one, chunks[1], ~in_one)
    return first, second


def _phase(
    problem: SubbatchProblem, computed: Split, chunks: Chunks, attended: Split
) -> float:
    """Seconds of the phase that computes one sub-batch and attends for the other [s]."""
    tokens = tokens_of(chunks)
    gpu = gpu_seconds(problem.costs, float(computed.sum()), chunks)
    if not attended.any() and not tokens:
        return gpu
    return max(gpu, pim_seconds(problem, attended, tokens))


def least_decode(problem: SubbatchProblem) -> float:
    """Lower bound on the decode time of any split [s].

    The GPU reads the weights and computes all once, each rankset attends to all it holds. Every
    plane of T_GPU,0 + T_GPU,1 is at least its value for all requests at once, as one of y_s is 1;
    so is every plane of T_PIM for the rankset that holds most.
    """
    n = float(len(problem.contexts))
    hottest = float(np.max(problem.loads.sum(axis=0)))
    gpu, pim = problem.costs.gpu, problem.costs.pim
    reading = np.minimum(gpu[:, 0], 2 * gpu[:, 0])
    computing = np.max(reading + gpu[:, 1] * n)
    fixed = np.minimum(pim[:, 0], 0.0) * 2
    attending = np.max(fixed + pim[:, 1] * n + pim[:, 2] * hottest)
    return float(max(computing, attending, 0.0)) * (1 - _ROUNDING)

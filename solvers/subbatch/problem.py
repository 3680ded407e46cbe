"""Two sub-batches and prompt chunks for one iteration of L3: the problem and its times.

Phase s lets the GPU compute sub-batch s, prompts included, while the banks attend for the other
one: D_s = max(T_GPU,s, T_PIM,1-s). An empty sub-batch costs the GPU nothing, so one batch is a
split too. Among the splits that decode fastest (T* = D_0 + D_1 without prompts), the one that
carries the most prompt tokens within (1 + epsilon) T* is best.

Both times are written as the largest of a few planes: sums and maxima of affine functions are one.
Evaluating a split then costs a dot product, and an integer program can hold it.

Symbols: z_i request i is in sub-batch 1, y_s sub-batch s is used, D_s seconds of phase s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import (
    Integers,
    Leaf,
    Numbers,
    Overlap,
    Real,
    Repeat,
    Span,
    overlap,
)
from nearkv.costmodel.mechanisms.serving.parallel import data_parallel, in_use
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Load
from nearkv.costmodel.systems.l3 import gpu_side, pim_side, prompt_cache
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

Planes = NDArray[np.float64]
"""One row a plane: constant, slope along each variable [s]; seconds = max(planes @ [1, x])."""

_BASE = 4096.0
"""Tokens at which slopes are measured: far enough from zero, at which no weights are read."""
_NEAR_LENGTHS = 2.0
"""Tokens at which they are checked: near zero, a mixture of experts does not use all experts."""
_NOISE = 1e-11
"""Terms below this share of the seconds are rounding of the difference that measures them."""


def planes(make: Callable[..., Span], variables: int) -> Planes:
    """Write a span as the largest of planes over non-negative variables.

    Args:
        make: variables, each an array -> the span; every amount must be affine in them.
        variables: how many [1].

    Returns:
        Planes without those that are below another one everywhere.

    Raises:
        InputError: an amount is not affine, as in a mixture of experts.
    """
    base = np.full(variables, _BASE)
    near = np.full(variables, _NEAR_LENGTHS)
    between = base * np.linspace(1.5, 3.0, variables)
    probes = np.vstack([between, near])
    steps = base + _BASE * np.eye(variables)
    points = np.vstack([base, steps, probes])
    return _planes(make(*points.T), probes)


def _planes(span: Span, probes: Numbers) -> Planes:
    if isinstance(span, Leaf):
        return _plane(span.seconds, probes)
    if isinstance(span, Repeat):
        times = float(np.ravel(span.times)[0])
        if not times:  # as layers of a type that another model of the study has
            return np.zeros((1, probes.shape[1] + 1))
        return _leading(times * _planes(span.span, probes))
    parts = [_planes(part, probes) for part in span.parts.values()]
    if isinstance(span, Overlap):
        for name in span.shared:
            queue = span.busy_of(name)
            parts.append(_plane(queue, probes))
        return _leading(np.vstack(parts))
    width = probes.shape[1] + 1
    total = np.zeros((1, width))
    for rows in parts:
        sums = total[:, np.newaxis] + rows[np.newaxis]
        # part by part, as the sums of all planes would be too many
        total = _leading(sums.reshape(-1, width))
    return total


def _plane(seconds: Real, probes: Numbers) -> Planes:
    """The plane through the seconds at the base and its steps, checked at the probes."""
    variables = probes.shape[1]
    points = 1 + variables + len(probes)
    values = np.ravel(np.asarray(seconds, float))
    values = np.broadcast_to(values, points)
    at_base = values[0]
    at_steps = values[1 : variables + 1]
    at_probes = values[variables + 1 :]
    slopes = (at_steps - at_base) / _BASE
    constant = at_base - _BASE * slopes.sum()
    row = np.append(constant, slopes)
    size = np.abs(row) * np.append(1.0, probes[0])
    row[size < _NOISE * at_base] = 0.0
    predicted = row[0] + probes @ row[1:]
    if not np.allclose(predicted, at_probes, rtol=1e-8, atol=0.0):
        raise InputError(
            "this model's iterations are not affine in its load (a mixture of experts?); "
            "only the fluid model takes it"
        )
    return row[np.newaxis]


def _leading(rows: Planes) -> Planes:
    """Leave out every plane that another one exceeds everywhere."""
    rows = np.unique(rows, axis=0)
    exceeds = rows[np.newaxis] >= rows[:, np.newaxis]
    above = np.all(exceeds, axis=2)
    alone = above.sum(axis=1) == 1
    kept: Planes = rows[alone]
    return kept


# --- the problem --------------------------------------------------------------------------------


CHUNK_TOKENS = 16
"""Granularity of a chunk (L3 sec. 5.3) [tokens]."""

ChunkPlan = tuple[tuple[int, float], ...]
"""(prompt, tokens) of every prompt that rides in a sub-batch."""
BatchSplit = NDArray[np.bool_]
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
    """Demand on one iteration.

    Attributes:
        contexts: tokens of each decoding request [1].
        rankset_of: the rankset that holds each request's KV; -1 where it is spread over all.
        ranksets: how many [1].
        prompts: tokens of each waiting prompt, in order [1].
        costs: of a phase.
    """

    contexts: Numbers
    rankset_of: Integers
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


def tokens_of(chunks: ChunkPlan) -> float:
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


def gpu_seconds(costs: Costs, sequences: float, chunks: ChunkPlan) -> float:
    """T_GPU of a sub-batch; nothing to compute takes no time [s]."""
    tokens = tokens_of(chunks)
    if not sequences and not tokens:
        return 0.0
    squares = sum(size**2 for _, size in chunks)
    seconds = costs.gpu @ [1.0, sequences, tokens, squares]
    return float(np.max(seconds))


def pim_seconds(problem: SubbatchProblem, mine: BatchSplit, prompt_tokens: float) -> float:
    """T_PIM of a sub-batch while the GPU sends the other's prompts [s].

    The fullest rankset decides.
    """
    on_ranksets = problem.loads[mine].sum(axis=0)
    hottest = float(np.max(on_ranksets, initial=0.0))
    sequences = float(mine.sum())
    seconds = problem.costs.pim @ [1.0, sequences, hottest, prompt_tokens]
    return float(np.max(seconds))


def phases(
    problem: SubbatchProblem,
    in_one: BatchSplit,
    chunks: tuple[ChunkPlan, ChunkPlan] = ((), ()),
) -> tuple[float, float]:
    """D_0 and D_1 of a split [s]."""
    first = _phase(problem, ~in_one, chunks[0], in_one)
    second = _phase(problem, in_one, chunks[1], ~in_one)
    return first, second


def _phase(
    problem: SubbatchProblem, computed: BatchSplit, chunks: ChunkPlan, attended: BatchSplit
) -> float:
    """Seconds of the phase that computes one sub-batch and attends for the other [s]."""
    tokens = tokens_of(chunks)
    gpu = gpu_seconds(problem.costs, float(computed.sum()), chunks)
    if not attended.any() and not tokens:
        return gpu
    return max(gpu, pim_seconds(problem, attended, tokens))

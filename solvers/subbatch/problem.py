"""Two sub-batches and prompt chunks for one iteration of L3: the problem, its times and its bounds.

Phase s lets the GPU compute sub-batch s, prompts included, while the banks attend for the other one:
D_s = max(T_GPU,s, T_PIM,1-s). An empty sub-batch costs the GPU nothing, so one batch is a split too.
Among the splits that decode fastest (T* = D_0 + D_1 without prompts), the one that carries the most
prompt tokens within (1 + epsilon) T* is best.

Symbols: z_i request i is in sub-batch 1, y_s sub-batch s is used, D_s seconds of phase s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.compose import overlap
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.serving import data_parallel, in_use
from nearkv.costmodel.queue import Load
from nearkv.costmodel.systems.l3 import gpu_side, pim_side, prompt_cache
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.subbatch.planes import Planes, planes

CHUNK_TOKENS = 16
"""Granularity of a chunk (L3 sec. 5.3) [tokens]."""
_ROUNDING = 1e-12

Chunks = tuple[tuple[int, float], ...]
"""(prompt, tokens) of every prompt that rides in a sub-batch."""


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
        homes: rankset each lives on; -1 where its KV is spread over all.
        ranksets: how many [1].
        prompts: tokens of each waiting prompt, in order [1].
        costs: of a phase.
    """

    contexts: NDArray[np.float64]
    homes: NDArray[np.int64]
    ranksets: int
    prompts: NDArray[np.float64]
    costs: Costs

    @property
    def loads(self) -> NDArray[np.float64]:
        """Tokens each request puts on each rankset, as if all held as much: (requests, ranksets) [1]."""
        if np.all(self.homes < 0):
            return self.contexts[:, np.newaxis]
        lives = self.homes[:, np.newaxis] == np.arange(self.ranksets)
        load: NDArray[np.float64] = self.ranksets * self.contexts[:, np.newaxis] * lives
        return load

    def __post_init__(self) -> None:
        if len(self.contexts) == 0:
            raise InputError("no requests to split; give at least one length")
        if np.any(self.contexts < 1) or np.any(self.prompts < 1):
            raise InputError("a request has less than one token; lengths are whole numbers from 1")


@dataclass(frozen=True)
class Schedule:
    """Sub-batches of one iteration.

    Attributes:
        in_one: True where a request is in sub-batch 1.
        chunks: prompts that ride in sub-batch 0 and 1.
        phases: D_0 and D_1 with the chunks [s].
        decode: the fastest D_0 + D_1 without chunks that was found, T* [s].
        split_decode: D_0 + D_1 of this split without chunks; within the slack of `decode` [s].
        bound: no split decodes in less [s].
        most_tokens: no plan within (1 + epsilon) of `decode` carries more prompt tokens [1].
        proof: `optimal`, `time limit`, `not proved`, or `rule` where nothing is claimed.
    """

    in_one: NDArray[np.bool_]
    chunks: tuple[Chunks, Chunks]
    phases: tuple[float, float]
    decode: float
    split_decode: float
    bound: float = 0.0
    most_tokens: float = np.inf
    proof: str = "rule"

    @property
    def seconds(self) -> float:
        """The whole iteration [s]."""
        return sum(self.phases)

    @property
    def gap(self) -> float:
        """Relative distance of `decode` from its bound [1]."""
        return max(self.decode - self.bound, 0.0) / self.decode

    @property
    def prompt_tokens(self) -> float:
        """Prompt tokens carried [1]."""
        return sum(tokens for chunks in self.chunks for _, tokens in chunks)


def costs_of(hw: Machine, llm: LLM) -> Costs:
    """Seconds of a phase on one replica of a machine; every replica does the same at once."""
    hw = in_use(hw, llm)
    dp = float(np.asarray(data_parallel(hw, llm)).ravel()[0])

    def load(n: object, hottest: object = 0.0, prompt: object = 0.0, squares: object = 0.0) -> Load:
        n, hottest, prompt, squares = (
            dp * np.asarray(x, float) for x in (n, hottest, prompt, squares)
        )
        return Load(n, hottest, hottest, prompt, squares)

    gpu = planes(lambda n, p, q: llm.layers * gpu_side(hw, llm, load(n, 0.0, p, q)), 3)
    pim = planes(
        lambda n, h, p: (
            llm.layers
            * overlap(
                pim=pim_side(hw, llm, load(n, h, p), 1.0),
                cache=prompt_cache(hw, llm, load(0.0, 0.0, p), 1.0),
            )
        ),
        3,
    )
    return Costs(gpu, pim)


def gpu_seconds(costs: Costs, sequences: float, chunks: Chunks) -> float:
    """T_GPU of a sub-batch; nothing to compute takes no time [s]."""
    tokens = sum(size for _, size in chunks)
    if not sequences and not tokens:
        return 0.0
    return float(np.max(costs.gpu @ [1.0, sequences, tokens, sum(size**2 for _, size in chunks)]))


def pim_seconds(problem: SubbatchProblem, mine: NDArray[np.bool_], prompt_tokens: float) -> float:
    """T_PIM of a sub-batch while the GPU sends the other's prompts; the fullest rankset decides [s]."""
    hottest = float(np.max(problem.loads[mine].sum(axis=0), initial=0.0))
    return float(np.max(problem.costs.pim @ [1.0, float(mine.sum()), hottest, prompt_tokens]))


def phases(
    problem: SubbatchProblem, in_one: NDArray[np.bool_], chunks: tuple[Chunks, Chunks] = ((), ())
) -> tuple[float, float]:
    """D_0 and D_1 of a split [s]."""
    of = (~in_one, in_one)
    tokens = [sum(size for _, size in part) for part in chunks]
    first, second = (
        max(
            gpu_seconds(problem.costs, float(of[s].sum()), chunks[s]),
            pim_seconds(problem, of[1 - s], tokens[s]) if of[1 - s].any() or tokens[s] else 0.0,
        )
        for s in (0, 1)
    )
    return first, second


def least_decode(problem: SubbatchProblem) -> float:
    """What no split undercuts: the GPU reads the weights and computes all once, each rankset attends to all it holds.

    Every plane of T_GPU,0 + T_GPU,1 is at least its value for all requests at once, as one of y_s is 1;
    so is every plane of T_PIM for the rankset that holds most.
    """
    n, hottest = float(len(problem.contexts)), float(np.max(problem.loads.sum(axis=0)))
    gpu, pim = problem.costs.gpu, problem.costs.pim
    computing = np.max(np.minimum(gpu[:, 0], 2 * gpu[:, 0]) + gpu[:, 1] * n)
    attending = np.max(np.minimum(pim[:, 0], 0.0) * 2 + pim[:, 1] * n + pim[:, 2] * hottest)
    return float(max(computing, attending, 0.0)) * (1 - _ROUNDING)


def even_halves(contexts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Step 2: longest first, each to the sub-batch with fewer tokens. True: sub-batch 1."""
    in_one = np.zeros(len(contexts), bool)
    sums = [0.0, 0.0]
    for i in np.argsort(-contexts, kind="stable"):
        side = int(sums[1] < sums[0])
        in_one[i] = bool(side)
        sums[side] += contexts[i]
    return in_one


def exhaustive(problem: SubbatchProblem) -> tuple[NDArray[np.bool_], float]:
    """The fastest split by trying all of them; for a few requests.

    Returns:
        the split, its D_0 + D_1 without prompts [s].

    Raises:
        InputError: more than 16 requests.
    """
    n = len(problem.contexts)
    if n > 16:
        raise InputError(
            f"{n} requests have {2 ** (n - 1):,} splits, too many to try; use the MILP"
        )
    splits = (np.arange(2 ** (n - 1))[:, np.newaxis] >> np.arange(n)) % 2 == 1
    seconds = [sum(phases(problem, split)) for split in splits]
    best = int(np.argmin(seconds))
    return splits[best], seconds[best]


def lengths(values: Sequence[float]) -> NDArray[np.float64]:
    """Request lengths as the problem holds them."""
    return np.array(values, float)

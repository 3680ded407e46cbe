"""The block of FlexGen's placement: which GPU batch and how many of them, the LP deciding the shares.

Divided by the sequences of the block, the LP is one in the shares of cache and activations, in the
weights' shares a sequence, and in y = 1 / bls. All of its entries are non-negative, so over a box of
blocks the smallest GPU batch, the largest number of batches and the fastest CPU of the box give an
LP that no block in it undercuts: a proven bound. Over a box of one block it is FlexGen's LP itself.

Symbols: gbs GPU batch, nb number of batches, bls = gbs nb, y = smallest bls of the box / bls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import isqrt
from typing import NamedTuple

import numpy as np

from costmodel.llm import LLM
from costmodel.placement import DECODE, MEMORY, PREFILL, SHARES, TIER, Block, capacity, cpu_attention_rate
from costmodel.workload import Workload
from hardware.errors import InputError
from hardware.machine import Machine
from solvers.linear import Optimum, Program, Simplex, Vector

GAP = 1e-9
"""Relative differences below this are ties."""


class Box(NamedTuple):
    """All blocks with a GPU batch in [gbs_low, gbs_high] and a number of batches in [nb_low, nb_high]."""

    gbs_low: int
    gbs_high: int
    nb_low: int
    nb_high: int

    @property
    def single(self) -> bool:
        """Whether it holds one block only."""
        return self.gbs_low == self.gbs_high and self.nb_low == self.nb_high

    @property
    def sequences(self) -> int:
        """Sequences of its smallest block [1]."""
        return self.gbs_low * self.nb_low

    def halves(self) -> tuple[Box, Box]:
        """Cut the side that spans more octaves, at its geometric middle."""
        if self.gbs_high * self.nb_low >= self.nb_high * self.gbs_low and self.gbs_low < self.gbs_high:
            cut = min(isqrt(self.gbs_low * self.gbs_high), self.gbs_high - 1)
            return self._replace(gbs_high=cut), self._replace(gbs_low=cut + 1)
        cut = min(isqrt(self.nb_low * self.nb_high), self.nb_high - 1)
        return self._replace(nb_high=cut), self._replace(nb_low=cut + 1)

    def block(self, sequences: float) -> Box:
        """The block of its smallest GPU batch with about so many sequences."""
        nb = min(max(int(sequences / self.gbs_low), self.nb_low), self.nb_high)
        return Box(self.gbs_low, self.gbs_low, nb, nb)


def one(gpu_batch: int, num_batches: int) -> Box:
    """The box of a single block."""
    return Box(gpu_batch, gpu_batch, num_batches, num_batches)


@dataclass(frozen=True)
class Problem:
    """What is to be placed where.

    Attributes:
        hw: roles gpu, host, disk, offload.
        llm, work: what runs; the batch of the work is not used.
        fixed: shares given instead of solved for [1].
    """

    hw: Machine
    llm: LLM
    work: Workload
    fixed: Mapping[str, float]

    @property
    def usable(self) -> Vector:
        """Bytes each row of `MEMORY` may use [B]."""
        there = capacity(self.hw)
        return np.array([there[tier] for tier in TIER], float)

    @property
    def unit(self) -> float:
        """Scale of the memory rows, all usable bytes [B]."""
        return max(float(sum(capacity(self.hw).values())), 1.0)

    @property
    def most(self) -> int:
        """Sequences whose KV cache fills all memories: no block has more [1]."""
        return max(int(self.unit / (self.llm.layers * self.llm.kv_bytes(1, self.work.final))), 1)

    def program(self, box: Box) -> Program:
        """The LP of a box: seconds a sequence, at least; exactly those where it is a single block.

        Raises:
            InputError: a rate is zero.
        """
        smallest = float(box.sequences)
        fastest = max(float(cpu_attention_rate(self.hw, self.llm, gbs)) for gbs in (box.gbs_low, box.gbs_high))
        a_sequence = Block(self.hw, self.llm, self.work, 1.0, 1.0 / box.nb_high, fastest)
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = (a_sequence.prefill(), a_sequence.decode())
        if not all(np.all(np.isfinite(rows)) for rows in seconds):
            raise InputError(f"platform {self.hw.platform!r}: a rate in 'offload' is zero; all must be above zero")
        scale = np.ones(len(SHARES))
        scale[:3] /= smallest  # weights are shared by the block: their columns are w y
        held = a_sequence.memory() * smallest / self.unit
        y = held[:, 10] * box.gbs_low / smallest - self.usable / self.unit
        memory = np.column_stack([held[:, :9] * scale, y])
        return self._assemble([rows[:, :10] * np.append(scale, 1.0) for rows in seconds], memory, box)

    def _assemble(self, seconds: list[Vector], memory: Vector, box: Box) -> Program:
        fixed = {"hd": 0.0, **self.fixed}
        columns = (*SHARES, "y", "T_pre", "T_gen")
        times, held = len(PREFILL) + len(DECODE), len(MEMORY)
        matrix = np.zeros((times + held + 3 + len(fixed), len(columns)))
        limit = np.zeros(len(matrix))
        units = np.array([np.max(rows[:, 9]) for rows in seconds])  # compute alone: no block is faster
        scaled = np.concatenate([rows / unit for rows, unit in zip(seconds, units, strict=True)])
        matrix[:times, :9], limit[:times] = scaled[:, :9], -scaled[:, 9]
        matrix[: len(PREFILL), 10] = matrix[len(PREFILL) : times, 11] = -1
        matrix[times : times + held, :10] = memory
        for row, first in enumerate((0, 3, 6), times + held):
            matrix[row, first : first + 3] = 1
        matrix[times + held, 9], limit[times + held + 1 : times + held + 3] = -1, 1
        for row, (share, value) in enumerate(fixed.items(), times + held + 3):
            matrix[row, columns.index(share)] = 1
            matrix[row, 9], limit[row] = (-value, 0) if share.startswith("w") else (0, value)
        steps = np.array([1, self.work.output - 1])
        low, high = np.zeros(len(columns)), np.ones(len(columns))
        low[9], high[10:] = box.sequences / (box.gbs_high * box.nb_high), np.sum(scaled)
        return Program(
            cost=np.concatenate([np.zeros(10), self.llm.layers * steps * units]),
            matrix=matrix,
            limit=limit,
            equal=np.arange(len(matrix)) >= times + held,
            low=low,
            high=high,
            rows=(*PREFILL, *DECODE, *MEMORY, "w = 1", "c = 1", "h = 1", *(f"{share} fixed" for share in fixed)),
            columns=columns,
        )


@dataclass(frozen=True)
class Found:
    """The best block of a search.

    Attributes:
        block: it.
        value: what it takes [s/sequence].
        bound: no block of the search's space takes less [s/sequence].
    """

    block: Box
    value: float
    bound: float


def full(problem: Problem, solve: Simplex, space: Box) -> Found | None:
    """The best of all blocks in a box, by branch and bound.

    Returns:
        It, with a bound that meets its value up to `GAP`; None where no block fits.
    """
    smallest = one(space.gbs_low, space.nb_low)
    first = solve(problem.program(smallest))
    if first is None:
        return None
    best, value = smallest, first.value
    order, open_ = count(), [(0.0, 0, space)]
    closed = np.inf
    next(order)
    while open_ and open_[0][0] < value * (1 - GAP):
        for part in _parts(heappop(open_)[2]):
            relaxed = solve(problem.program(part)) if part.sequences <= problem.most else None
            if relaxed is None:
                continue
            tried = part.block(part.sequences / relaxed.x[9])
            exact = relaxed if tried == part else solve(problem.program(tried))
            if exact is not None and exact.value < value * (1 - GAP):
                best, value = tried, exact.value
            if part.single:
                closed = min(closed, relaxed.bound)
            else:
                heappush(open_, (relaxed.bound, next(order), part))
    left = open_[0][0] if open_ else np.inf
    return Found(best, value, min(value, closed, left))


def _parts(box: Box) -> tuple[Box, ...]:
    return (box,) if box.single else box.halves()


def paper(problem: Problem, solve: Simplex, space: Box) -> Found | None:
    """The best of the blocks FlexGen's own search walks.

    For each GPU batch 1, 2, 3, 4, 8, 16, ... it bisects for the most batches that fit, then tries
    1, 2, 3, ... up to there, stops at the first drop and takes the last before it.

    Returns:
        It; its bound is its own LP's, nothing is proven of other blocks. None where no block fits.
    """
    found: Found | None = None
    for gbs in _coarse(space):
        ceiling = _most_batches(problem, solve, gbs, space)
        last: Found | None = None
        for nb in range(space.nb_low, ceiling + 1):
            optimum = solve(problem.program(one(gbs, nb)))
            if optimum is None or (last and optimum.value > last.value * (1 + GAP)):
                break
            last = Found(one(gbs, nb), optimum.value, optimum.bound)
        if last is None:
            break
        if found is None or last.value < found.value * (1 - GAP):
            found = last
    return found


def _coarse(space: Box) -> Iterator[int]:
    gbs = space.gbs_low
    while gbs <= space.gbs_high:
        yield gbs
        gbs += 1 if gbs < 4 else gbs


def _most_batches(problem: Problem, solve: Simplex, gbs: int, space: Box) -> int:
    """Largest number of batches that fits: doubling, then bisection; all that fits below it fits too."""
    if space.nb_low == space.nb_high:
        return space.nb_high

    def fit(nb: int) -> Optimum | None:
        return solve(problem.program(one(gbs, nb)))

    above = 1
    while fit(above) is not None:
        above *= 2
    low, high = max(above // 2, 1), above
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fit(middle) is not None else (low, middle)
    return low - 1

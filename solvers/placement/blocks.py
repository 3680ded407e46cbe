"""The block of FlexGen's placement: which GPU batch and how many of them, the LP deciding the shares.

Divided by the sequences of the block, the LP is one in the shares of cache and activations, in the
weights' shares a sequence, and in y = 1 / bls. All of its entries are non-negative, so over a box of
blocks the smallest GPU batch, the largest number of batches and the fastest CPU of the box give an
LP that no block in it undercuts: a proven bound. Over a box of one block it is FlexGen's LP itself.

Symbols: gbs GPU batch, nb number of batches, bls = gbs nb, y = smallest bls of the box / bls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt
from typing import NamedTuple

import numpy as np

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.placement import (
    COLUMNS,
    DECODE,
    MEMORY,
    PREFILL,
    SHARES,
    TIER,
    BlockSchedule,
    capacity,
    cpu_attention_rate,
)
from nearkv.costmodel.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.linear import Program, Simplex, Vector

_COLUMNS = (*SHARES, "y", "T_pre", "T_gen")
_Y = len(SHARES)
_BLS, _GBS = COLUMNS.index("bls"), COLUMNS.index("gbs")


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
        if (
            self.gbs_high * self.nb_low >= self.nb_high * self.gbs_low
            and self.gbs_low < self.gbs_high
        ):
            cut = min(isqrt(self.gbs_low * self.gbs_high), self.gbs_high - 1)
            return self._replace(gbs_high=cut), self._replace(gbs_low=cut + 1)
        cut = min(isqrt(self.nb_low * self.nb_high), self.nb_high - 1)
        return self._replace(nb_high=cut), self._replace(nb_low=cut + 1)

    def block(self, sequences: float) -> Box:
        """The block of its smallest GPU batch with about so many sequences."""
        nb = int(min(max(sequences / self.gbs_low, self.nb_low), self.nb_high))
        return Box(self.gbs_low, self.gbs_low, nb, nb)


def one(gpu_batch: int, num_batches: int) -> Box:
    """The box of a single block."""
    return Box(gpu_batch, gpu_batch, num_batches, num_batches)


@dataclass(frozen=True)
class BlockProblem:
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

    @cached_property
    def usable(self) -> Vector:
        """Bytes each row of `MEMORY` may use [B]."""
        there = capacity(self.hw)
        return np.array([there[tier] for tier in TIER], float)

    @cached_property
    def unit(self) -> Vector:
        """Scale of each memory row, the usable bytes of its own tier [B]."""
        return np.maximum(self.usable, 1.0)

    @cached_property
    def most(self) -> int:
        """Sequences whose KV cache fills all memories: no block has more [1]."""
        return max(
            int(
                sum(capacity(self.hw).values())
                / (self.llm.layers * self.llm.kv_bytes(1, self.work.final))
            ),
            1,
        )

    @cached_property
    def _times(self) -> tuple[Vector, Vector, Vector]:
        """Rows of time of one sequence, scaled; what of them goes with 1 / cpu'; the scale of T_pre and T_gen [s].

        Raises:
            InputError: a rate is zero.
        """
        still, slow = (
            BlockSchedule(self.hw, self.llm, self.work, 1.0, 1.0, rate) for rate in (np.inf, 1.0)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = (still.prefill(), still.decode())
            attended = slow.decode() - seconds[1]
        if not all(np.all(np.isfinite(rows)) for rows in seconds):
            raise InputError(
                f"platform {self.hw.platform!r}: a rate in 'offload' is zero; all must be above zero"
            )
        units = np.array(
            [np.max(rows[:, _BLS]) for rows in seconds]
        )  # compute alone: no block is faster
        scaled = np.concatenate([rows / unit for rows, unit in zip(seconds, units, strict=True)])
        return scaled, np.concatenate([np.zeros_like(seconds[0]), attended / units[1]]), units

    @cached_property
    def _bytes(self) -> tuple[Vector, Vector]:
        """Rows of memory of one sequence, scaled; what of them goes with 1 / nb."""
        still, each = (
            BlockSchedule(self.hw, self.llm, self.work, 1.0, gbs, 1.0).memory()
            for gbs in (0.0, 1.0)
        )
        return still / self.unit[:, np.newaxis], (each - still) / self.unit[:, np.newaxis]

    @cached_property
    def _frame(self) -> Program:
        """All of the LP that is the same for every box."""
        fixed = {"hd": 0.0, **self.fixed}
        times = len(PREFILL) + len(DECODE)
        sums = times + len(MEMORY)
        matrix = np.zeros((sums + 3 + len(fixed), len(_COLUMNS)))
        limit = np.zeros(len(matrix))
        matrix[: len(PREFILL), _COLUMNS.index("T_pre")] = -1
        matrix[len(PREFILL) : times, _COLUMNS.index("T_gen")] = -1
        for row, first in enumerate((0, 3, 6), sums):
            matrix[row, first : first + 3] = 1
        matrix[sums, _Y], limit[sums + 1 : sums + 3] = -1, 1
        for row, (share, value) in enumerate(fixed.items(), sums + 3):
            matrix[row, _COLUMNS.index(share)] = 1
            matrix[row, _Y], limit[row] = (-value, 0) if share.startswith("w") else (0, value)
        steps = self.llm.layers * np.array([1, self.work.output - 1])
        return Program(
            cost=np.concatenate([np.zeros(_Y + 1), steps * self._times[2]]),
            matrix=matrix,
            limit=limit,
            equal=np.arange(len(matrix)) >= sums,
            low=np.zeros(len(_COLUMNS)),
            high=np.ones(len(_COLUMNS)),
            rows=(
                *PREFILL,
                *DECODE,
                *MEMORY,
                "w = 1",
                "c = 1",
                "h = 1",
                *(f"{share} fixed" for share in fixed),
            ),
            columns=_COLUMNS,
        )

    def program(self, box: Box) -> Program:
        """The LP of a box: seconds a sequence, at least; exactly those where it is a single block.

        Raises:
            InputError: a rate is zero.
        """
        smallest, times, frame = float(box.sequences), len(PREFILL) + len(DECODE), self._frame
        fastest = max(
            float(cpu_attention_rate(self.hw, self.llm, gbs)) for gbs in {box.gbs_low, box.gbs_high}
        )
        weights = np.ones(_Y)
        weights[:3] /= smallest  # the block shares the weights: their columns are w y
        seconds = self._times[0] + self._times[1] / fastest
        capacity_check = (self._bytes[0] + self._bytes[1] / box.nb_high) * smallest
        matrix, limit, low, high = (
            part.copy() for part in (frame.matrix, frame.limit, frame.low, frame.high)
        )
        matrix[:times, :_Y], limit[:times] = seconds[:, :_Y] * weights, -seconds[:, _BLS]
        memory = slice(times, times + len(MEMORY))
        matrix[memory, :_Y] = capacity_check[:, :_Y] * weights
        matrix[memory, _Y] = self._bytes[0][:, _GBS] * box.gbs_low - self.usable / self.unit
        low[_Y], high[_Y + 1 :] = smallest / (box.gbs_high * box.nb_high), np.sum(seconds)
        return replace(frame, matrix=matrix, limit=limit, low=low, high=high)


def shortage(problem: BlockProblem, block: Box, tiers: Collection[str], solve: Simplex) -> float:
    """Bytes to add to each of some memories so that a block fits, the others as they are [B]."""
    program = problem.program(block)
    first = len(PREFILL) + len(DECODE)
    memory = slice(first, first + len(MEMORY))
    # a block far beyond all memories: every row in units of what it could need, so that no entry is large
    most = np.sum(np.maximum(program.matrix[memory], 0), axis=1) + 1
    matrix = program.matrix.copy()
    matrix[memory] /= most[:, np.newaxis]
    grows = np.array([tier in tiers for tier in TIER])
    needed = float(np.max((most * problem.unit)[grows]))
    more = np.zeros(len(program.limit))
    more[memory] = -needed * grows / (most * problem.unit)
    elastic = replace(
        program,
        cost=np.append(np.zeros(len(program.cost)), 1.0),
        matrix=np.column_stack([matrix, more]),
        low=np.append(program.low, 0.0),
        high=np.append(program.high, 1.0),
        columns=(*program.columns, "more"),
    )
    optimum = solve(elastic)
    return (
        np.inf
        if optimum is None
        else float(optimum.value * needed / problem.hw.offload.memory_share)
    )

"""Blocks, boxes of them, and the LP of FlexGen's placement over a box: it decides the shares.

A block is a GPU batch and a number of such batches, a box all blocks in two ranges.

Divided by the sequences of the block, the LP is one in the shares of cache and activations, in the
weights' shares a sequence, and in y = 1 / bls. No entry is negative, so over a box of blocks the
smallest GPU batch, the largest number of batches and the fastest CPU of the box give an
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

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.weights.placement import (
    DECODE,
    MEMORY_CONSTRAINTS,
    PLACEMENT_SHARES,
    PLACEMENT_VARIABLES,
    PREFILL,
    TIER,
    BlockSchedule,
    capacity,
    cpu_attention_rate,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.linear import Program, Simplex

_PROGRAM_VARIABLES = (*PLACEMENT_SHARES, "y", "T_pre", "T_gen")
Y = len(PLACEMENT_SHARES)
"""Column of y in the programs."""
TIME_ROWS = slice(0, len(PREFILL) + len(DECODE))
"""Rows of time in the programs."""
MEMORY_ROWS = slice(TIME_ROWS.stop, TIME_ROWS.stop + len(MEMORY_CONSTRAINTS))
"""Rows of memory in the programs."""
_BLS, _GBS = PLACEMENT_VARIABLES.index("bls"), PLACEMENT_VARIABLES.index("gbs")


class BlockBox(NamedTuple):
    """All blocks with a GPU batch and a number of batches in two ranges, ends included."""

    gbs_low: int
    gbs_high: int
    nb_low: int
    nb_high: int

    @property
    def single(self) -> bool:
        """True if it holds one block only."""
        return self.gbs_low == self.gbs_high and self.nb_low == self.nb_high

    @property
    def sequences(self) -> int:
        """Sequences of its smallest block [1]."""
        return self.gbs_low * self.nb_low

    def halves(self) -> tuple[BlockBox, BlockBox]:
        """Cut the GPU batch, or the number of batches where that spans far more octaves.

        Either is cut at its geometric middle.
        """
        wider = self.gbs_high**2 * self.nb_low >= self.nb_high * self.gbs_low**2
        if wider and self.gbs_low < self.gbs_high:
            cut = isqrt(self.gbs_low * self.gbs_high)
            return self._replace(gbs_high=cut), self._replace(gbs_low=cut + 1)
        cut = isqrt(self.nb_low * self.nb_high)
        return self._replace(nb_high=cut), self._replace(nb_low=cut + 1)

    def block(self, sequences: float) -> BlockBox:
        """The block of its smallest GPU batch with about this many sequences."""
        nb = int(min(max(sequences / self.gbs_low, self.nb_low), self.nb_high))
        return BlockBox(self.gbs_low, self.gbs_low, nb, nb)


def single_block(gpu_batch: int, num_batches: int) -> BlockBox:
    """The box of a single block."""
    return BlockBox(gpu_batch, gpu_batch, num_batches, num_batches)


@dataclass(frozen=True)
class BlockProblem:
    """Tensors that are placed, and their places.

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
    def usable(self) -> Numbers:
        """Bytes each row of `MEMORY_CONSTRAINTS` may use [B]."""
        sizes = capacity(self.hw)
        return np.array([sizes[tier] for tier in TIER], float)

    @cached_property
    def unit(self) -> Numbers:
        """Scale of each memory row, the usable bytes of its own tier [B]."""
        return np.maximum(self.usable, 1.0)

    @cached_property
    def most(self) -> int:
        """Sequences whose KV cache fills all memories: no block has more [1]."""
        sequence = self.llm.layers * self.llm.kv_bytes(1, self.work.final)
        return max(int(sum(capacity(self.hw).values()) / sequence), 1)

    def _rows(
        self, sequences: float, gpu_batch: float, rate: float
    ) -> tuple[Numbers, Numbers]:
        """Rows of time, scaled, and of memory, as a share of its tier, of a block.

        Args:
            sequences, gpu_batch: of the block [1].
            rate: attention on the CPU [FLOP/s].
        """
        block = BlockSchedule(self.hw, self.llm, self.work, sequences, gpu_batch, rate)
        prefill, decode = block.prefill(), block.decode()
        times = np.concatenate([prefill / self.units[0], decode / self.units[1]])
        return times, block.memory() / self.unit[:, np.newaxis]

    @cached_property
    def units(self) -> Numbers:
        """Scales of T_pre and T_gen: computation alone, which no block undercuts [s].

        Raises:
            InputError: a rate is zero.
        """
        block = BlockSchedule(self.hw, self.llm, self.work, 1.0, 1.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            prefill, decode = block.prefill(), block.decode()
        finite = np.all(np.isfinite(prefill)) and np.all(np.isfinite(decode))
        if not finite or min(self._attention_rates(1, self.most)) == 0:
            raise InputError(
                f"platform {self.hw.platform!r}: a rate in 'offload' is zero; "
                "all must be above zero"
            )
        return np.array([np.max(rows[:, _BLS]) for rows in (prefill, decode)])

    @cached_property
    def _frame(self) -> Program:
        """All of the LP that is the same for every box.

        Attention on the CPU adds to its rows of time, slowest at one end of all GPU batches.
        """
        units = self.units  # refuses dead rates before anything divides by one
        fixed = {"hd": 0.0, **self.fixed}
        sums = MEMORY_ROWS.stop
        matrix = np.zeros((sums + 3 + len(fixed), len(_PROGRAM_VARIABLES)))
        limit = np.zeros(len(matrix))
        slowest = min(self._attention_rates(1, self.most))
        times, _ = self._rows(1.0, 1.0, slowest)
        limit[TIME_ROWS] = -times[:, _BLS]
        matrix[: len(PREFILL), _PROGRAM_VARIABLES.index("T_pre")] = -1
        matrix[len(PREFILL) : TIME_ROWS.stop, _PROGRAM_VARIABLES.index("T_gen")] = -1
        for row, first in enumerate((0, 3, 6), sums):
            matrix[row, first : first + 3] = 1
        matrix[sums, Y] = -1  # shares of weights add up to y, their columns being w y
        limit[sums + 1 : sums + 3] = 1
        for row, (share, value) in enumerate(fixed.items(), sums + 3):
            matrix[row, _PROGRAM_VARIABLES.index(share)] = 1
            if share.startswith("w"):
                matrix[row, Y] = -value
            else:
                limit[row] = value
        steps = self.llm.layers * np.array([1, self.work.output - 1])
        return Program(
            cost=np.concatenate([np.zeros(Y + 1), steps * units]),
            matrix=matrix,
            limit=limit,
            equal=np.arange(len(matrix)) >= sums,
            low=np.zeros(len(_PROGRAM_VARIABLES)),
            high=np.append(np.ones(Y + 1), [np.sum(times)] * 2),
        )

    def _attention_rates(self, *gpu_batches: int) -> list[float]:
        """Attention on the CPU of some GPU batches, monotone in them [FLOP/s]."""
        return [float(cpu_attention_rate(self.hw, self.llm, gbs)) for gbs in gpu_batches]

    def program(self, box: BlockBox) -> Program:
        """The LP of a box: least seconds per sequence; exactly those where it is a single block.

        A block shares the weights: their columns are w y.

        Raises:
            InputError: a rate is zero.
        """
        frame, smallest = self._frame, float(box.sequences)
        fastest = max(self._attention_rates(box.gbs_low, box.gbs_high))
        times, memory = self._rows(smallest, smallest / box.nb_high, fastest)
        matrix, low = frame.matrix.copy(), frame.low.copy()
        matrix[TIME_ROWS, :Y] = times[:, :Y] / smallest
        matrix[MEMORY_ROWS, :Y] = memory[:, :Y]
        matrix[MEMORY_ROWS, Y] = box.gbs_low * memory[:, _GBS] - self.usable / self.unit
        low[Y] = smallest / (box.gbs_high * box.nb_high)
        return replace(frame, matrix=matrix, low=low)


def shortage(
    problem: BlockProblem, block: BlockBox, tiers: Collection[str], solve: Simplex
) -> float:
    """Bytes to add to each of some memories so that a block fits, the others as they are [B].

    Of a memory in several parts, to each part.
    """
    program = problem.program(block)
    # a block may need far more than all memories: rows in units of what each could need at most
    most = np.sum(np.maximum(program.matrix[MEMORY_ROWS], 0), axis=1) + 1
    unit = most * problem.unit
    matrix = program.matrix.copy()
    matrix[MEMORY_ROWS] /= most[:, np.newaxis]
    parts = {"gpu": problem.hw.gpu.count, "host": 1.0, "disk": problem.hw.disk.count}
    grows = np.array([parts[tier] if tier in tiers else 0.0 for tier in TIER])
    needed = float(np.max(unit[grows > 0]))
    more = np.zeros(len(program.limit))
    more[MEMORY_ROWS] = -needed * grows / unit
    elastic = replace(
        program,
        cost=np.append(np.zeros(len(program.cost)), 1.0),
        matrix=np.column_stack([matrix, more]),
        low=np.append(program.low, 0.0),
        high=np.append(program.high, 1.0),
    )
    optimum = solve(elastic)
    if optimum is None:
        return np.inf
    return float(optimum.value * needed / problem.hw.offload.memory_share)

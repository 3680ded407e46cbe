"""FlexGen's placement of tensors (ICML 2023, sec. 4.3), its block and its nine shares.

Two searches find the best block: a proven one of all blocks, and FlexGen's own walk.

Symbols: gbs GPU batch, nb number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Indices, Numbers
from nearkv.costmodel.mechanisms.weights.placement import (
    DECODE,
    MEMORY_CONSTRAINTS,
    PLACEMENT_SHARES,
    PREFILL,
    TIER,
    BlockSchedule,
    cpu_attention_rate,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.machine import Machine
from nearkv.solvers.placement.blocks import (
    MEMORY_ROWS,
    BlockBox,
    BlockProblem,
    Y,
    shortage,
    single_block,
)
from nearkv.solvers.placement.linear import Optimum, Program, Simplex
from nearkv.solvers.search import largest

SMALLEST_GAP = 1e-9
"""Relative differences below this are ties."""
WALK_STEPS = 256
"""Numbers of batches that the walk tries one by one, many times those of any published run."""
_LEAST_Y = 1e-300
"""Keeps a division by the smallest block's share finite where a relaxation wants none of it."""


@dataclass(frozen=True)
class BestBlock:
    """The best block of a search.

    Attributes:
        block: a box of this block alone.
        value: what it takes [s/sequence].
        bound: no block of the search's space takes less [s/sequence].
    """

    block: BlockBox
    value: float
    bound: float


# --- every block ------------------------------------------------------------------------------


class _Open(NamedTuple):
    """A box to be halved, the lowest bound first.

    Attributes:
        bound: no block in it takes less [s/sequence].
        order: of boxes with equal bounds.
        box: all its blocks.
    """

    bound: float
    order: int
    box: BlockBox


def full(problem: BlockProblem, solve: Simplex, space: BlockBox) -> BestBlock | None:
    """The best of all blocks in a box, by branch and bound.

    Returns:
        The block, its bound meeting its value up to `SMALLEST_GAP`; None where no block fits.
    """
    best = _solved(problem, solve, single_block(space.gbs_low, space.nb_low))
    if best is None:
        return None
    order = count()
    boxes = [_Open(0.0, next(order), space)]
    closed = np.inf
    while boxes and boxes[0].bound < best.value * (1 - SMALLEST_GAP):
        box = heappop(boxes).box
        for part in (box,) if box.single else box.halves():
            fits = part.sequences <= problem.most
            relaxed = solve(problem.program(part)) if fits else None
            if relaxed is None:
                continue
            if relaxed.bound < best.value * (1 - SMALLEST_GAP):
                # the block that the relaxation points to
                block = part.block(part.sequences / max(relaxed.x[Y], _LEAST_Y))
                tried = _solved(problem, solve, block)
                if tried and tried.value < best.value * (1 - SMALLEST_GAP):
                    best = tried
            if part.single:
                closed = min(closed, relaxed.bound)
            else:
                heappush(boxes, _Open(relaxed.bound, next(order), part))
    bound_of_open = boxes[0].bound if boxes else np.inf
    return BestBlock(best.block, best.value, min(best.value, closed, bound_of_open))


def _solved(problem: BlockProblem, solve: Simplex, block: BlockBox) -> BestBlock | None:
    """A block at its best shares; None where it does not fit."""
    optimum = solve(problem.program(block))
    return BestBlock(block, optimum.value, optimum.bound) if optimum else None


# --- FlexGen's walk ---------------------------------------------------------------------------


def paper(problem: BlockProblem, solve: Simplex, space: BlockBox) -> BestBlock | None:
    """The best of the blocks FlexGen's own search walks.

    For each GPU batch 1, 2, 3, 4, 8, 16, ... it bisects for the most batches that fit, then tries
    1, 2, 3, ... up to there (from `WALK_STEPS` on by bisection), stops at the first drop and takes
    the last before it.

    Returns:
        The block; its bound is its own LP's, nothing is proven of others. None where no block fits.
    """
    best: BestBlock | None = None
    for gbs in _gpu_batches(space):
        ceiling = _most_batches(problem, solve, gbs, space)
        last = _before_first_drop(problem, solve, gbs, range(space.nb_low, ceiling + 1))
        if last is None:
            break
        if best is None or last.value < best.value * (1 - SMALLEST_GAP):
            best = last
    return best


def _gpu_batches(space: BlockBox) -> Iterator[int]:
    """GPU batches that FlexGen's search tries."""
    gbs = space.gbs_low
    while gbs <= space.gbs_high:
        yield gbs
        gbs += 1 if gbs < 4 else gbs


def _most_batches(problem: BlockProblem, solve: Simplex, gbs: int, space: BlockBox) -> int:
    """Largest number of batches that fits; all below it fit too."""
    if space.nb_low == space.nb_high:
        return space.nb_high

    def fits(_: Indices, batches: Numbers) -> Booleans:
        blocks = [single_block(gbs, int(nb)) for nb in batches]
        return np.array([solve(problem.program(block)) is not None for block in blocks])

    return int(largest(fits, count=1)[0])


def _before_first_drop(
    problem: BlockProblem, solve: Simplex, gbs: int, batches: range
) -> BestBlock | None:
    """The block with the last number of batches before throughput drops; None where none fits.

    Beyond `WALK_STEPS` numbers, bisection takes the place of FlexGen's steps of one: the weights'
    seconds per sequence fall ever more slowly and what binds instead rises, so one drop parts the
    numbers that gain from those that lose.
    """
    last: BestBlock | None = None
    for nb in batches[:WALK_STEPS]:
        block = _solved(problem, solve, single_block(gbs, nb))
        if block is None or _drops(last, block):
            return last
        last = block
    low, high = batches.start + WALK_STEPS - 1, batches.stop - 1
    while low < high:
        middle = (low + high) // 2
        before, after = (
            _solved(problem, solve, single_block(gbs, nb)) for nb in (middle, middle + 1)
        )
        if after is None or _drops(before, after):
            high = middle
        else:
            low, last = middle + 1, after
    return last


def _drops(last: BestBlock | None, block: BestBlock) -> bool:
    """True if a block takes longer than the one before, by more than a tie."""
    return last is not None and block.value > last.value * (1 + SMALLEST_GAP)


# --- the placement -------------------------------------------------------------------------------

SEARCHES = {"full": full, "paper": paper}
ADDRESS = {"gpu": "gpu.memory", "host": "host.memory", "disk": "disk.capacity"}
"""The hardware number behind each tier."""
_GB = 1e9
_OVERFULL = 1e-6
"""Share of a full memory that the tolerance of a linear program may add to it."""
_UNPROVEN = 1e-6
"""Relative distance of an optimum from its bound that the solver's tolerances do not explain."""
_MOST_STATED = 1 << 40
"""Largest block size that may be stated; far more than any machine holds [1]."""
_TENSORS = {"w": "weights", "c": "KV cache", "h": "activations"}


@dataclass(frozen=True)
class Placement:
    """A policy and its bound; where nothing fits, what is short.

    Attributes:
        status: `optimal` (no block does better), `walked` (best of FlexGen's walk) or `infeasible`.
        gpu_batch, num_batches: the block; the smallest that was asked for where nothing fits [1].
        throughput_tok_s: tokens generated a second, prefill included [1/s].
        bound_tok_s: no block that was searched, or this block alone when walked, does better [1/s].
        shares: of weights (w), KV cache (c), activations (h) on GPU (g), CPU (c), disk (d) [1].
        prefill, decode: seconds of the block in each [s].
        used: largest share of what it may fill that each memory holds, by tier [1].
        binding: constraints that cost throughput.
        worth: tok/s that one GB (10^9 B) more of each memory adds to this block, by tier [1/s].
        short: bytes to add to one memory alone, to each of its parts, so that the smallest block
            fits; infinite where it alone does not help [B].
        short_each: bytes to add to every memory, to each of its parts, so that it fits [B].
        programs: linear programs solved.
    """

    status: str
    gpu_batch: int
    num_batches: int
    throughput_tok_s: float
    bound_tok_s: float
    shares: Mapping[str, float]
    prefill: float
    decode: float
    used: Mapping[str, float]
    binding: tuple[str, ...]
    worth: Mapping[str, float]
    short: Mapping[str, float]
    programs: int
    short_each: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance to the bound [1]."""
        return self.bound_tok_s / self.throughput_tok_s - 1

    @property
    def reason(self) -> str:
        """One sentence on what is short; empty where the placement fits."""
        if not self.short:
            return ""
        block = f"{self.gpu_batch * self.num_batches} sequence(s)"
        cures = [
            (need / 2**30, tier) for tier, need in self.short.items() if np.isfinite(need)
        ]
        if not cures:
            each = ", ".join(ADDRESS.values())
            enlarge = f"add {self.short_each / 2**30:.3f} GiB to each of {each}"
            return f"{block} do not fit, and no memory alone cures it; {enlarge}"
        if len(cures) == 1:
            need, tier = cures[0]
            enlarge = f"raise {ADDRESS[tier]}"
            return f"{block} do not fit: the {tier} is short of {need:.3f} GiB; {enlarge}"
        each = ", or ".join(
            f"{need:.3f} GiB to {ADDRESS[tier]}" for need, tier in sorted(cures)
        )
        return f"{block} do not fit: all memories together are short; add {each}"


def place(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    search: str = "full",
    gpu_batch: int | None = None,
    num_batches: int | None = None,
    fixed: Mapping[str, float] | None = None,
) -> Placement:
    """Choose the block and the shares of highest throughput.

    Args:
        hw: one machine with the roles gpu, host, disk, offload.
        llm, work: one model, its prompt and output; the batch of the work is not used.
        search: `full`, the proven best of every block, or `paper`, the best of FlexGen's walk.
        gpu_batch, num_batches: given instead of searched for [1].
        fixed: shares given instead of solved for [1].

    Returns:
        The placement, its shares proven by the prices of its block's LP.

    Raises:
        InputError: unknown search or share, contradictory shares, a block below one, or numbers
            too far apart for a solver.
    """
    check_known("search", [search], SEARCHES)
    problem = BlockProblem(hw, llm, work, _checked(fixed or {}))
    solve = Simplex()
    space = _space(problem, gpu_batch, num_batches)
    best = SEARCHES[search](problem, solve, space)
    if best is None:
        return _infeasible(problem, single_block(space.gbs_low, space.nb_low), solve)
    program = problem.program(best.block)
    optimum = solve(program)
    if optimum is None or abs(optimum.bound / best.value - 1) > _UNPROVEN:
        block = f"{best.block.gbs_low} x {best.block.nb_low} sequences"
        raise _unsolved(f"no prices prove the shares of {block}")
    programs = solve.solved
    status = "walked" if search == "paper" and not space.single else "optimal"
    optimum = replace(optimum, x=_least_wear(program, optimum, solve))
    return _placement(problem, best, optimum, status, programs)


def _unsolved(why: str) -> InputError:
    return InputError(
        f"the linear program cannot be trusted: {why}; bring the memories' sizes closer together"
    )


def _checked(fixed: Mapping[str, float]) -> Mapping[str, float]:
    """Fixed shares that FlexGen can have.

    Raises:
        InputError: an unknown share, one outside 0 to 1, or shares of a tensor that do not add up.
    """
    for share, value in fixed.items():
        check_known("share", [share], PLACEMENT_SHARES)
        if not 0 <= value <= 1:
            raise InputError(f"share {share} = {value:g} must be between 0 and 1")
    if fixed.get("hd", 0) > 0:
        raise InputError("share hd: FlexGen keeps no activations on the disk; leave it 0")
    stated = {"hd": 0.0, **fixed}
    for letter, tensor in _TENSORS.items():
        shares = {share: value for share, value in stated.items() if share[0] == letter}
        total = sum(shares.values())
        if total > 1 + SMALLEST_GAP or (len(shares) == 3 and total < 1 - SMALLEST_GAP):
            listed = ", ".join(f"{share} = {value:g}" for share, value in shares.items())
            raise InputError(
                f"shares of the {tensor} ({listed}) add up to {total:g}; they must add up to 1"
            )
    return fixed


def _space(
    problem: BlockProblem, gpu_batch: int | None, num_batches: int | None
) -> BlockBox:
    for name, value in (("gpu batch", gpu_batch), ("number of batches", num_batches)):
        if value is not None and not 1 <= value <= _MOST_STATED:
            raise InputError(f"{name} must be a whole number from 1 to {_MOST_STATED:,}")
    gbs = (gpu_batch, gpu_batch) if gpu_batch else (1, problem.most)
    nb = (num_batches, num_batches) if num_batches else (1, problem.most)
    return BlockBox(*gbs, *nb)


def _least_wear(program: Program, optimum: Optimum, solve: Simplex) -> Numbers:
    """Shares as fast as an optimum that have least cache on disk, then least host weights.

    Optimal shares are rarely unique. Flash wears by the cache written to it; free host memory is
    of use.
    """
    x, tied = optimum.x, program
    cost, value = program.cost / optimum.value, 1.0
    for share in ("cd", "wc"):
        tied = tied.with_row(cost, value)
        column = PLACEMENT_SHARES.index(share)
        cost = np.eye(len(program.cost))[column]
        better = solve(replace(tied, cost=cost))
        if better is None:
            break
        x, value = better.x, better.x[column]
    return x


def _placement(
    problem: BlockProblem, best: BestBlock, optimum: Optimum, status: str, programs: int
) -> Placement:
    gbs, nb = best.block.gbs_low, best.block.nb_low
    cpu_rate = float(cpu_attention_rate(problem.hw, problem.llm, gbs))
    block = BlockSchedule(problem.hw, problem.llm, problem.work, gbs * nb, gbs, cpu_rate)
    shares = _without_rounding(optimum.x)
    policy = np.concatenate([shares, [gbs * nb, gbs]])  # in the order of COLUMNS
    layers, output = problem.llm.layers, problem.work.output
    prefill = float(layers * np.max(block.prefill() @ policy))
    decode = float(layers * (output - 1) * np.max(block.decode() @ policy))
    throughput = float(gbs * nb * output / (prefill + decode))
    prices = optimum.prices[: MEMORY_ROWS.stop] / optimum.value
    names = (*PREFILL, *DECODE, *MEMORY_CONSTRAINTS)
    memory_share = problem.hw.offload.memory_share
    worth = -_GB * prices[MEMORY_ROWS] * throughput * memory_share / problem.unit
    filled = _by_tier(_filled(problem, block.memory() @ policy))
    return Placement(
        status=status,
        gpu_batch=gbs,
        num_batches=nb,
        throughput_tok_s=throughput,
        bound_tok_s=max(float(output) / best.bound, throughput),
        shares=dict(zip(PLACEMENT_SHARES, shares.tolist(), strict=True)),
        prefill=prefill,
        decode=decode,
        used={tier: max(values) for tier, values in filled.items()},
        binding=tuple(
            name for name, price in zip(names, prices, strict=True) if price < -SMALLEST_GAP
        ),
        worth={tier: sum(values) for tier, values in _by_tier(worth).items()},
        short={},
        programs=programs,
    )


def _filled(problem: BlockProblem, needed: Numbers) -> Numbers:
    """Share of what it may hold that each row of `MEMORY_CONSTRAINTS` needs [1].

    Raises:
        InputError: a memory is overfull.
    """
    none = np.zeros(len(MEMORY_CONSTRAINTS))
    filled: Numbers = np.divide(needed, problem.usable, out=none, where=problem.usable > 0)
    if np.any(filled > 1 + _OVERFULL):
        raise _unsolved(f"its solution fills a memory {np.max(filled):.3g} times")
    return filled


def _by_tier(values: Numbers) -> dict[str, list[float]]:
    """Values of the rows of `MEMORY_CONSTRAINTS`, by tier."""
    rows = list(zip(TIER, values.tolist(), strict=True))
    return {tier: [value for where, value in rows if where == tier] for tier in ADDRESS}


def _without_rounding(x: Numbers) -> Numbers:
    """The shares of an optimum, none negative and those of each tensor adding up to 1."""
    of_tensors = np.maximum(x[: len(PLACEMENT_SHARES)], 0.0).reshape(len(_TENSORS), -1)
    shares: Numbers = of_tensors / of_tensors.sum(axis=1, keepdims=True)
    return shares.ravel()


def _infeasible(problem: BlockProblem, block: BlockBox, solve: Simplex) -> Placement:
    nowhere = dict.fromkeys(PLACEMENT_SHARES, np.nan)
    none = dict.fromkeys(ADDRESS, np.nan)
    return Placement(
        status="infeasible",
        gpu_batch=block.gbs_low,
        num_batches=block.nb_low,
        throughput_tok_s=0.0,
        bound_tok_s=0.0,
        shares=nowhere,
        prefill=np.nan,
        decode=np.nan,
        used=none,
        binding=(),
        worth=none,
        short={tier: shortage(problem, block, (tier,), solve) for tier in ADDRESS},
        short_each=shortage(problem, block, ADDRESS.keys(), solve),
        programs=solve.solved,
    )

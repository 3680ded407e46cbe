"""Sub-batches of one iteration of L3: by the paper's rule, and optimal with a bound.

The optimum is that of a mixed-integer program for HiGHS: min D_0 + D_1 subject to, for every plane
of a phase, D_s >= const y_s + slopes x. Then, within (1 + epsilon) of that, the most prompt tokens:
whole prompts, and at most one part of one in each sub-batch, in steps of 16 tokens. A part's
attention grows with its square; chords between neighbouring steps hold it from below, and are added
where a solution needs them until it is exact.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pulp

from nearkv.costmodel.algebra.span import Numbers
from nearkv.solvers.subbatch.problem import (
    CHUNK_TOKENS,
    BatchSplit,
    ChunkPlan,
    Costs,
    SubbatchProblem,
    gpu_seconds,
    phases,
    pim_seconds,
    tokens_of,
)

EPSILON = 0.02
"""Time that prompts may add to the fastest decoding, as a share of it.

Their KV stops one rankset for about 1 %.
"""
_GAP = 1e-9
"""Relative distance between bound and value at which HiGHS ends."""
_MILP_TOLERANCE = 2e-6
"""Relative error that the feasibility tolerance of HiGHS may add to a time, or to a bound."""
_TOKEN_TOLERANCE = 1e-3
"""Part that it may take from a number of prompt tokens, which is an integer [1]."""
_MOST_ROUNDS = 40
"""Solutions whose squares are refined; the parts converge after a few."""


@dataclass(frozen=True)
class Schedule:
    """Sub-batches of one iteration.

    Attributes:
        in_one: True where a request is in sub-batch 1.
        chunks: prompts that ride in sub-batch 0 and 1.
        phases: D_0 and D_1 with the chunks [s].
        decode: the fastest D_0 + D_1 without chunks that is known, T* [s].
        split_decode: D_0 + D_1 of this split without chunks; within the slack of `decode` [s].
        bound: no split decodes in less [s].
        most_tokens: no plan within (1 + epsilon) of `decode` carries more prompt tokens [1].
        proof: `optimal`, `time limit`, `not proved`, or `rule` where nothing is claimed.
    """

    in_one: BatchSplit
    chunks: tuple[ChunkPlan, ChunkPlan]
    phases: tuple[float, float]
    decode: float
    split_decode: float
    bound: float = 0.0
    most_tokens: float = np.inf
    proof: str = "rule"

    @property
    def seconds(self) -> float:
        """Length of the iteration [s]."""
        return sum(self.phases)

    @property
    def prompt_tokens(self) -> float:
        """Prompt tokens carried [1]."""
        return sum(tokens_of(chunks) for chunks in self.chunks)


# --- by rule: nothing is proven ----------------------------------------------------------------


def even_halves(contexts: Numbers) -> BatchSplit:
    """Step 2 of L3 sec. 5.3: longest first, each to the sub-batch with fewer tokens."""
    in_one = np.zeros(len(contexts), bool)
    sums = [0.0, 0.0]
    for i in np.argsort(-contexts, kind="stable"):
        side = int(sums[1] < sums[0])
        in_one[i] = bool(side)
        sums[side] += contexts[i]
    return in_one


def greedy(problem: SubbatchProblem) -> Schedule:
    """The paper's scheduler, steps 2 to 4 of sec. 5.3 (step 1 chose the requests).

    Prompts join sub-batch 1, then 0, in order, while T_GPU stays below the other's T_PIM; the last
    one is cut to a multiple of 16 tokens. Where decoding alone fills the GPU, none joins.
    """
    in_one = even_halves(problem.contexts)
    members = (~in_one, in_one)
    chunks: list[ChunkPlan] = [(), ()]
    queue = list(enumerate(problem.prompts.tolist()))
    for s in (1, 0):
        limit = pim_seconds(problem, members[1 - s], 0.0)
        n = float(members[s].sum())
        while queue:
            j, length = queue[0]
            whole = (*chunks[s], (j, length))
            if gpu_seconds(problem.costs, n, whole) <= limit:
                chunks[s] = whole
                queue.pop(0)
                continue
            part = _longest_chunk(problem.costs, n, chunks[s], j, length, limit)
            if part:
                chunks[s] = (*chunks[s], (j, part))
                queue.pop(0)
            break
    return _by_rule(problem, in_one, (chunks[0], chunks[1]))


def _longest_chunk(
    costs: Costs, n: float, chunks: ChunkPlan, j: int, length: float, limit: float
) -> float:
    """Most tokens of prompt j, in steps of 16, that the GPU computes within a limit [1]."""

    def is_late(tokens: int) -> bool:
        return gpu_seconds(costs, n, (*chunks, (j, float(tokens)))) > limit

    sizes = range(CHUNK_TOKENS, int(length) + 1, CHUNK_TOKENS)
    return float(CHUNK_TOKENS * bisect_left(sizes, True, key=is_late))


def _by_rule(
    problem: SubbatchProblem,
    in_one: BatchSplit,
    chunks: tuple[ChunkPlan, ChunkPlan] = ((), ()),
) -> Schedule:
    """A split of which nothing is proven."""
    decode = sum(phases(problem, in_one))
    return Schedule(in_one, chunks, phases(problem, in_one, chunks), decode, decode)


def one_batch(problem: SubbatchProblem) -> Schedule:
    """All requests undivided, no prompts."""
    return _by_rule(problem, np.zeros(len(problem.contexts), bool))


# --- the optimum -------------------------------------------------------------------------------


def optimal(
    problem: SubbatchProblem, time_limit: float = 10.0, epsilon: float = EPSILON
) -> Schedule:
    """The fastest split, and with it the most prompt tokens.

    Never worse than the paper's greedy or one batch.

    Args:
        problem: one iteration.
        time_limit: for the whole search [s].
        epsilon: time prompts may add, relative to the fastest decoding [1].

    Returns:
        A plan whose `proof` is `optimal`, or `time limit` where the search ended first, or `not
        proved`; then `gap` and `most_tokens` say how far it may be from the best.
    """
    end = time.monotonic() + time_limit
    rule = greedy(problem)
    program = _ScheduleProgram(problem, rule.decode)
    proof = program.solve(end)
    start = min(rule, one_batch(problem), key=lambda plan: plan.decode)
    splits = [start.in_one]
    if program.split is not None:
        splits.append(program.split)
    in_one = min(splits, key=lambda split: sum(phases(problem, split)))
    decode = sum(phases(problem, in_one))
    bound = min(max(proof.bound, 0.0), decode)
    plan = Schedule(in_one, ((), ()), phases(problem, in_one), decode, decode, bound)
    limit = (1 + epsilon) * decode
    if rule.decode <= decode and rule.seconds <= limit:
        plan = replace(rule, decode=decode, bound=bound)
    plan = _with_prompts(problem, plan, limit, end)
    if proof.complete and plan.prompt_tokens >= plan.most_tokens:
        return replace(plan, proof="optimal")
    return replace(plan, proof="time limit" if time.monotonic() >= end else "not proved")


def _with_prompts(
    problem: SubbatchProblem, best: Schedule, limit: float, end: float
) -> Schedule:
    """The plan with the most prompt tokens until a moment, at least as many as `best`.

    Args:
        problem: one iteration.
        best: a plan within the limit.
        limit: the most D_0 + D_1 may take [s].
        end: the moment, of the monotonic clock [s].

    Returns:
        The plan; its `most_tokens` is how many no plan within the limit exceeds.
    """
    if not len(problem.prompts):
        return replace(best, most_tokens=0.0)
    program = _ScheduleProgram(problem, best.decode, limit)
    most = float(problem.prompts.sum())
    for _ in range(_MOST_ROUNDS):
        proof = program.solve(end)
        if np.isfinite(proof.bound):
            most = min(most, np.floor(-proof.bound + _TOKEN_TOLERANCE))
        split = program.split
        if split is None:
            break
        plan = replace(
            best,
            in_one=split,
            chunks=program.chunks,
            phases=phases(problem, split, program.chunks),
            split_decode=sum(phases(problem, split)),
        )
        in_time = plan.seconds <= limit * (1 + _MILP_TOLERANCE)
        if plan.prompt_tokens > best.prompt_tokens and in_time:
            best = plan
        if best.prompt_tokens >= most or not proof.complete:
            break
        program.refine()
    return replace(best, most_tokens=max(most, best.prompt_tokens))


def evenest(contexts: Numbers) -> BatchSplit:
    """Step 2 alone, solved: the split whose larger half has fewest tokens.

    Every sum of requests up to half of all tokens is reached, request by request; the largest is
    one of the halves.
    """
    sizes = contexts.astype(int)
    half = int(sizes.sum()) // 2
    reached_by = np.full(half + 1, -1)  # the request by which a sum is first reached
    reached_by[0] = len(sizes)
    for request, size in enumerate(sizes.tolist()):
        new = (reached_by[size:] < 0) & (reached_by[: max(half + 1 - size, 0)] >= 0)
        reached_by[size:][new] = request
    in_one = np.zeros(len(sizes), bool)
    tokens = int(np.flatnonzero(reached_by >= 0)[-1])
    while tokens:
        request = reached_by[tokens]
        in_one[request] = True
        tokens -= sizes[request]
    return in_one


# --- the integer program -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Proof:
    """Bound that a search has proven.

    Attributes:
        complete: whether its answer is proven.
        bound: no answer is below it, in units of the objective.
    """

    complete: bool
    bound: float


@dataclass(frozen=True)
class _Ride:
    """A prompt in one sub-batch: whole, or a part of some steps of 16 tokens.

    Attributes:
        prompt, side: which prompt, which sub-batch.
        length: its tokens [1].
        whole, part: 1 where it rides so.
        steps: of its part.
        square: at least the square of the part's tokens, over that of the prompt's.
    """

    prompt: int
    side: int
    length: float
    whole: Any
    part: Any
    steps: Any
    square: Any

    @property
    def tokens(self) -> Any:
        """Tokens that ride."""
        return self.length * self.whole + CHUNK_TOKENS * self.steps

    @property
    def squares(self) -> Any:
        """Squares of what rides."""
        return self.length**2 * (self.whole + self.square)

    def chord(self, k: int) -> Any:
        """Square >= the line through (16 k)^2 and (16 (k + 1))^2, below every other step."""
        line = (2 * k + 1) * self.steps - k * (k + 1) * self.part
        return self.square >= (CHUNK_TOKENS / self.length) ** 2 * line


class _ScheduleProgram:
    """The integer program over a problem: min D_0 + D_1, or the most prompts within a limit.

    Args:
        problem: one iteration.
        scale: times are in units of it [s].
        limit: of D_0 + D_1 [s]; without one no prompts ride.
    """

    def __init__(self, problem: SubbatchProblem, scale: float, limit: float = 0.0) -> None:
        self.problem, self.scale = problem, scale
        self.lp = pulp.LpProblem("split", pulp.LpMinimize)
        n = len(problem.contexts)
        self.z = [self.lp.add_variable(f"z{i}", cat="Binary") for i in range(n)]
        # the sub-batches may be swapped, so the longest request is in sub-batch 0
        self.lp += self.z[int(np.argmax(problem.contexts))] == 0
        self.rides: list[_Ride] = []
        for prompt, length in enumerate(problem.prompts.tolist() if limit else ()):
            both = [self._ride(prompt, side, length) for side in (0, 1)]
            self.lp += pulp.lpSum(ride.whole + ride.part for ride in both) <= 1
            self.rides += both
        seconds = self._phase(0) + self._phase(1)
        if limit:
            self.lp += seconds <= limit / scale
            self.lp += -pulp.lpSum(ride.tokens for ride in self.rides)
        else:
            self.lp += seconds

    def _ride(self, prompt: int, side: int, length: float) -> _Ride:
        name = f"{prompt}_{side}"
        most_steps = int(length) // CHUNK_TOKENS
        ride = _Ride(
            prompt=prompt,
            side=side,
            length=length,
            whole=self.lp.add_variable(f"whole{name}", cat="Binary"),
            part=self.lp.add_variable(f"part{name}", cat="Binary"),
            steps=self.lp.add_variable(f"k{name}", 0, most_steps, cat="Integer"),
            square=self.lp.add_variable(f"q{name}", 0),
        )
        self.lp += ride.steps <= most_steps * ride.part
        for k in {0, most_steps // 4, most_steps // 2, most_steps}:
            self.lp += ride.chord(k)
        return ride

    def _phase(self, side: int) -> Any:
        """D of a sub-batch's phase: at least every plane of the GPU, and of the banks."""
        gpu, pim = self.problem.costs.gpu / self.scale, self.problem.costs.pim / self.scale
        seconds = self.lp.add_variable(f"D{side}", 0)
        used = self.lp.add_variable(f"y{side}", cat="Binary")
        members = [z if side == 1 else 1 - z for z in self.z]
        rides = [ride for ride in self.rides if ride.side == side]
        for member in members:
            self.lp += used >= member
        for ride in rides:
            self.lp += used >= ride.whole
            self.lp += used >= ride.part
        self.lp += pulp.lpSum(ride.part for ride in rides) <= 1
        prompts = pulp.lpSum(ride.tokens for ride in rides)
        squares = pulp.lpSum(ride.squares for ride in rides)
        count = pulp.lpSum(members)
        for const, per_request, per_token, per_square in gpu.tolist():
            requests = const * used + per_request * count
            self.lp += seconds >= requests + per_token * prompts + per_square * squares
        # the banks attend for the other sub-batch
        others = len(members) - count
        for tokens in self.problem.loads.T.tolist():
            pairs = zip(tokens, members, strict=True)
            held = pulp.lpSum(context * (1 - member) for context, member in pairs)
            for _, per_request, per_held, per_token in pim.tolist():
                attended = per_request * others + per_held * held
                self.lp += seconds >= attended + per_token * prompts
        return seconds

    def refine(self) -> None:
        """Hold the squares exactly at the last parts, for every prompt that is as long."""
        parts = {round(ride.steps.value() or 0) for ride in self.rides}
        for ride in self.rides:
            for k in parts - {0}:
                if CHUNK_TOKENS * k <= ride.length:
                    self.lp += ride.chord(k - 1)
                    self.lp += ride.chord(k)

    def solve(self, end: float) -> _Proof:
        """Run HiGHS until a moment of the monotonic clock [s].

        The bound is in [s], or in -tokens where prompts ride.
        """
        left = end - time.monotonic()
        if left <= 0:
            return _Proof(False, -np.inf)
        self.lp.solve(pulp.HiGHS(msg=False, timeLimit=left, gapRel=_GAP))
        bound = float(self.lp.solverModel.getInfo().mip_dual_bound)
        is_optimal = self.lp.status == pulp.LpStatusOptimal
        is_proven = self.lp.sol_status == pulp.LpSolutionOptimal
        return _Proof(is_optimal and is_proven, bound if self.rides else bound * self.scale)

    @property
    def split(self) -> BatchSplit | None:
        """The split of the solution, or None."""
        values = [z.value() for z in self.z]
        if None in values:
            return None
        return np.array(values) > 0.5

    @property
    def chunks(self) -> tuple[ChunkPlan, ChunkPlan]:
        """The prompts of the solution in each sub-batch, parts last."""
        chunks: list[list[tuple[int, float]]] = [[], []]
        for ride in self.rides:
            if ride.whole.value() > 0.5:
                chunks[ride.side].append((ride.prompt, float(ride.length)))
        for ride in self.rides:
            steps = round(ride.steps.value() or 0)
            if steps > 0:
                chunks[ride.side].append((ride.prompt, float(CHUNK_TOKENS * steps)))
        return tuple(chunks[0]), tuple(chunks[1])

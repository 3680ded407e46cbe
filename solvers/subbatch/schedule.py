"""The sub-batch problem of L3 solved with a certificate: the fastest split, the most prompts."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import pulp

from nearkv.solvers.subbatch.problem import (
    CHUNK_TOKENS,
    Array,
    Chunks,
    Schedule,
    Split,
    SubbatchProblem,
    even_halves,
    least_decode,
    phases,
    tokens_of,
)
from nearkv.solvers.subbatch.program import Program, run_until
from nearkv.solvers.subbatch.rules import greedy, one_batch

EPSILON = 0.02
"""Time that prompts may add to the fastest decoding, as a share of it.

Their KV stops one rankset for about 1 %.
"""
_ROUNDING = 2e-6
_MOST_ROUNDS = 40


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
    program = Program(problem, rule.decode)
    program.decode()
    proof = program.solve(end)
    start = min(rule, one_batch(problem), key=lambda plan: plan.decode)
    splits = [start.in_one]
    if program.split is not None:
        splits.append(program.split)
    in_one = min(splits, key=lambda split: sum(phases(problem, split)))
    decode = sum(phases(problem, in_one))
    bound = min(max(proof.bound, least_decode(problem)), decode)
    plan = Schedule(in_one, ((), ()), phases(problem, in_one), decode, decode, bound)
    filling = _Filling(problem, (1 + epsilon) * decode)
    plan = filling.fill(filling.start(plan, rule), end)
    return replace(plan, proof=_proof(proof.complete and filling.proved, end))


def _proof(complete: bool, end: float) -> str:
    if complete:
        return "optimal"
    return "time limit" if time.monotonic() >= end else "not proved"


@dataclass(frozen=True)
class Halves:
    """Requests in two halves.

    Attributes:
        in_one: True where a request is in the second half.
        larger: tokens of the half that has more [1].
        bound: no split has a smaller larger half [1].
    """

    in_one: Split
    larger: float
    bound: float


def evenest(contexts: Array, time_limit: float = 10.0) -> Halves:
    """Step 2 alone, solved: the split whose larger half has fewest tokens."""
    total = float(contexts.sum())
    shares = (contexts / total).tolist()
    program = pulp.LpProblem("halves", pulp.LpMinimize)
    larger = program.add_variable("larger", 0)
    z = [program.add_variable(f"z{i}", cat="Binary") for i in range(len(contexts))]
    half = pulp.lpSum(share * taken for share, taken in zip(shares, z, strict=True))
    program += larger
    program += larger >= half
    program += larger >= 1 - half
    proof = run_until(program, time.monotonic() + time_limit)
    solved = np.array([(taken.value() or 0) > 0.5 for taken in z])

    def larger_half(split: Split) -> float:
        return float(max(contexts[split].sum(), contexts[~split].sum()))

    best = min((even_halves(contexts), solved), key=larger_half)
    most = larger_half(best)
    # token counts are whole, so the bound may be rounded up; half of all holds without a search
    searched = proof.bound * total * (1 - _ROUNDING)
    least = max(searched, total / 2, float(contexts.max()))
    return Halves(best, most, min(float(np.ceil(least)), most))


@dataclass
class _Filling:
    """Adds the most prompt tokens within a time limit.

    Attributes:
        problem: one iteration.
        limit: the most D_0 + D_1 may take [s].
        proved: whether no plan within the limit carries more.
    """

    problem: SubbatchProblem
    limit: float
    proved: bool = False

    def start(self, plan: Schedule, rule: Schedule) -> Schedule:
        """The paper's plan where it decodes as fast and keeps the limit, else the empty one."""
        if rule.decode <= plan.decode and rule.seconds <= self.limit:
            return replace(rule, decode=plan.decode, bound=plan.bound)
        return plan

    def fill(self, best: Schedule, end: float) -> Schedule:
        """The plan with the most prompt tokens until a moment, at least as many as `best`."""
        if not len(self.problem.prompts):
            self.proved = True
            return replace(best, most_tokens=0.0)
        program = Program(self.problem, best.decode)
        program.carry_prompts(self.limit)
        most = float(self.problem.prompts.sum())
        for _ in range(_MOST_ROUNDS):
            proof = program.solve(end)
            if np.isfinite(proof.bound):
                most = min(most, np.floor(-proof.bound + 1e-3))
            split = program.split
            if split is None:
                break
            chunks = self._shorten(split, program.chunks)
            plan = self._plan(best, split, chunks)
            if plan.prompt_tokens > best.prompt_tokens and self._in_time(plan.phases):
                best = plan
            if best.prompt_tokens >= most or not proof.complete:
                break
            program.refine()
        self.proved = best.prompt_tokens >= most
        return replace(best, most_tokens=max(most, best.prompt_tokens))

    def _plan(
        self, best: Schedule, split: Split, chunks: tuple[Chunks, Chunks]
    ) -> Schedule:
        return replace(
            best,
            in_one=split,
            chunks=chunks,
            phases=phases(self.problem, split, chunks),
            split_decode=sum(phases(self.problem, split)),
        )

    def _in_time(self, seconds: tuple[float, float]) -> bool:
        return sum(seconds) <= self.limit * (1 + _ROUNDING)

    def _shorten(
        self, split: Split, chunks: tuple[Chunks, Chunks]
    ) -> tuple[Chunks, Chunks]:
        """Take steps off the parts until the plan keeps its time."""
        first, second = chunks
        while first or second:
            if self._in_time(phases(self.problem, split, (first, second))):
                break
            if tokens_of(second) > tokens_of(first):
                second = _one_step_less(second)
            else:
                first = _one_step_less(first)
        return first, second


def _one_step_less(chunks: Chunks) -> Chunks:
    """Chunks whose last one is cut to the next lower multiple of 16 tokens, or dropped."""
    *others, (prompt, tokens) = chunks
    kept = CHUNK_TOKENS * np.ceil(tokens / CHUNK_TOKENS - 1)
    if kept > 0:
        return (*others, (prompt, float(kept)))
    return tuple(others)

"""The sub-batch problem of L3 as a mixed-integer programme, solved by HiGHS with a certificate.

min D_0 + D_1 subject to, for every plane of a phase, D_s >= const y_s + slopes x. Then, within
(1 + epsilon) of that, the most prompt tokens: whole prompts, and at most one part of one in each
sub-batch, in steps of 16 tokens. A part's attention grows with its square; chords between
neighbouring steps hold it from below, and are added where a solution needs them until it is exact.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pulp
from numpy.typing import NDArray

from nearkv.solvers.subbatch.problem import (
    CHUNK_TOKENS,
    Chunks,
    Schedule,
    SubbatchProblem,
    even_halves,
    least_decode,
    phases,
)
from nearkv.solvers.subbatch.rules import greedy, one_batch

EPSILON = 0.02
"""Time that prompts may add to the fastest decoding, as a share of it: their KV stops one rankset for about 1 %."""
_ROUNDING = 2e-6
_MOST_ROUNDS = 40


def optimal(
    problem: SubbatchProblem, time_limit: float = 10.0, epsilon: float = EPSILON
) -> Schedule:
    """The fastest split, and with it the most prompt tokens; never worse than the paper's greedy or one batch.

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
    first = _Model(problem, rule.decode)
    first.decode()
    solved, bound = first.solve(end)
    start = min(rule, one_batch(problem), key=lambda plan: plan.decode)
    in_one, decode = start.in_one, start.decode
    found = first.split()
    if found is not None and sum(phases(problem, found)) < decode:
        in_one, decode = found, sum(phases(problem, found))
    bound = min(max(bound, least_decode(problem)), decode)
    plan = Schedule(in_one, ((), ()), phases(problem, in_one), decode, decode, bound)
    plan, proved = _fill(problem, plan, rule, epsilon, end)
    if solved and proved:
        return replace(plan, proof="optimal")
    return replace(plan, proof="time limit" if time.monotonic() >= end else "not proved")


def evenest(
    contexts: NDArray[np.float64], time_limit: float = 10.0
) -> tuple[NDArray[np.bool_], float, float]:
    """Step 2 alone, solved: the split whose larger half has fewest tokens.

    Returns:
        the split, its larger half, and a proven lower bound of that [tokens].
    """
    rule = even_halves(contexts)
    total = float(contexts.sum())
    model = pulp.LpProblem("halves", pulp.LpMinimize)
    larger = model.add_variable("larger", 0)
    z = [model.add_variable(f"z{i}", cat="Binary") for i in range(len(contexts))]
    half = pulp.lpSum(x / total * take for x, take in zip(contexts.tolist(), z, strict=True))
    model += larger
    model += larger >= half
    model += larger >= 1 - half
    _, bound = _solve(model, time.monotonic() + time_limit)
    found = np.array([(take.value() or 0) > 0.5 for take in z])
    best = min((rule, found), key=lambda split: max(contexts[split].sum(), contexts[~split].sum()))
    most = float(max(contexts[best].sum(), contexts[~best].sum()))
    # token counts are whole, so the bound may be rounded up; half of all is one even without a search
    least = max(bound * total * (1 - _ROUNDING), total / 2, float(contexts.max()))
    return best, most, min(float(np.ceil(least)), most)


def _fill(
    problem: SubbatchProblem, plan: Schedule, rule: Schedule, epsilon: float, end: float
) -> tuple[Schedule, bool]:
    """Add the most prompt tokens within the time; True where that is proved."""
    limit = (1 + epsilon) * plan.decode
    best = rule if rule.decode <= plan.decode and rule.seconds <= limit else plan
    best = replace(best, decode=plan.decode, bound=plan.bound)
    if not len(problem.prompts):
        return replace(best, most_tokens=0.0), True
    model = _Model(problem, plan.decode)
    model.carry_prompts(limit)
    most = float(problem.prompts.sum())
    for _ in range(_MOST_ROUNDS):
        solved, bound = model.solve(end)
        most = min(most, np.floor(-bound + 1e-3)) if np.isfinite(bound) else most
        split = model.split()
        if split is None:
            break
        chunks = model.chunks()
        found = phases(problem, split, chunks)
        exact = sum(found) <= limit * (1 + _ROUNDING)
        if not exact:
            chunks = _shorten(problem, split, chunks, limit)
        candidate = replace(
            plan,
            in_one=split,
            chunks=chunks,
            phases=phases(problem, split, chunks),
            split_decode=sum(phases(problem, split)),
        )
        if candidate.prompt_tokens > best.prompt_tokens and candidate.seconds <= limit * (
            1 + _ROUNDING
        ):
            best = candidate
        if best.prompt_tokens >= most or not solved:
            break
        model.refine()
    return replace(best, most_tokens=max(most, best.prompt_tokens)), best.prompt_tokens >= most


def _shorten(
    problem: SubbatchProblem, split: NDArray[np.bool_], chunks: tuple[Chunks, Chunks], limit: float
) -> tuple[Chunks, Chunks]:
    """Take steps off the parts until the plan keeps its time."""
    while sum(phases(problem, split, chunks)) > limit * (1 + _ROUNDING) and any(chunks):
        s = int(sum(size for _, size in chunks[1]) > sum(size for _, size in chunks[0]))
        j, tokens = chunks[s][-1]
        kept = CHUNK_TOKENS * np.ceil(tokens / CHUNK_TOKENS - 1)
        part = (*chunks[s][:-1], (j, float(kept))) if kept > 0 else chunks[s][:-1]
        chunks = (part, chunks[1]) if s == 0 else (chunks[0], part)
    return chunks


@dataclass
class _Model:
    """The programme over a problem, times in units of `scale`."""

    problem: SubbatchProblem
    scale: float
    lp: Any = None
    z: list[Any] = field(default_factory=list)
    whole: dict[tuple[int, int], Any] = field(default_factory=dict)
    part: dict[tuple[int, int], Any] = field(default_factory=dict)
    steps: dict[tuple[int, int], Any] = field(default_factory=dict)
    square: dict[tuple[int, int], Any] = field(default_factory=dict)

    def decode(self) -> None:
        """Min D_0 + D_1, no prompts."""
        self.lp = pulp.LpProblem("decode", pulp.LpMinimize)
        first, second = self._phases((0.0, 0.0), (0.0, 0.0))
        self.lp += first + second

    def carry_prompts(self, limit: float) -> None:
        """Max prompt tokens, D_0 + D_1 <= limit [s]."""
        self.lp = pulp.LpProblem("prompts", pulp.LpMinimize)
        lengths = self.problem.prompts.tolist()
        for j, length in enumerate(lengths):
            for s in (0, 1):
                at = (j, s)
                self.whole[at], self.part[at] = (
                    self.lp.add_variable(f"{k}{j}_{s}", cat="Binary") for k in ("whole", "part")
                )
                self.steps[at] = self.lp.add_variable(
                    f"k{j}_{s}", 0, int(length) // CHUNK_TOKENS, cat="Integer"
                )
                self.square[at] = self.lp.add_variable(f"q{j}_{s}", 0)
                self.lp += self.steps[at] <= int(length) // CHUNK_TOKENS * self.part[at]
                for k in {
                    0,
                    int(length) // CHUNK_TOKENS // 4,
                    int(length) // CHUNK_TOKENS // 2,
                    int(length) // CHUNK_TOKENS,
                }:
                    self._chord(at, k)
            self.lp += pulp.lpSum(self.whole[j, s] + self.part[j, s] for s in (0, 1)) <= 1
        tokens, squares = [], []
        for s in (0, 1):
            self.lp += pulp.lpSum(self.part[j, s] for j in range(len(lengths))) <= 1
            tokens.append(
                pulp.lpSum(
                    x * self.whole[j, s] + CHUNK_TOKENS * self.steps[j, s]
                    for j, x in enumerate(lengths)
                )
            )
            squares.append(
                pulp.lpSum(
                    x**2 * self.whole[j, s] + self.square[j, s] for j, x in enumerate(lengths)
                )
            )
        first, second = self._phases((tokens[0], tokens[1]), (squares[0], squares[1]))
        self.lp += first + second <= limit / self.scale
        self.lp += -(tokens[0] + tokens[1])

    def _phases(self, tokens: tuple[Any, Any], squares: tuple[Any, Any]) -> tuple[Any, Any]:
        """D_s >= every plane of phase s."""
        n = len(self.problem.contexts)
        self.z = [self.lp.add_variable(f"z{i}", cat="Binary") for i in range(n)]
        self.lp += (
            self.z[int(np.argmax(self.problem.contexts))] == 0
        )  # the sub-batches may be swapped
        y = [self.lp.add_variable(f"y{s}", cat="Binary") for s in (0, 1)]
        d = [self.lp.add_variable(f"D{s}", 0) for s in (0, 1)]
        one = pulp.lpSum(self.z)
        counts = (n - one, one)
        for z in self.z:
            self.lp += y[1] >= z
            self.lp += y[0] >= 1 - z
        for chunks in (self.whole, self.part):
            for (_, s), rides in chunks.items():
                self.lp += y[s] >= rides
        loads = self.problem.loads
        for s in (0, 1):
            for const, per_n, per_token, per_square in (
                self.problem.costs.gpu / self.scale
            ).tolist():
                self.lp += (
                    d[s]
                    >= const * y[s]
                    + per_n * counts[s]
                    + per_token * tokens[s]
                    + per_square * squares[s]
                )
            for rankset in loads.T.tolist():
                ones = pulp.lpSum(x * z for x, z in zip(rankset, self.z, strict=True))
                capacity_check = ones if s == 0 else sum(rankset) - ones
                for _, per_n, per_held, per_token in (self.problem.costs.pim / self.scale).tolist():
                    self.lp += (
                        d[s]
                        >= per_n * counts[1 - s] + per_held * capacity_check + per_token * tokens[s]
                    )
        return d[0], d[1]

    def _chord(self, at: tuple[int, int], k: int) -> None:
        """Q >= the line through (16 k)^2 and (16 (k + 1))^2, below every other step."""
        self.lp += self.square[at] >= CHUNK_TOKENS**2 * (
            (2 * k + 1) * self.steps[at] - k * (k + 1) * self.part[at]
        )

    def refine(self) -> None:
        """Hold the squares exactly at the parts just found, for every prompt that is as long."""
        found = {round(steps.value() or 0) for steps in self.steps.values()} - {0}
        for j, s in self.steps:
            for k in found:
                if CHUNK_TOKENS * k <= self.problem.prompts[j]:
                    self._chord((j, s), k - 1)
                    self._chord((j, s), k)

    def solve(self, end: float) -> tuple[bool, float]:
        """Run HiGHS until a moment; True where it proved its answer, and its bound [s, or -tokens]."""
        proved, bound = _solve(self.lp, end)
        return proved, bound if self.whole else bound * self.scale

    def split(self) -> NDArray[np.bool_] | None:
        """The split found, or None."""
        if any(z.value() is None for z in self.z):
            return None
        return np.array([z.value() > 0.5 for z in self.z])

    def chunks(self) -> tuple[Chunks, Chunks]:
        """The prompts found in each sub-batch, parts last."""
        found: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])
        for (j, s), rides in self.whole.items():
            if rides.value() > 0.5:
                found[s].append((j, float(self.problem.prompts[j])))
        for (j, s), steps in self.steps.items():
            if round(steps.value() or 0) > 0:
                found[s].append((j, float(CHUNK_TOKENS * round(steps.value()))))
        return tuple(found[0]), tuple(found[1])


def _solve(model: Any, end: float) -> tuple[bool, float]:
    left = end - time.monotonic()
    if left <= 0:
        return False, -np.inf
    model.solve(pulp.HiGHS(msg=False, timeLimit=left, gapRel=1e-9))
    bound = float(model.solverModel.getInfo().mip_dual_bound)
    return bool(
        model.status == pulp.LpStatusOptimal and model.sol_status == pulp.LpSolutionOptimal
    ), bound

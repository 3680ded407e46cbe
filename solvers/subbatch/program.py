"""The sub-batch problem of L3 as a mixed-integer programme for HiGHS.

min D_0 + D_1 subject to, for every plane of a phase, D_s >= const y_s + slopes x. Then, within
(1 + epsilon) of that, the most prompt tokens: whole prompts, and at most one part of one in each
sub-batch, in steps of 16 tokens. A part's attention grows with its square; chords between
neighbouring steps hold it from below, and are added where a solution needs them until it is exact.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pulp

from nearkv.solvers.subbatch.problem import CHUNK_TOKENS, Chunks, Split, SubbatchProblem


@dataclass(frozen=True)
class Proof:
    """What a search has shown.

    Attributes:
        complete: whether its answer is proven.
        bound: no answer is below it, in units of the objective.
    """

    complete: bool
    bound: float


def run_until(program: Any, end: float) -> Proof:
    """Run HiGHS until a moment of the monotonic clock."""
    left = end - time.monotonic()
    if left <= 0:
        return Proof(False, -np.inf)
    program.solve(pulp.HiGHS(msg=False, timeLimit=left, gapRel=1e-9))
    bound = float(program.solverModel.getInfo().mip_dual_bound)
    optimal = program.status == pulp.LpStatusOptimal
    proven = program.sol_status == pulp.LpSolutionOptimal
    return Proof(bool(optimal and proven), bound)


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
    def most_steps(self) -> int:
        """Steps of 16 tokens in the whole prompt."""
        return int(self.length) // CHUNK_TOKENS

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


@dataclass(frozen=True)
class _Side:
    """What the prompts add to a sub-batch."""

    tokens: Any = 0.0
    squares: Any = 0.0


class Program:
    """The programme over a problem.

    Args:
        problem: one iteration.
        scale: times are in units of it [s].
    """

    def __init__(self, problem: SubbatchProblem, scale: float) -> None:
        self.problem, self.scale = problem, scale
        self.lp: Any = None
        self.z: list[Any] = []
        self.rides: list[_Ride] = []

    def decode(self) -> None:
        """Min D_0 + D_1, no prompts."""
        self.lp = pulp.LpProblem("decode", pulp.LpMinimize)
        self.lp += self._phases([_Side(), _Side()])

    def carry_prompts(self, limit: float) -> None:
        """Max prompt tokens, D_0 + D_1 <= limit [s]."""
        self.lp = pulp.LpProblem("prompts", pulp.LpMinimize)
        for prompt, length in enumerate(self.problem.prompts.tolist()):
            both = [self._ride(prompt, side, length) for side in (0, 1)]
            self.lp += pulp.lpSum(ride.whole + ride.part for ride in both) <= 1
            self.rides += both
        sides = []
        for side in (0, 1):
            mine = [ride for ride in self.rides if ride.side == side]
            self.lp += pulp.lpSum(ride.part for ride in mine) <= 1
            tokens = pulp.lpSum(ride.tokens for ride in mine)
            squares = pulp.lpSum(ride.squares for ride in mine)
            sides.append(_Side(tokens, squares))
        self.lp += self._phases(sides) <= limit / self.scale
        self.lp += -(sides[0].tokens + sides[1].tokens)

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

    def _phases(self, sides: list[_Side]) -> Any:
        """D_0 + D_1, each at least every plane of its phase."""
        n = len(self.problem.contexts)
        self.z = [self.lp.add_variable(f"z{i}", cat="Binary") for i in range(n)]
        # the sub-batches may be swapped, so the longest request is in sub-batch 0
        longest = int(np.argmax(self.problem.contexts))
        self.lp += self.z[longest] == 0
        used = [self.lp.add_variable(f"y{side}", cat="Binary") for side in (0, 1)]
        seconds = [self.lp.add_variable(f"D{side}", 0) for side in (0, 1)]
        for z in self.z:
            self.lp += used[1] >= z
            self.lp += used[0] >= 1 - z
        for ride in self.rides:
            self.lp += used[ride.side] >= ride.whole
            self.lp += used[ride.side] >= ride.part
        for side in (0, 1):
            self._gpu_planes(seconds[side], used[side], side, sides[side])
            self._pim_planes(seconds[side], side, sides[side])
        return seconds[0] + seconds[1]

    def _count(self, side: int) -> Any:
        """Requests in a sub-batch."""
        in_one = pulp.lpSum(self.z)
        return in_one if side == 1 else len(self.z) - in_one

    def _gpu_planes(self, seconds: Any, used: Any, side: int, prompts: _Side) -> None:
        planes = self.problem.costs.gpu / self.scale
        count = self._count(side)
        for const, per_request, per_token, per_square in planes.tolist():
            requests = const * used + per_request * count
            chunks = per_token * prompts.tokens + per_square * prompts.squares
            self.lp += seconds >= requests + chunks

    def _pim_planes(self, seconds: Any, side: int, prompts: _Side) -> None:
        planes = self.problem.costs.pim / self.scale
        count = self._count(1 - side)
        for tokens in self.problem.loads.T.tolist():
            in_one = pulp.lpSum(x * z for x, z in zip(tokens, self.z, strict=True))
            held = in_one if side == 0 else sum(tokens) - in_one
            for _, per_request, per_held, per_token in planes.tolist():
                attended = per_request * count + per_held * held
                self.lp += seconds >= attended + per_token * prompts.tokens

    def refine(self) -> None:
        """Hold the squares exactly at the last parts, for every prompt that is as long."""
        parts = {round(ride.steps.value() or 0) for ride in self.rides}
        for ride in self.rides:
            for k in parts - {0}:
                if CHUNK_TOKENS * k <= ride.length:
                    self.lp += ride.chord(k - 1)
                    self.lp += ride.chord(k)

    def solve(self, end: float) -> Proof:
        """Run HiGHS until a moment; the bound is in [s], or in -tokens where prompts ride."""
        proof = run_until(self.lp, end)
        if self.rides:
            return proof
        return Proof(proof.complete, proof.bound * self.scale)

    @property
    def split(self) -> Split | None:
        """The split of the solution, or None."""
        values = [z.value() for z in self.z]
        if None in values:
            return None
        return np.array(values) > 0.5

    @property
    def chunks(self) -> tuple[Chunks, Chunks]:
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

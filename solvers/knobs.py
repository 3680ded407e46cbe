"""Turn what a user requests of a system's knobs (a value, a paper's rule, `auto`) into numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine, MissingNumberError, lacking
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.shares.affine import is_affine
from nearkv.solvers.shares.balance import Choice, minimise
from nearkv.solvers.shares.binding import binding
from nearkv.solvers.shares.pieces import minimise_pieces
from nearkv.solvers.shares.room import feasible_share

Requested = Real | str
"""A knob's value, the name of a rule, or `auto`."""

Joint = Callable[[Machine, LLM, Workload, Mapping[str, Requested]], Mapping[str, Real]]
"""Solves several knobs at once: hw, llm, work, what is requested of each -> values."""

_POINTS_AT_ONCE = 1 << 16
"""Design points times combinations of searched knobs that are evaluated together."""
_BEYOND = 1e30
"""Seconds that stand for a missing byte in a search: no step takes as many [s]."""
_PROBE = 0.382
"""The share at which amounts are checked to be affine [1]."""
_MOST_PROBED = 4096
"""Design points up to which they are; for more, tests of the system must do."""


@dataclass(frozen=True)
class Resolved:
    """An estimate with a number for every knob.

    Attributes:
        estimate: the system's answer.
        knobs: value of every knob [1].
        choice: certificate of the share that was solved for, if one was.
        bound_by: resources that meet at that share, where they are asked for.
    """

    estimate: Estimate
    knobs: Mapping[str, Real]
    choice: Choice | None = None
    bound_by: NDArray[np.str_] | None = None


@dataclass(frozen=True)
class _Question:
    """What a system is evaluated on, and what is requested of its knobs."""

    system: System
    hw: Machine
    llm: LLM
    work: Workload
    requested: Mapping[str, Requested]
    explained: bool

    def having(self, knobs: Mapping[str, Requested]) -> _Question:
        """The same question with other knobs for those named."""
        return replace(self, requested={**self.requested, **knobs})

    @property
    def stated(self) -> dict[str, Real]:
        """The knobs that are numbers."""
        knobs = self.requested.items()
        return {name: value for name, value in knobs if not isinstance(value, str)}

    @property
    def unsolved(self) -> list[str]:
        """The knobs that are not numbers yet."""
        return [name for name, value in self.requested.items() if isinstance(value, str)]

    @property
    def axes(self) -> int:
        """The most axes that a number has of what is asked."""
        parts = [vars(self.llm), vars(self.work), vars(self.work.spread), self.stated]
        parts += [role.values for role in self.hw.roles.values()]
        return max(getattr(number, "ndim", 0) for part in parts for number in part.values())

    def estimate(self, **shares: Real) -> Estimate:
        """Evaluate the system at the stated knobs and some more."""
        return self.system(self.hw, self.llm, self.work, {**self.stated, **shares})


def resolve_knobs(
    system: System,
    hw: Machine,
    llm: LLM,
    work: Workload,
    requested: Mapping[str, Requested],
    explained: bool = False,
) -> Resolved:
    """Evaluate a system as requested; solve the knobs that are `auto` for the fastest step.

    Of values that fit no memory, those that miss the fewest bytes are taken.

    Knobs that name a joint solver are solved together by it. Other whole-numbered knobs and
    choices are searched exhaustively; a share is then minimised exactly for each of their values.

    Args:
        system: a registered system.
        hw, llm, work: what it runs on and does; broadcast over design points.
        requested: value, rule name or `auto`, for every knob that sets no hardware number.
        explained: whether to say what binds at a solved share, too.

    Raises:
        InputError: two shares are both `auto`, amounts are not affine in a share, or the machine
            lacks roles or numbers that the system reads.
    """
    question = _Question(system, hw, llm, work, requested, explained)
    try:
        return _resolve(question)
    except MissingNumberError:
        if hw.platform == system.platform:  # its own bed has what the system should read
            raise
        raise _refusal(question) from None


def _refusal(question: _Question) -> InputError:
    """All that the machine lacks for the system, in one sentence, and how to add it."""
    hw, system = question.hw, question.system
    lacks = lacking(hw, lambda complete: _resolve(replace(question, hw=complete)))
    advice = (
        f"add it in a platform of your own (`nearkv hardware new mine --from {hw.platform}`), "
        f"or take {system.platform}, which has it, and put in other parts (--part ROLE=PART)"
    )
    if all(_is_of_part(name, hw) for name in lacks):
        advice = f"state it, as in --set {lacks[0]}=VALUE"
    listed = ", ".join(lacks)
    return InputError(
        f"platform {hw.platform!r} lacks what {system.name} reads: {listed}; {advice}"
    )


def _is_of_part(name: str, hw: Machine) -> bool:
    """Whether something that is missing is a number of a part in its place."""
    role, dot, _ = name.partition(".")
    return bool(dot) and role in hw.roles and role not in PARTLESS


def _resolve(question: _Question) -> Resolved:
    """Evaluate a system as requested, by rules, joint solvers and searches."""
    system = question.system
    ruled = _with_rules(question)
    joint = _solve_jointly(ruled)
    ruled = ruled.having(joint)
    searched = [name for name in ruled.unsolved if system.knobs[name].kind != "share"]
    if not searched:
        return _solve_share(ruled)
    return _search(question.having(joint), searched)


def _search(question: _Question, searched: list[str]) -> Resolved:
    """Try every combination of values of whole-numbered knobs."""
    candidates = _candidates(question.system, searched)
    trials = replace(question, explained=False)
    points = (1,) * question.axes
    trial = _trial(trials, candidates[:, 0], searched)
    same: Resolved | None = trial  # where one is the best at all design points
    lowest = _seconds(trial)
    at_once = max(_POINTS_AT_ONCE // max(math.prod(np.shape(lowest)), 1), 1)
    best: NDArray[np.float64] = candidates[:, 0].reshape(-1, *points)
    for first in range(1, candidates.shape[1], at_once):
        values = candidates[:, first : first + at_once]
        # combinations are the first axis, before those of the design points
        tried = values.reshape(*values.shape, *points)
        is_one = values.shape[1] == 1
        trial = _trial(trials, values[:, 0] if is_one else tried, searched)
        # one trial may lack an axis that another has, as what it runs knows nothing of it
        seconds = _seconds(trial)
        every = np.broadcast_shapes(np.shape(seconds), tried.shape[1:])
        seconds = np.broadcast_to(seconds, every)
        fastest = np.argmin(seconds, axis=0)
        least = np.min(seconds, axis=0)
        better = np.less(least, lowest)
        if not np.any(better):
            continue
        same = trial if is_one and np.all(better) else None
        here = np.take_along_axis(tried, fastest[np.newaxis, np.newaxis], axis=1)[:, 0]
        best = np.where(better, here, best)
        lowest = np.minimum(lowest, least)
    if same and not question.explained:
        return same
    return _trial(question, best, searched)


def _candidates(system: System, searched: list[str]) -> NDArray[np.float64]:
    """Every combination of values of whole-numbered knobs: (knobs, combinations)."""
    ranges = []
    for name in searched:
        knob = system.knobs[name]
        ranges.append(np.arange(int(knob.low), int(knob.high) + 1.0))
    mesh = np.meshgrid(*ranges, indexing="ij")
    return np.stack([values.ravel() for values in mesh])


def _trial(question: _Question, values: Iterable[Real], searched: list[str]) -> Resolved:
    """The system at some values of the searched knobs."""
    candidate = dict(zip(searched, values, strict=True))
    # rules may look at what is searched, so they are evaluated anew for each value
    return _solve_share(_with_rules(question.having(candidate)))


def _seconds(trial: Resolved) -> Real:
    """Seconds of a step.

    Where it does not fit, more than any step takes, and the more the more bytes are missing.
    """
    fits = trial.estimate.fits
    penalty = _BEYOND * (1 + fits.short_bytes)
    return np.where(fits.ok, trial.estimate.step.seconds, penalty)


def _solve_jointly(question: _Question) -> dict[str, Requested]:
    """Values of the knobs that name a joint solver, where one of them is `auto`."""
    knobs = question.system.knobs
    solvers = dict.fromkeys(knobs[name].solver for name in question.unsolved)
    solved: dict[str, Requested] = {}
    for solver in filter(None, solvers):
        own = [name for name, knob in knobs.items() if knob.solver == solver]
        together = {name: question.requested[name] for name in own}
        solve = joint_solver(solver)
        solved |= solve(question.hw, question.llm, question.work, together)
    return solved


def joint_solver(name: str) -> Joint:
    """The solver that a `Knob.solver` names; it sees the knobs in the system's order."""
    from functools import partial

    from nearkv.solvers.mapping.policies import solve_mapping

    return partial(solve_mapping, name)


def _with_rules(question: _Question) -> _Question:
    """Replace the names of rules by their values; rules see the knobs that are numbers."""
    stated = question.stated
    ruled: dict[str, Requested] = {}
    for name in question.unsolved:
        rules = question.system.knobs[name].rules
        rule = rules.get(str(question.requested[name]))
        if rule:
            ruled[name] = rule(question.hw, question.llm, question.work, stated)
    return question.having(ruled)


def _solve_share(question: _Question) -> Resolved:
    """Minimise the one share that is `auto`, if there is one."""
    stated, unsolved = question.stated, question.unsolved
    if not unsolved:
        return Resolved(question.estimate(), stated)
    if len(unsolved) > 1:
        names = " and ".join(unsolved)
        raise InputError(
            f"{question.system.name}: {names} are both auto; give all but one of them a value"
        )
    (name,) = unsolved
    choice, bound_by = _choose(question, name)
    solved = question.having({name: choice.value})
    return Resolved(solved.estimate(), solved.stated, choice, bound_by)


def _choose(question: _Question, name: str) -> tuple[Choice, NDArray[np.str_] | None]:
    """The best value of a share with its certificate, and what binds there if that is asked."""
    knob = question.system.knobs[name]

    def estimate_at(share: Real) -> Estimate:
        return question.estimate(**{name: share})

    if knob.breaks:
        breaks = knob.breaks(question.hw, question.llm, question.work, question.stated)
        choice = minimise_pieces(estimate_at, knob.low, knob.high, breaks)
        if not question.explained:
            return choice, None
        # the pieces that are best at different design points were evaluated apart
        first, last = estimate_at(choice.start), estimate_at(choice.end)
        return choice, binding(first.step, last.step, choice)
    start, end = estimate_at(0.0), estimate_at(1.0)
    low, high = feasible_share(start.fits, end.fits, knob.low, knob.high)
    advice = f"give {name} a value, or its knob the breaks between which they are"
    bent = f"{question.system.name}: amounts are not affine in {name}"
    try:
        choice = minimise(start.step, end.step, low, high)
        few = np.size(choice.seconds) <= _MOST_PROBED
        is_straight = not few or is_affine(start, end, estimate_at(_PROBE), _PROBE)
    except ValueError as problem:  # the trees differ in more than their amounts
        raise InputError(
            f"{bent} ({problem}), so it cannot be solved; {advice}"
        ) from problem
    if not is_straight:
        raise InputError(f"{bent}, so it cannot be solved; {advice}")
    return choice, binding(start.step, end.step, choice) if question.explained else None

"""Turn what a user requests of a system's knobs (a value, a paper's rule, `auto`) into numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Booleans, Numbers, Real, shapes
from nearkv.costmodel.model.copies import (
    has_one_gpu,
    number_of_copies,
    of_all_copies,
    of_one_copy,
)
from nearkv.costmodel.model.estimate import Estimate, Notes
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.rounds import of_all_rounds, of_one_round
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine, MissingNumberError, lacking
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.knob_values import (
    ZOOMS,
    closer_values,
    first_values,
    is_sampled,
    tried_in_words,
    tried_together,
)
from nearkv.solvers.objective import TOTAL, Cost, Timed, objective
from nearkv.solvers.shares.minimum import Minimum
from nearkv.solvers.shares.solve import MOST_PROBED, NotAffineError, Solved, solve

KnobSetting = Real | str
"""A knob's value, the name of a rule, or `auto`."""

_POINTS_AT_ONCE = 1 << 16
"""Design points times combinations of searched knobs that are evaluated together."""
_PER_MISSING_BYTE = 1e30
"""Seconds that stand for a missing byte in a search: no step takes as many [s]."""
_EQUAL_COST = 1e-12
"""Relative difference of two costs that is rounding [1]."""

MISSES_LEAST = "no choice keeps --slo: the one that misses it by the least ratio is taken"


@dataclass(frozen=True)
class Resolved:
    """An estimate with a number for every knob.

    Attributes:
        estimate: the system's answer.
        knobs: value of every knob [1].
        choice: the share or number that was solved for, with its bound, if one was.
        bound_by: resources that meet at that share, where they are asked for.
        tried: values of a number that were tried, where it was searched [1].
        placement: the share that a choice leaves open, with its bound, where that was `auto`; its
            seconds are of the whole batch.
    """

    estimate: Estimate
    knobs: Mapping[str, Real]
    choice: Minimum | None = None
    bound_by: NDArray[np.str_] | None = None
    tried: int = 0
    placement: Minimum | None = None


class StatedKnobs(dict[str, Real]):
    """Values of a system's knobs by name; one that the system does not declare is refused."""

    def __missing__(self, name: str) -> Real:
        raise InputError(
            f"a rule or a break of a knob of this system reads the knob {name}, which the system "
            "does not declare; add it to knobs= of @system"
        )


@dataclass(frozen=True)
class _Question:
    """A system, what it is evaluated on, and how its knobs are set."""

    system: System
    hw: Machine
    llm: LLM
    work: Workload
    settings: Mapping[str, KnobSetting]
    explained: bool
    timed: Timed = TOTAL

    def having(self, knobs: Mapping[str, KnobSetting]) -> _Question:
        """This question with other values of the knobs named."""
        return replace(self, settings={**self.settings, **knobs})

    @property
    def stated(self) -> StatedKnobs:
        """The knobs that are numbers."""
        knobs = self.settings.items()
        return StatedKnobs(
            {name: value for name, value in knobs if not isinstance(value, str)}
        )

    @property
    def stated_work(self) -> Workload:
        """The workload with what stated knobs set of it."""
        return self.system.workload(self.work, self.stated)

    @property
    def unsolved(self) -> list[str]:
        """The knobs that are not numbers yet."""
        return [name for name, value in self.settings.items() if isinstance(value, str)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all design points: every number of the question broadcasts to it."""
        return np.broadcast_shapes(*shapes(self.hw, self.llm, self.work, self.stated))

    def estimate(self, **shares: Real) -> Estimate:
        """Evaluate the system at the stated knobs and some more."""
        return self.system(self.hw, self.llm, self.work, {**self.stated, **shares})

    def resolved(self) -> Resolved:
        """The answer where every knob is a number."""
        return Resolved(self.estimate(), self.stated)


class LackingError(InputError):
    """A machine lacks roles or numbers that a system reads.

    Attributes:
        lacks: roles, and numbers as `role.key`, with commas.
        reason: the sentence, without what to do about it.
    """

    def __init__(self, reader: str, lacks: str, advice: str) -> None:
        self.lacks, self.reason = lacks, f"{reader}: {lacks}"
        super().__init__(f"{self.reason}; {advice}")


def resolve_knobs(
    system: System,
    hw: Machine,
    llm: LLM,
    work: Workload,
    settings: Mapping[str, KnobSetting],
    explained: bool = False,
    timed: Timed = TOTAL,
) -> Resolved:
    """Evaluate a system as requested; solve the knobs that are `auto` for `objective`.

    Of values that fit no memory, those that miss the fewest bytes are taken.

    Knobs that name a joint solver are solved together by it. Other integer knobs and
    choices are searched exhaustively; a share is then minimised exactly for each of their values.
    A count of very many values is searched, and a number in which amounts are not affine or that is
    solved beside another knob: values all over its range, then closer and closer around the best.

    Args:
        system: a registered system.
        hw, llm, work: what it runs on and does; broadcast over design points.
        settings: value, rule name or `auto`, for every knob that sets no hardware number.
        explained: whether to say what binds at a solved share, too.
        timed: what is made short in place of the whole request.

    Raises:
        InputError: two shares are both `auto`, or amounts are not affine in a share.
        LackingError: the machine lacks roles or numbers that the system reads.
    """
    question = _Question(system, hw, llm, work, settings, explained, timed)
    try:
        return _in_rounds(question)
    except MissingNumberError:
        if hw.platform == system.platform:  # its own bed has what the system should read
            raise
        raise _refusal(question) from None


def _refusal(question: _Question) -> LackingError:
    """All that the machine lacks for the system, in one sentence, and how to add it."""
    hw, system = question.hw, question.system
    lacks = lacking(hw, lambda complete: _on_each_gpu(replace(question, hw=complete)))
    advice = (
        f"add it in a platform of your own (`nearkv hardware new mine --from {hw.platform}`), "
        f"or take {system.platform}, which has it, and put in other parts (--part ROLE=PART)"
    )
    places = [name.partition(".") for name in lacks]
    if all(dot and role in hw.roles and role not in PARTLESS for role, dot, _ in places):
        advice = f"state it, as in --set {lacks[0]}=VALUE"
    listed = ", ".join(lacks)
    reader = f"platform {hw.platform!r} lacks what {system.name} reads"
    return LackingError(reader, listed, advice)


def _in_rounds(question: _Question) -> Resolved:
    """Evaluate a system as requested, round by round where fewer sequences may run together."""
    work = question.work
    if np.all(work.rounds == 1):
        return _on_each_gpu(question)
    resolved = _on_each_gpu(replace(question, work=of_one_round(work)))
    choice, placement = resolved.choice, resolved.placement
    return replace(
        resolved,
        estimate=of_all_rounds(resolved.estimate, work),
        choice=choice and choice.times(work.rounds),
        placement=placement and placement.times(work.rounds),
    )


def _on_each_gpu(question: _Question) -> Resolved:
    """Evaluate a system as requested; one that knows a single GPU has a copy on each."""
    hw, work = question.hw, question.work
    if question.system.several_gpus or has_one_gpu(hw):
        return _resolve(question)
    copies = number_of_copies(hw, work)
    own_hw, own_work = of_one_copy(hw, work, copies)
    resolved = _resolve(replace(question, hw=own_hw, work=own_work))
    return replace(resolved, estimate=of_all_copies(resolved.estimate, work, copies))


def _resolve(question: _Question) -> Resolved:
    """Evaluate a system as requested, by rules, joint solvers and searches."""
    system = question.system
    ruled = _with_rules(question)
    kinds = {
        name: system.knobs[name].kind
        for name in ruled.unsolved
        if not system.knobs[name].solver
    }
    if list(kinds.values()) == ["number"]:
        try:
            return _solve_share(ruled)
        except NotAffineError:
            pass
    searched = [
        name
        for name, kind in kinds.items()
        if not system.knobs[name].share
        and (kind != "share" or _moves_rules(question, name))
    ]
    if not ruled.unsolved:
        return ruled.resolved()
    if not searched:
        return _solve_open_share(question)
    return _search(question, searched)


def _moves_rules(question: _Question, name: str) -> bool:
    """True if rules of other knobs depend on a share, which is then not solved beside them."""
    ruled = [other for other in question.unsolved if question.settings[other] != "auto"]
    if not ruled:
        return False
    knob = question.system.knobs[name]
    ends = [question.having({name: end}) for end in (knob.low, knob.high)]
    at_low, at_high = (_with_rules(end).stated for end in ends)
    return not all(np.array_equal(at_low[other], at_high[other]) for other in ruled)


def _search(question: _Question, searched: list[str]) -> Resolved:
    """Try all combinations of the searched knobs' values.

    Of a knob with very many, some are tried beside each combination of the others, then closer
    ones. Knobs that are solved together are so before, as if prompts were whole, and anew at the
    best.
    """
    sampled = [name for name in searched if is_sampled(question.system.knobs[name])]
    listed = [name for name in searched if name not in sampled]
    joint = _solve_jointly(_with_rules(question))
    trials = question.having(joint)
    combinations = _combined(trials, listed)
    tried = 0
    if sampled:
        closest, tried = _sampled_best(trials.having(combinations), sampled)
        combinations |= closest
    best = _best_of(trials, combinations) if listed else combinations
    resolved = _at_best(question, best, searched, bool(joint))
    notes = _notes(question, resolved.estimate, sampled)
    estimate = replace(resolved.estimate, notes={**resolved.estimate.notes, **notes})
    return replace(resolved, estimate=estimate, tried=tried)


def _at_best(
    question: _Question,
    best: Mapping[str, Real],
    searched: Iterable[str],
    anew: bool = False,
) -> Resolved:
    """The answer at the best values; what is solved beside them is so anew to say what binds."""
    if question.explained or anew:
        chosen = {name: best[name] for name in searched}
        return _solve_open_share(question.having(chosen))
    return question.having(best).resolved()


def _sampled_best(
    question: _Question, sampled: list[str]
) -> tuple[dict[str, Numbers], int]:
    """The best of some values of knobs with very many, then of closer ones, at each point.

    Args:
        question: all other searched knobs stated.
        sampled: the knobs.

    Returns:
        Their values, and how many were tried.
    """
    combinations = _combined(question, sampled)
    best = _best_of(question, combinations)
    tried = len(combinations[sampled[0]])
    for zoom in range(ZOOMS):
        for name in sampled:
            around = {other: best[other][np.newaxis] for other in sampled}
            around[name] = closer_values(question.system.knobs[name], best[name], zoom)
            best = _best_of(question, around)
            tried += len(around[name])
    return best, tried


def _notes(question: _Question, estimate: Estimate, sampled: Sequence[str]) -> Notes:
    """Note for readers: not every value was tried, or none keeps the limits."""
    notes: dict[str, NDArray[np.bool_]] = {}
    for name in sampled:
        sentence = f"{name} is the best of {tried_in_words(question.system.knobs[name])}"
        notes[sentence] = np.array(True)
    if question.work.arrivals is not None:
        from nearkv.solvers.goodput import none_kept

        missed = none_kept(estimate)
        if np.any(missed):
            notes[MISSES_LEAST] = missed
    return notes


def _combined(question: _Question, searched: list[str]) -> dict[str, Numbers]:
    """Combinations of the searched knobs' values: (combinations, *points) of each."""
    joint = tried_together(question.system, question.hw, question.llm, question.settings)
    knobs = question.system.knobs
    others = {name: first_values(knobs[name]) for name in searched if name not in joint}
    rows = np.arange(len(next(iter(joint.values()), [0.0])))
    meshes = np.meshgrid(rows, *others.values(), indexing="ij")
    row, *values = (mesh.reshape(-1, *(1,) * len(question.shape)) for mesh in meshes)
    combined = {name: each[row] for name, each in joint.items()}
    return combined | dict(zip(others, values, strict=True))


def choices_of(
    system: System,
    hw: Machine,
    llm: LLM,
    work: Workload,
    settings: Mapping[str, KnobSetting],
) -> dict[str, Numbers]:
    """Every combination of the values of the knobs that are `auto` and have few: (combinations,).

    Args:
        system, hw, llm, work, settings: as `resolve_knobs` takes them.
    """
    question = _Question(system, hw, llm, work, settings, False)
    listed = []
    for name in question.unsolved:
        knob = system.knobs[name]
        is_solved = knob.kind == "share" or knob.share or knob.solver
        if settings[name] == "auto" and not is_solved and not is_sampled(knob):
            listed.append(name)
    combinations = _combined(question, listed)
    return {name: np.ravel(combinations[name]) for name in listed}


def _best_of(
    question: _Question, combinations: Mapping[str, Numbers]
) -> dict[str, Numbers]:
    """Values of all knobs left open with the least cost at each design point, the first on a tie.

    Args:
        question: what is evaluated.
        combinations: knob -> its values: (combinations, *points).
    """
    cost = objective(question.work, question.timed)
    knobs = question.system.knobs
    # a choice that is solved may raise the share it leaves open above the least that is stated
    names = [
        share for name in question.unsolved for share in (name, knobs[name].share) if share
    ]
    trials = replace(question, explained=False)
    values = np.broadcast_arrays(*combinations.values())
    at_once = max(_POINTS_AT_ONCE // math.prod(question.shape), 1)
    best: dict[str, Numbers] = {}
    lowest: Numbers = np.array(np.inf)
    for begin in range(0, len(values[0]), at_once):
        tried = [each[begin : begin + at_once] for each in values]
        # rules may look at what is searched, so they are evaluated anew for each value
        trial = _solve_open_share(
            trials.having(dict(zip(combinations, tried, strict=True)))
        )
        solved = [np.asarray(trial.knobs[name]) for name in names]
        seconds, *solved = np.broadcast_arrays(_cost(trial, cost), *solved)
        least = np.min(seconds, axis=0)
        first = np.argmax(_is_equal(seconds, least), axis=0)[np.newaxis]
        here = [np.take_along_axis(each, first, axis=0)[0] for each in solved]
        is_better = (least < lowest) & ~_is_equal(least, lowest)
        for name, value in zip(names, here, strict=True):
            best[name] = np.where(is_better, value, best.get(name, value))
        lowest = np.minimum(least, lowest)
    return best


def _is_equal(cost: Real, least: Real) -> Booleans:
    """True if rounding alone sets costs apart."""
    equal: Booleans = np.isclose(cost, least, rtol=_EQUAL_COST, atol=0.0)
    return equal


def _cost(trial: Resolved, cost: Cost) -> Numbers:
    """The cost of a trial, combinations first.

    One that does not fit costs more than any step takes, by the bytes that are missing; one that
    is not modelled is infinite.
    """
    fits = trial.estimate.fits
    penalty = np.where(fits.unmodelled, np.inf, _PER_MISSING_BYTE * (1 + fits.short_bytes))
    return np.where(fits.ok, cost(trial.estimate), penalty)


# --- choices that leave a share open ----------------------------------------------------------


def _solve_open_share(question: _Question) -> Resolved:
    """Solve what no search is left for: a choice that leaves a share open, and one other share."""
    for name in question.unsolved:
        if question.system.knobs[name].share and question.settings[name] == "auto":
            return _solve_placement(question, name)
    ruled = _with_rules(question)
    return _solve_share(ruled.having(_solve_jointly(ruled)))


def _solve_placement(question: _Question, name: str) -> Resolved:
    """The value of a choice with the least seconds of the whole batch, its open share solved.

    With all else stated, the share is exact. Beside another share, which is solved for the step,
    the least is the best where the system says so; elsewhere shares that are best beside likely
    values of the other are tried. Every value of the choice is tried beside it.
    """
    share = question.system.knobs[name].share
    stated = question.settings[share]
    least: Real = 0.0 if isinstance(stated, str) else stated
    first = question.having({name: 0.0, share: least})
    if not _moves_rules(first, share):
        first = _with_rules(first)
    if first.unsolved:
        settled = _least_is_best(first, share)
        bound: Real = np.where(settled, np.inf, np.nan)
        values = [least]
        if not np.all(settled):
            values += _candidate_shares(first, share, least)
    else:
        choice = _minimum(first, share, least).choice
        bound, values = choice.bound, [choice.value]
    options: list[dict[str, Real]] = [{name: 0.0, share: value} for value in values]
    # what the GPU holds may move a cache, leave it fewer sequences or prompts smaller chunks, so
    # that less of it is better; only the first value of the choice keeps a share that is stated
    if not np.any(least):
        places = range(1, int(question.system.knobs[name].high) + 1)
        options += [{name: float(place), share: least} for place in places]
    best = _best_option(question, options)
    total = best.estimate.total.seconds
    placement = Minimum(best.knobs[share], total, np.minimum(bound, total), least, 1.0)
    return replace(best, placement=placement)


def _least_is_best(question: _Question, share: str) -> Booleans:
    """True where the system knows that the least share is the best."""
    settled = question.system.knobs[share].settled
    if not settled:
        return np.zeros((), bool)
    return settled(question.hw, question.llm, question.stated_work, question.stated)


def _candidate_shares(first: _Question, share: str, least: Real) -> Iterator[Real]:
    """Best shares beside other knobs as solved at the least share, and beside their ends."""
    at_least = _solve_open_share(first).knobs
    for end in (None, 0.0, 1.0):
        others = {name: at_least[name] if end is None else end for name in first.unsolved}
        yield _minimum(first.having(others), share, least).choice.value


def _best_option(question: _Question, options: Sequence[Mapping[str, Real]]) -> Resolved:
    """The answer at the option of the least cost at each design point, the first on a tie."""
    first = options[0]
    if len(options) == 1:
        return _solve_open_share(question.having(first))
    points = np.ones((1,) * len(question.shape))
    combinations = {}
    for name in first:
        values = [option[name] * points for option in options]
        combinations[name] = np.stack(np.broadcast_arrays(*values))
    return _at_best(question, _best_of(question, combinations), first)


def _minimum(question: _Question, name: str, least: Real) -> Solved:
    """The value of a share or number, from the least on, with the fewest seconds, exactly."""
    knob, stated = question.system.knobs[name], question.stated
    breaks: Sequence[Real] = ()
    if knob.breaks:
        breaks = knob.breaks(question.hw, question.llm, question.stated_work, stated)
    # a share is known to be affine by the tests of its system, a number is asked each time
    most = np.inf if knob.kind == "number" else MOST_PROBED
    return solve(
        lambda value: question.estimate(**{name: value}),
        least,
        knob.high,
        breaks,
        question.explained,
        most,
        question.timed,
    )


def _solve_jointly(question: _Question) -> dict[str, KnobSetting]:
    """Values of the knobs that name a policy of mappings, where one of them is `auto`."""
    from nearkv.solvers.mapping.policies import solve_mapping

    knobs = question.system.knobs
    solvers = dict.fromkeys(knobs[name].solver for name in question.unsolved)
    solved: dict[str, KnobSetting] = {}
    for solver in filter(None, solvers):
        own = [name for name, knob in knobs.items() if knob.solver == solver]
        together = {name: question.settings[name] for name in own}
        work = question.stated_work
        solved |= solve_mapping(solver, question.hw, question.llm, work, together)
    return solved


def _with_rules(question: _Question) -> _Question:
    """Replace the names of rules by their values; rules see the knobs that are numbers."""
    stated = question.stated
    ruled: dict[str, KnobSetting] = {}
    for name in question.unsolved:
        rules = question.system.knobs[name].rules
        rule = rules.get(str(question.settings[name]))
        if rule:
            # later rules see what earlier ones gave
            work = question.system.workload(question.work, stated)
            ruled[name] = stated[name] = rule(question.hw, question.llm, work, stated)
    return question.having(ruled)


def _solve_share(question: _Question) -> Resolved:
    """Minimise the one share that is `auto`, if there is one."""
    stated, unsolved = question.stated, question.unsolved
    if not unsolved:
        return question.resolved()
    if len(unsolved) > 1:
        names = " and ".join(unsolved)
        raise InputError(
            f"{question.system.name}: {names} are both auto; give all but one of them a value"
        )
    (name,) = unsolved
    knob = question.system.knobs[name]
    choice = knob.faster_of
    if choice and np.any(stated[choice] == question.system.knobs[choice].high):
        return _at_each_of(question, name, choice)
    try:
        solved = _minimum(question, name, knob.low)
    except NotAffineError as problem:
        if knob.kind == "number":
            raise
        raise InputError(
            f"{question.system.name}: amounts are not affine in {name}{problem}, so it cannot be "
            f"solved; give {name} a value, or its knob the breaks between which they are"
        ) from problem
    resolved = question.having({name: solved.choice.value}).resolved()
    return replace(resolved, choice=solved.choice, bound_by=solved.bound_by)


def _at_each_of(question: _Question, name: str, choice: str) -> Resolved:
    """Solve a share at each value of a choice but the last, which takes the faster of them."""
    others = np.arange(question.system.knobs[choice].high)
    along_first_axis = others.reshape(-1, *(1,) * len(question.shape))
    shares = _solve_share(question.having({choice: along_first_axis})).knobs[name]
    resolved = question.having(_best_of(question, {name: np.asarray(shares)})).resolved()
    seconds = question.timed(resolved.estimate).seconds
    unbounded = Minimum(resolved.knobs[name], seconds, np.nan, 0.0, 1.0)
    return replace(resolved, choice=unbounded)

"""Turn what a user requests of a system's knobs (a value, a paper's rule, `auto`) into numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Booleans, Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine, MissingNumberError, lacking
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.shares.minimum import Minimum
from nearkv.solvers.shares.solve import MOST_PROBED, NotAffineError, Timed, solve

Requested = Real | str
"""A knob's value, the name of a rule, or `auto`."""


_POINTS_AT_ONCE = 1 << 16
"""Design points times combinations of searched knobs that are evaluated together."""
_BEYOND = 1e30
"""Seconds that stand for a missing byte in a search: no step takes as many [s]."""
_VALUES = 33
"""Values of a continuous knob that are tried at a time."""
_ZOOMS = 7
"""How often those around the best are then tried: to 1e-10 of the range."""
TOTAL: Timed = attrgetter("total")
"""The span that a placement of weights makes least, unless another is asked for."""
Cost = Callable[[Estimate], Real]
"""What a search makes least."""
_ALIKE = 1e-9
"""A placement that is faster by less than this share is as fast [1]."""


@dataclass(frozen=True)
class Resolved:
    """An estimate with a number for every knob.

    Attributes:
        estimate: the system's answer.
        knobs: value of every knob [1].
        choice: certificate of the share or number that was solved for, if one was.
        bound_by: resources that meet at that share, where they are asked for.
        tried: values of a number that were tried, where it was searched [1].
        placement: certificate of the share that a choice leaves open, where that was `auto`; its
            seconds are of the whole batch.
    """

    estimate: Estimate
    knobs: Mapping[str, Real]
    choice: Minimum | None = None
    bound_by: NDArray[np.str_] | None = None
    tried: int = 0
    placement: Minimum | None = None


@dataclass(frozen=True)
class _Question:
    """A system, what it is evaluated on, and what is requested of its knobs."""

    system: System
    hw: Machine
    llm: LLM
    work: Workload
    requested: Mapping[str, Requested]
    explained: bool
    placed_for: Timed = TOTAL

    def having(self, knobs: Mapping[str, Requested]) -> _Question:
        """This question with other values of the knobs named."""
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
        if self.work.arrivals is not None:
            parts.append(vars(self.work.arrivals))
        return max(getattr(number, "ndim", 0) for part in parts for number in part.values())

    def estimate(self, **shares: Real) -> Estimate:
        """Evaluate the system at the stated knobs and some more."""
        return self.system(self.hw, self.llm, self.work, {**self.stated, **shares})


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
    requested: Mapping[str, Requested],
    explained: bool = False,
    placed_for: Timed = TOTAL,
) -> Resolved:
    """Evaluate a system as requested; solve the knobs that are `auto` for the fastest step.

    Of values that fit no memory, those that miss the fewest bytes are taken.

    Knobs that name a joint solver are solved together by it. Other integer knobs and
    choices are searched exhaustively; a share is then minimised exactly for each of their values.
    A number in which amounts are not affine, or that is solved beside another knob, is searched:
    values all over its range, then closer and closer around the best.

    Args:
        system: a registered system.
        hw, llm, work: what it runs on and does; broadcast over design points.
        requested: value, rule name or `auto`, for every knob that sets no hardware number.
        explained: whether to say what binds at a solved share, too.
        placed_for: the span whose seconds a choice that leaves a share open makes least.

    Raises:
        InputError: two shares are both `auto`, or amounts are not affine in a share.
        LackingError: the machine lacks roles or numbers that the system reads.
    """
    question = _Question(system, hw, llm, work, requested, explained, placed_for)
    try:
        return _resolve(question)
    except MissingNumberError:
        if hw.platform == system.platform:  # its own bed has what the system should read
            raise
        raise _refusal(question) from None


def _refusal(question: _Question) -> LackingError:
    """All that the machine lacks for the system, in one sentence, and how to add it."""
    hw, system = question.hw, question.system
    lacks = lacking(hw, lambda complete: _resolve(replace(question, hw=complete)))
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


def _resolve(question: _Question) -> Resolved:
    """Evaluate a system as requested, by rules, joint solvers and searches."""
    system = question.system
    ruled = _with_rules(question)
    joint = _solve_jointly(ruled)
    ruled = ruled.having(joint)
    kinds = {name: system.knobs[name].kind for name in ruled.unsolved}
    if list(kinds.values()) == ["number"]:
        try:
            return _solve_share(ruled)
        except NotAffineError:
            pass
    searched = [
        name
        for name, kind in kinds.items()
        if kind != "share" and not system.knobs[name].share
    ]
    if not searched:
        return _innermost(question.having(joint))
    return _search(question.having(joint), searched)


def _search(question: _Question, searched: list[str]) -> Resolved:
    """Try all combinations of the searched knobs' values; of a number some, then closer ones."""
    knobs = [question.system.knobs[name] for name in searched]
    trials = replace(question, explained=False)
    points = (1,) * question.axes
    mesh = _combined(question, searched)
    best = _best_of(trials, searched, mesh.reshape(*mesh.shape, *points))
    if not any(knob.kind == "number" for knob in knobs):
        return _trial(question, best, searched)
    tried = mesh.shape[1]
    for zoom in range(1, _ZOOMS + 1):
        for place, knob in enumerate(knobs):
            if knob.kind == "number":
                near = _near(knob, best[place], zoom)
                values = np.broadcast_to(
                    best[:, np.newaxis], (len(best), *near.shape)
                ).copy()
                values[place] = near
                best = _best_of(trials, searched, values)
                tried += len(near)
    resolved = _trial(question, best, searched)
    place = [knob.kind for knob in knobs].index("number")
    seconds = resolved.estimate.step.seconds
    choice = Minimum(best[place], seconds, np.nan, knobs[place].low, knobs[place].high)
    return replace(resolved, choice=choice, tried=tried)


def _cost_of(question: _Question) -> Cost:
    """What a search makes least: of splits over GPUs the whole batch, of other knobs a step.

    Where requests arrive, a split serves most of them within the limits.
    """
    if not question.system.combinations:
        return attrgetter("step.seconds")
    if question.work.arrivals is None:
        return attrgetter("total.seconds")
    from nearkv.solvers.goodput import load_cost

    return load_cost


def _combined(question: _Question, searched: list[str]) -> NDArray[np.float64]:
    """Combinations of the searched knobs' values: (knobs, combinations)."""
    joint = tried_together(question.system, question.hw, question.llm, question.requested)
    others = [name for name in searched if name not in joint]
    knobs = [question.system.knobs[name] for name in others]
    ranges = [
        np.linspace(knob.low, knob.high, _VALUES)
        if knob.kind == "number"
        else np.arange(int(knob.low), int(knob.high) + 1.0)
        for knob in knobs
    ]
    together = len(next(iter(joint.values()), [0.0]))
    place, *meshes = np.meshgrid(np.arange(together), *ranges, indexing="ij")
    values = {name: each[place] for name, each in joint.items()}
    values |= dict(zip(others, meshes, strict=True))
    return np.stack([values[name].ravel() for name in searched])


def tried_together(
    system: System, hw: Machine, llm: LLM, requested: Mapping[str, Requested]
) -> dict[str, NDArray[np.float64]]:
    """Values of the knobs that a system tries together and that are `auto`, by name.

    Args:
        system: a registered system.
        hw, llm: of several counts of a machine, the largest decides.
        requested: of every knob; combinations that contradict a stated number are left out.

    Returns:
        As many values of each as there are combinations; nothing where the system names none.
    """
    if not system.combinations:
        return {}
    values = system.combinations(hw, llm)
    asked = {name: requested[name] for name in values}
    names = [name for name, one in asked.items() if isinstance(one, str) and one == "auto"]
    if not names:
        return {}
    allowed = np.ones(len(values[names[0]]), bool)
    for name, each in values.items():
        stated = asked[name]
        if not isinstance(stated, str) and np.size(stated) == 1:
            allowed &= np.equal(each, stated)
    chosen = np.unique([values[name][allowed] for name in names], axis=1)
    # what is stated may fit none of them: the system then says why
    return dict(
        zip(names, chosen if chosen.size else np.ones((len(names), 1)), strict=True)
    )


def _near(knob: Knob, best: NDArray[np.float64], zoom: int) -> NDArray[np.float64]:
    """Values of a number between the neighbours of the best, as a further first axis."""
    step = (knob.high - knob.low) / (_VALUES - 1)
    reach = step / ((_VALUES - 1) / 2) ** (zoom - 1)
    offsets = np.linspace(-reach, reach, _VALUES).reshape(-1, *(1,) * best.ndim)
    return np.clip(best + offsets, knob.low, knob.high)


def _best_of(
    question: _Question,
    searched: list[str],
    combinations: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The combination of the least cost at each design point: (knobs, *points).

    Args:
        question: what is evaluated.
        searched: names of the knobs.
        combinations: their values: (knobs, combinations, *points).
    """
    cost = _cost_of(question)
    first = combinations[:, :1]
    best = first[:, 0]
    lowest = _cost(_trial(question, first, searched), cost)[0]
    at_once = max(_POINTS_AT_ONCE // max(lowest.size, 1), 1)
    for begin in range(1, combinations.shape[1], at_once):
        values = combinations[:, begin : begin + at_once]
        seconds = _cost(_trial(question, values, searched), cost)
        # one trial may lack an axis that another has, as what it runs knows nothing of it
        every = np.broadcast_shapes(seconds.shape, values.shape[1:])
        seconds = np.broadcast_to(seconds, every)
        values = np.broadcast_to(values, (len(values), *every))
        fastest = np.argmin(seconds, axis=0)
        least = np.min(seconds, axis=0)
        here = np.take_along_axis(values, fastest[np.newaxis, np.newaxis], axis=1)[:, 0]
        best = np.where(np.less(least, lowest), here, best)
        lowest = np.minimum(lowest, least)
    return best


def _trial(question: _Question, values: Iterable[Real], searched: list[str]) -> Resolved:
    """The system at some values of the searched knobs."""
    candidate = dict(zip(searched, values, strict=True))
    # rules may look at what is searched, so they are evaluated anew for each value
    return _innermost(question.having(candidate))


def _cost(trial: Resolved, cost: Cost) -> NDArray[np.float64]:
    """The cost of a trial, combinations first.

    Where it does not fit, more than any step takes, and the more the more bytes are missing; what
    is not modelled comes after all that is.
    """
    fits = trial.estimate.fits
    penalty = np.where(fits.unmodelled, np.inf, _BEYOND * (1 + fits.short_bytes))
    return np.where(fits.ok, cost(trial.estimate), penalty)


# --- choices that leave a share open ----------------------------------------------------------


def _innermost(question: _Question) -> Resolved:
    """Solve what no search is left for: a choice that leaves a share open, and one other share."""
    for name in question.unsolved:
        if question.system.knobs[name].share and question.requested[name] == "auto":
            return _solve_placement(question, name)
    return _solve_share(_with_rules(question))


def _solve_placement(question: _Question, name: str) -> Resolved:
    """The value of a choice with the least seconds of the whole batch, its open share solved.

    With all else stated, the share is exact. Beside another share, which is solved for the step,
    the least is the best where the system says so; elsewhere shares that are best beside likely
    values of the other are tried. Every value of the choice is tried beside it.
    """
    share = question.system.knobs[name].share
    stated = question.requested[share]
    least: Real = 0.0 if isinstance(stated, str) else stated
    first = question.having({name: 0.0, share: least})
    settled = np.zeros((), bool)
    if first.unsolved:
        settled = _settled(first, share)
        bound: Real = np.where(settled, np.inf, np.nan)
        values = [least, *([] if np.all(settled) else _likely(first, share, least))]
    else:
        choice = _least_total(first, share, least)
        bound, values = choice.bound, [choice.value]
    options: list[dict[str, Requested]] = [{name: 0.0, share: value} for value in values]
    # what the GPU holds may move a cache or leave it fewer sequences, so that less of it is better;
    # only the first value of the choice keeps a least share that is stated
    if not np.all(settled) and not np.any(least):
        places = range(1, int(question.system.knobs[name].high) + 1)
        options += [{name: float(place), share: least} for place in places]
    best = _fastest(first, options)
    total = best.estimate.total.seconds
    certificate = Minimum(best.knobs[share], total, np.minimum(bound, total), least, 1.0)
    return replace(best, placement=certificate)


def _settled(question: _Question, share: str) -> Booleans:
    """Where the system knows that the least share is the best."""
    settled = question.system.knobs[share].settled
    if not settled:
        return np.zeros((), bool)
    return settled(question.hw, question.llm, question.work, question.stated)


def _likely(first: _Question, share: str, least: Real) -> Iterator[Real]:
    """Best shares beside other knobs as solved at the least share, and beside their ends."""
    at_least = _innermost(first).knobs
    for end in (None, 0.0, 1.0):
        others = {name: at_least[name] if end is None else end for name in first.unsolved}
        yield _least_total(first.having(others), share, least).value


def _fastest(first: _Question, options: Sequence[Mapping[str, Requested]]) -> Resolved:
    """The option with the least seconds of the whole batch at each design point."""
    best, *others = options
    if not others:
        return _innermost(first.having(best))
    trials = replace(first, explained=False)

    def seconds_of(option: Mapping[str, Requested]) -> NDArray[np.float64]:
        trial = _innermost(trials.having(option))
        return _cost(trial, lambda estimate: first.placed_for(estimate).seconds)

    lowest = seconds_of(best)
    for other in others:
        seconds = seconds_of(other)
        faster = np.less(seconds, lowest * (1 - _ALIKE))
        best = {name: np.where(faster, value, best[name]) for name, value in other.items()}
        lowest = np.where(faster, seconds, lowest)
    return _innermost(first.having(best))


def _least_total(question: _Question, share: str, least: Real) -> Minimum:
    """The share with the least seconds of the whole batch, exactly."""
    breaks = question.system.knobs[share].breaks
    stated = question.stated
    edges = breaks(question.hw, question.llm, question.work, stated) if breaks else ()
    return solve(
        lambda value: question.estimate(**{share: value}),
        least,
        1.0,
        edges,
        timed=question.placed_for,
    ).choice


def _solve_jointly(question: _Question) -> dict[str, Requested]:
    """Values of the knobs that name a policy of mappings, where one of them is `auto`."""
    from nearkv.solvers.mapping.policies import solve_mapping

    knobs = question.system.knobs
    solvers = dict.fromkeys(knobs[name].solver for name in question.unsolved)
    solved: dict[str, Requested] = {}
    for solver in filter(None, solvers):
        own = [name for name, knob in knobs.items() if knob.solver == solver]
        together = {name: question.requested[name] for name in own}
        solved |= solve_mapping(solver, question.hw, question.llm, question.work, together)
    return solved


def _with_rules(question: _Question) -> _Question:
    """Replace the names of rules by their values; rules see the knobs that are numbers."""
    stated = question.stated
    ruled: dict[str, Requested] = {}
    for name in question.unsolved:
        rules = question.system.knobs[name].rules
        rule = rules.get(str(question.requested[name]))
        if rule:
            # later rules see what earlier ones gave
            ruled[name] = stated[name] = rule(
                question.hw, question.llm, question.work, stated
            )
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
    knob = question.system.knobs[name]
    breaks: Sequence[Real] = ()
    if knob.breaks:
        breaks = knob.breaks(question.hw, question.llm, question.work, stated)
    # a share is known to be affine by the tests of its system, a number is asked each time
    most = np.inf if knob.kind == "number" else MOST_PROBED
    try:
        solved = solve(
            lambda share: question.estimate(**{name: share}),
            knob.low,
            knob.high,
            breaks,
            question.explained,
            most,
        )
    except NotAffineError as problem:
        if knob.kind == "number":
            raise
        raise InputError(
            f"{question.system.name}: amounts are not affine in {name}{problem}, so it cannot be "
            f"solved; give {name} a value, or its knob the breaks between which they are"
        ) from problem
    at_best = question.having({name: solved.choice.value})
    return Resolved(at_best.estimate(), at_best.stated, solved.choice, solved.bound_by)

"""The catalogue of systems: functions registered with their knobs, parts and papers."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, ByName, Numbers, Real
from nearkv.costmodel.model.estimate import ONE_BATCH_ONLY, Estimate, notes_of
from nearkv.costmodel.model.layers import not_modelled
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.plugins import Plugin
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import InputError, check_known, unknown
from nearkv.hardware.files import is_known
from nearkv.hardware.machine import Machine

KnobRule = Callable[[Machine, LLM, Workload, ByName], Real]
"""A closed form: hw, llm, work and the other knobs that are numbers -> value."""
NO_KNOBS: ByName = MappingProxyType({})
Breaks = Callable[[Machine, LLM, Workload, ByName], Sequence[Real]]
"""Shares where amounts jump or bend: hw, llm, work and the other knobs -> shares."""
Settled = Callable[[Machine, LLM, Workload, ByName], Booleans]
"""True where the least share is the best, of hw, llm, work and the knobs that are numbers."""
Combinations = Callable[[Machine, LLM], Mapping[str, Numbers]]
"""Values of knobs that are tried together: hw, llm -> as many of each knob."""
SystemFunction = Callable[..., Estimate]


@dataclass(frozen=True)
class Knob:
    """A number a system lets the user, or a solver, choose.

    Attributes:
        what: what it does, for readers.
        low, high: smallest and largest value allowed.
        default: a value, the name of a rule, or `auto` where a solver picks the best.
        published: setting of the system's paper, a value or a rule as a user writes it; empty
            where it is the default, or where the paper states none.
        measured: claim that holds the best value as the system's paper measured it; empty for none.
        kind: `share` (continuous, amounts affine in it), `number` (continuous, with a range of its
            own), `count` (an integer) or `choice`.
        choices: names of the values 0, 1, ... of a choice.
        sets: the hardware number it stands for, as `role.key`; its default is the platform's.
        rules: closed forms from papers, by name.
        solver: name of the solver that chooses this knob together with all others naming it
            (`solvers.mapping.policies`), where it is `auto`.
        breaks: shares between which every amount is affine in this share; without it, amounts are
            affine over all of its range.
        settled: whether the least share is the best at each point, whatever the other knobs.
        share: name of the share that the first value of a choice leaves open. A share above 0 makes
            another placement, with a name of its own. Where the choice is `auto`, its first value
            is tried with the share that takes a whole batch the least time.
        faster_of: name of a choice whose last value stands for the faster of its other values.
            Amounts are not affine in this share there, so it is solved at each of these.
        follows: name of a knob; once that is stated, this one takes its first value unless it is
            stated too.
        within: the number of the workload that bounds what a count can use, as `batch`; a larger
            count is noted.
        of_work: field of the workload that it sets, where rules, breaks and the model find it.
        is_given: whether it describes requests or the model, so that no solver may choose it.
    """

    what: str
    low: float = 0.0
    high: float = 1.0
    default: float | str = "auto"
    published: str = ""
    measured: str = ""
    kind: Literal["share", "number", "count", "choice"] = "share"
    choices: tuple[str, ...] = ()
    sets: str = ""
    rules: Mapping[str, KnobRule] = field(default_factory=dict)
    solver: str = ""
    breaks: Breaks | None = None
    settled: Settled | None = None
    share: str = ""
    faster_of: str = ""
    follows: str = ""
    within: str = ""
    of_work: str = ""
    is_given: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values 0, 1, ... of a choice; last, of the first one beside an open share.

        >>> Knob("where", choices=("filled", "gpu"), share="ssd_weights").names
        ('filled', 'gpu', 'filled+ssd_weights')
        """
        return (
            (*self.choices, f"{self.choices[0]}+{self.share}")
            if self.share
            else self.choices
        )

    @property
    def rule_names(self) -> tuple[str, ...]:
        """Names that a setting may have in place of a value: `auto`, but of what is given."""
        return tuple(self.rules) if self.is_given else (*self.rules, "auto")

    @property
    def is_continuous(self) -> bool:
        """True if it takes any value of its range, not integers alone."""
        return self.kind in ("share", "number")


def choice(
    what: str,
    names: tuple[str, ...],
    default: float | str = 0,
    **others: Any,
) -> Knob:
    """A knob that has one of several names, by default the first; the others as of `Knob`."""
    most = len(names) - 1
    return Knob(what, 0, most, default, kind="choice", choices=names, **others)


ANY = "any"
"""Stands for every axis: work, and each number of the machine."""
MONOTONE_COLUMNS = ("prefill_s", "step_ms", "total_s")
"""Columns that are said to be monotone or not; `status` is another, which more hardware keeps."""


@dataclass(frozen=True)
class Reversal:
    """Values at which more work may take less time, or more hardware more time, at default knobs.

    Attributes:
        measures: columns that it concerns: `prefill_s`, `step_ms`, `total_s`, and `status` where
            more hardware may be too little.
        axes: `batch`, `context`, `output_tokens`, numbers of the machine as `role.key`, or `ANY`.
        why: the mechanism.
    """

    measures: tuple[str, ...]
    axes: tuple[str, ...]
    why: str


EACH_HAS_WEIGHTS = Reversal(
    (*MONOTONE_COLUMNS, "status"),
    ("gpu.count",),
    "each GPU has a copy, which reads weights of its own from its share of host and drives",
)


@dataclass(frozen=True)
class System:
    """A registered system.

    Attributes:
        name: kebab-case, as users write it.
        platform: the test bed of its paper.
        cite: key into sources.toml.
        owns: roles it needs; they are bought and powered.
        knobs: by name.
        model: the function.
        attends: attention of the layers it sums over, as in `layers.attention_of`; empty where
            it takes models of full attention in layers that are all alike.
        lacks: why it does not model other attention, by its name.
        reversals: where more work takes less time, or more hardware more.
        plugin: the user's file that registered it, where it is no system of nearkv.
        combinations: values that are tried together of knobs that are `auto`; without it, all
            that each allows.
        optima: systems on the same machine that no choice of this one beats.
        several_gpus: whether it divides a model or its requests over GPUs itself; of another, each
            GPU has a copy (`model.copies`).
        installable: whether it is software that runs on machines one can buy.
        technology: where KV lies and who attends, in words that systems share; its own name where
            it states none.
    """

    name: str
    platform: str
    cite: str
    owns: tuple[str, ...]
    knobs: Mapping[str, Knob]
    model: SystemFunction
    attends: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    reversals: tuple[Reversal, ...] = ()
    plugin: Plugin | None = None
    combinations: Combinations | None = None
    optima: tuple[str, ...] = ()
    several_gpus: bool = False
    installable: bool = False
    technology: str = ""

    @property
    def origin(self) -> str:
        """Its kind of source: `own`, `engine`, `paper` or `baseline`.

        `own` is of a user's file, `engine` can be installed, `paper` is what the cited paper
        proposes, `baseline` what a paper compares with.
        """
        if self.plugin:
            return "own"
        if self.installable:
            return ENGINE
        return "paper" if self.name == self.cite else "baseline"

    def is_monotone(self, measure: str, axis: str) -> bool:
        """True if, at default knobs, more work takes no less and more hardware no more of a column.

        Designs that do not fit are left out.

        Args:
            measure: `prefill_s`, `step_ms`, `total_s`, or `status`: what fits goes on fitting.
            axis: `batch`, `context`, `output_tokens` or a number of the machine as `role.key`.

        >>> ring = find_system("rank-pim")
        >>> ring.is_monotone("step_ms", "gpu.bandwidth"), ring.is_monotone("step_ms", "gpu.count")
        (True, False)
        """
        return not any(
            measure in reversal.measures and {axis, ANY} & {*reversal.axes}
            for reversal in self.reversals
        )

    @property
    def summary(self) -> str:
        """First line of the model's docstring."""
        docstring = inspect.getdoc(self.model) or ""
        return docstring.partition("\n")[0]

    @property
    def defaults(self) -> dict[str, float | str]:
        """Default values of the knobs that the model takes, by name."""
        knobs = self.knobs.items()
        return {name: knob.default for name, knob in knobs if not knob.sets}

    def workload(self, work: Workload, knobs: ByName) -> Workload:
        """A workload with the fields of it that some knobs set."""
        own: dict[str, Any] = {
            self.knobs[name].of_work: value
            for name, value in knobs.items()
            if self._sets_work(name)
        }
        return replace(work, **own) if own else work

    def _sets_work(self, name: str) -> bool:
        return name in self.knobs and bool(self.knobs[name].of_work)

    def __call__(self, hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Estimate:
        """Evaluate the model; a knob left out takes its default where that is a number.

        A choice that leaves a share open takes its first value, as `solvers.knobs` solves it.
        """
        values = {**knobs, **self._defaults_of(knobs, hw, llm, work)}
        work = self.workload(work, values)
        if not takes_any(self.model):
            values = {name: values[name] for name in values if not self._sets_work(name)}
        estimate = self._evaluate(hw, llm, work, **values)
        reasons = not_modelled(llm, self.attends, self.lacks)
        if work.arrivals is not None and estimate.serving is None:
            reasons[ONE_BATCH_ONLY] = np.array(work.arrivals.users is None)
        if reasons:
            estimate = replace(estimate, fits=estimate.fits.without(reasons))
        counts = {
            name: (value, self.knobs[name].within)
            for name, value in knobs.items()
            if name in self.knobs and self.knobs[name].within
        }
        notes = {**estimate.notes, **notes_of(estimate, llm, work, counts)}
        shown = {sentence: where for sentence, where in notes.items() if np.any(where)}
        return replace(estimate, notes=shown)

    def _defaults_of(
        self, knobs: ByName, hw: Machine, llm: LLM, work: Workload
    ) -> dict[str, Real]:
        """Values of the knobs that are left out."""
        values: dict[str, Real] = {}
        ruled = self.workload(work, knobs)
        for name in [name for name in self.defaults if name not in knobs]:
            knob = self.knobs[name]
            if knob.share:
                values[name] = 0.0
            elif not isinstance(knob.default, str):
                values[name] = knob.default
            elif knob.default in knob.rules:
                values[name] = knob.rules[knob.default](hw, llm, ruled, knobs)
        return values

    def _evaluate(self, *inputs: Any, **knobs: Real) -> Estimate:
        if self.plugin:
            return self.plugin.call(self.name, self.model, *inputs, **knobs)
        return self.model(*inputs, **knobs)

    def __reduce__(self) -> tuple[Callable[..., System], tuple[object, ...]]:
        """Travel to another process by name, one of a user's file with the text of that file."""
        if self.plugin:
            return _restored, (self.name, self.plugin)
        return find_system, (self.name,)


ENGINE = "engine"
"""Origin of a system that can be installed."""
_PACKAGE = "nearkv.costmodel.systems"
"""Package whose modules register systems when first imported: when a name is looked up."""
_GROUP = "nearkv.systems"
"""Entry points of installed packages whose modules register systems."""
_SYSTEMS: dict[str, System] = {}
_RUNNING: list[Plugin] = []
"""Files of users that are being run; what they register is theirs."""


@cache
def takes_any(model: SystemFunction) -> bool:
    """True if a function takes knobs of any name."""
    parameters = inspect.signature(model).parameters.values()
    return any(p.kind is p.VAR_KEYWORD for p in parameters)


class Registration(TypedDict, total=False):
    """Statements about a system beside its name and its function; each as of `System`."""

    platform: str
    cite: str
    owns: tuple[str, ...]
    knobs: Mapping[str, Knob]
    attends: tuple[str, ...]
    lacks: Mapping[str, str]
    reversals: tuple[Reversal, ...]
    combinations: Combinations
    optima: tuple[str, ...]
    several_gpus: bool
    installable: bool
    technology: str


def system(
    name: str, *, variant_of: str = "", **stated: Unpack[Registration]
) -> Callable[[SystemFunction], SystemFunction]:
    """Register a system under a name.

    The function takes `hw, llm, work` and its knobs by name, or all of them as `**knobs`, and
    returns an `Estimate`. Where it names the attention of its layers (`attends`), it sums over the
    layer types of a model; a model with any other type is answered by `not-modelled`, for the
    reason in `lacks`.

    Args:
        name: kebab-case, as users write it.
        variant_of: a registered system, of which all is inherited that is not stated here.
        stated: as of `System`: its `platform` and what it `owns`, unless inherited; the rest where
            it is not the default.

    Raises:
        InputError: no system is called as `variant_of` says.
        TypeError: `platform` or `owns` is neither stated nor inherited.
        ValueError: the name is taken, or the knobs are not the function's keyword arguments.
    """
    inherited: dict[str, Any] = {"cite": "user", "knobs": {}, "technology": name}
    if variant_of:
        inherited = vars(find_system(variant_of))

    def register(model: SystemFunction) -> SystemFunction:
        plugin = _RUNNING[-1] if _RUNNING else None
        own = {"name": name, "model": model, "plugin": plugin}
        registered = System(**{**inherited, **stated, **own})
        if "gpu" in registered.owns and not registered.several_gpus:
            reversals = dict.fromkeys((*registered.reversals, EACH_HAS_WEIGHTS))
            registered = replace(registered, reversals=tuple(reversals))
        parameters = inspect.signature(model).parameters.values()
        arguments = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        declared = {knob for knob in registered.defaults if not registered._sets_work(knob)}
        if name in _SYSTEMS:
            raise ValueError(f"system {name!r} exists already; choose another name")
        if arguments != declared and not takes_any(model):
            raise ValueError(
                f"system {name!r}: knobs {sorted(declared)}, arguments {sorted(arguments)}"
            )
        _SYSTEMS[name] = registered
        return model

    return register


def systems() -> dict[str, System]:
    """Import what registers systems and return all of them by name.

    These are the modules of `costmodel.systems`, those that installed packages name as entry
    points of the group `nearkv.systems`, and the files that `load_plugin` has run.
    """
    _import_own()
    _import_installed()
    return dict(sorted(_SYSTEMS.items()))


def engines(names: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of some systems, or of all, that can be installed.

    Raises:
        InputError: none of them can, or a name is unknown.
    """
    chosen = [find_system(name) for name in names] or systems().values()
    found = tuple(system.name for system in chosen if system.origin == ENGINE)
    if not found:
        listed = ", ".join(engines())
        raise InputError(f"--installable leaves no system; those that can be are {listed}")
    return found


@cache
def own_modules() -> list[str]:
    """Modules of nearkv that register systems."""
    package = importlib.import_module(_PACKAGE)
    return [
        f"{_PACKAGE}.{module.name}" for module in pkgutil.iter_modules(package.__path__)
    ]


@cache
def modules_naming(name: str) -> list[str]:
    """Modules of nearkv whose text quotes the name of a system, one called like it first.

    One of them registers the system, if it is nearkv's own; importing all modules takes longer than
    reading their text.
    """
    alike = f"{_PACKAGE}.{name.replace('-', '_')}"
    naming = []
    for module in own_modules():
        if module == alike:
            return [module]
        if f'"{name}"' in text_of(module):
            naming.append(module)
    return naming


def text_of(module: str) -> str:
    """The Python of a module; empty where it has none."""
    spec = importlib.util.find_spec(module)
    read = getattr(spec and spec.loader, "get_source", None)
    text: str | None = read(module) if read else None
    return text or ""


@cache
def _import_own() -> None:
    for module in own_modules():
        importlib.import_module(module)


@cache
def _import_installed() -> None:
    """Import modules of installed packages.

    Raises:
        InputError: one of them does not load.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=_GROUP):
        try:
            _import_module(point.value)
        except Exception as problem:
            reason = f"{type(problem).__name__}: {problem}".partition("\n")[0]
            failed = f"{_GROUP} {point.name} = {point.value!r} does not load ({reason})"
            raise InputError(f"{failed}; mend or uninstall its package") from problem


def _import_module(name: str) -> None:
    """Import a module that registers systems, with its text as where they come from."""
    _RUNNING.append(Plugin(name, text_of(name)))
    try:
        importlib.import_module(name)
    finally:
        _RUNNING.pop()


def load_plugin(plugin: Plugin) -> None:
    """Run a user's file, which registers its systems; the same file again replaces them.

    Raises:
        InputError: it does not run, takes a name that exists, or registers no system.
    """
    known = systems().values()
    if any(one.plugin == plugin for one in known):
        return
    replaced = {
        one.name: one for one in known if one.plugin and one.plugin.file == plugin.file
    }
    for name in replaced:
        del _SYSTEMS[name]
    before = dict(_SYSTEMS)
    _RUNNING.append(plugin)
    try:
        plugin.run()
        if before == _SYSTEMS:
            advice = (
                "put @system(...) above a function; `nearkv systems new` writes an example"
            )
            raise InputError(f"{plugin.file}: registers no system; {advice}")
    except InputError:
        _SYSTEMS.clear()
        _SYSTEMS.update({**before, **replaced})
        raise
    finally:
        _RUNNING.pop()


def _restored(name: str, plugin: Plugin) -> System:
    """The system of a plugin in another process, which runs the plugin where it has not yet."""
    load_plugin(plugin)
    return find_system(name)


def find_system(name: str) -> System:
    """Look a system up.

    Raises:
        InputError: no system has that name.
    """
    for module in modules_naming(name):
        if name not in _SYSTEMS:
            importlib.import_module(module)
    if name not in _SYSTEMS and name not in systems():
        if is_known("part", name) and load_part(name).type == "engine":
            part = f"one takes it as a part, as in gpu with --part engine={name}"
            raise InputError(f"{name} is an engine, no system; {part}")
        raise unknown("system", name, systems())
    return _SYSTEMS[name]


def find_knob(owner: System, name: str) -> Knob:
    """Look a knob of a system up.

    Raises:
        InputError: the system has no such knob.
    """
    if not owner.knobs:
        raise InputError(f"{owner.name} has no knobs; leave out {name!r}")
    check_known("knob", [name], owner.knobs, owner.name)
    return owner.knobs[name]


def check_knobs(candidates: Sequence[System], names: Iterable[str]) -> None:
    """Refuse knobs that no system of a list has.

    Raises:
        InputError: such a knob, with those that exist.
    """
    known = {knob for candidate in candidates for knob in candidate.knobs}
    where = " and ".join(candidate.name for candidate in candidates)
    for name in names:
        if len(candidates) == 1 or not known:
            find_knob(candidates[0], name)
        elif name not in known:
            raise unknown("knob", name, known, where)

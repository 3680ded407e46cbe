"""The catalogue of systems: functions registered with their knobs, parts and papers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.layers import not_modelled
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.machine import Machine

Rule = Callable[[Machine, LLM, Workload, Mapping[str, Real]], Real]
"""A closed form: hw, llm, work and the other knobs that are numbers -> value."""
NO_KNOBS: Mapping[str, Real] = MappingProxyType({})
Breaks = Callable[[Machine, LLM, Workload, Mapping[str, Real]], Sequence[Real]]
"""Shares where amounts jump or bend: hw, llm, work and the other knobs -> shares."""
Model = Callable[..., Estimate]
_ROUNDING = 1e-9
"""A batch that runs but for a smaller share runs as a whole."""


@dataclass(frozen=True)
class Knob:
    """A number a system lets the user, or a solver, choose.

    Attributes:
        what: what it does, for readers.
        low, high: smallest and largest value allowed.
        default: a value, or `auto` where a solver picks the best.
        kind: `share` (continuous), `count` (whole) or `choice`.
        choices: names of the values 0, 1, ... of a choice.
        sets: the hardware number it stands for, as `role.key`; its default is the platform's.
        rules: closed forms from papers, by name.
        solver: name of the solver that chooses this knob together with all others naming it
            (`solvers.knobs.JOINT`), where it is `auto`.
        breaks: shares between which every amount is affine in this share; without it, amounts are
            affine over all of its range.
    """

    what: str
    low: float = 0.0
    high: float = 1.0
    default: float | str = "auto"
    kind: Literal["share", "count", "choice"] = "share"
    choices: tuple[str, ...] = ()
    sets: str = ""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    solver: str = ""
    breaks: Breaks | None = None


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
        attends: attention of the layers it sums over, as in `layers.attention_kind`; empty where
            it takes models of full attention in layers that are all alike.
    """

    name: str
    platform: str
    cite: str
    owns: tuple[str, ...]
    knobs: Mapping[str, Knob]
    model: Model
    attends: tuple[str, ...] = ()

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

    def __call__(
        self, hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
    ) -> Estimate:
        """Evaluate the model; a knob left out takes its default where that is a number."""
        fixed = {
            k: value for k, value in self.defaults.items() if not isinstance(value, str)
        }
        estimate: Estimate = self.model(hw, llm, work, **(fixed | dict(knobs)))
        if llm.kinds:
            fits = estimate.fits.without(not_modelled(llm, self.attends))
            estimate = replace(estimate, fits=fits)
        if notes := _notes(estimate, llm, work):
            estimate = replace(estimate, notes={**estimate.notes, **notes})
        return estimate

    def __reduce__(self) -> tuple[Callable[[str], System], tuple[str]]:
        """Travel to another process by name; every process registers the same systems."""
        return find_system, (self.name,)


def _notes(estimate: Estimate, llm: LLM, work: Workload) -> dict[str, NDArray[np.bool_]]:
    """What differs from the workload as asked, whatever the system."""
    fewer = np.less(estimate.batch_run, np.multiply(work.batch, 1 - _ROUNDING))
    notes = {
        "context beyond the positions of the model": np.greater(work.longest, llm.longest),
        "batch_run sequences at a time, times count all rounds": fewer & estimate.fits.ok,
    }
    return {sentence: where for sentence, where in notes.items() if np.any(where)}


_PACKAGE = "nearkv.costmodel.systems"
"""Its modules register systems when first imported, which is when a name is looked up."""
_SYSTEMS: dict[str, System] = {}


def system(
    name: str,
    *,
    platform: str,
    cite: str,
    owns: tuple[str, ...],
    knobs: Mapping[str, Knob] | None = None,
    attends: tuple[str, ...] = (),
) -> Callable[[Model], Model]:
    """Register a system under a name.

    The function takes (hw, llm, work, *, knobs...) and returns an `Estimate`. Where it names the
    attention of its layers (`attends`), it sums over the kinds of layer of a model; a model with
    any other kind is answered by `not-modelled`.

    Raises:
        ValueError: the name is taken, or the knobs are not the function's keyword arguments.
    """

    def register(model: Model) -> Model:
        registered = System(name, platform, cite, owns, knobs or {}, model, attends)
        parameters = inspect.signature(model).parameters.values()
        arguments = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        if name in _SYSTEMS:
            raise ValueError(f"system {name!r} is registered twice")
        if arguments != registered.defaults.keys():
            declared = sorted(registered.defaults)
            raise ValueError(
                f"system {name!r}: knobs {declared}, arguments {sorted(arguments)}"
            )
        _SYSTEMS[name] = registered
        return model

    return register


def systems() -> dict[str, System]:
    """Import every module of `costmodel.systems` and return all systems by name."""
    package = importlib.import_module(_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_SYSTEMS.items()))


def find_system(name: str) -> System:
    """Look a system up.

    Raises:
        InputError: no system has that name.
    """
    known = systems()
    if name not in known:
        raise unknown("system", name, known)
    return known[name]


def find_knob(owner: System, name: str) -> Knob:
    """Look a knob of a system up.

    Raises:
        InputError: the system has no such knob.
    """
    if not owner.knobs:
        raise InputError(f"{owner.name} has no knobs; leave out {name!r}")
    if name not in owner.knobs:
        raise unknown("knob", name, owner.knobs, owner.name)
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

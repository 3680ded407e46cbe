"""What to evaluate: systems, models, workloads, hardware numbers and knobs; checked before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import LLM, llm_of
from nearkv.costmodel.registry import Knob, System, check_knobs, find_system
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import Part, Platform, load_llm, load_platform
from nearkv.hardware.errors import InputError, once, unknown
from nearkv.hardware.machine import Machine
from nearkv.hardware.quantity import parse
from nearkv.solvers.knobs import Requested
from nearkv.sweeps.space.grid import Axis, Box, Grid
from nearkv.sweeps.space.sizes import Reader, number, size, values
from nearkv.sweeps.space.traces import Trace, traces_of, workload_of

Numbers = NDArray[np.float64]
NONE: Mapping[str, Numbers] = MappingProxyType({})


@dataclass(frozen=True)
class Study:
    """Everything a user asked for, as written.

    Attributes:
        systems, models: names.
        batch, context, output: lists of sizes.
        platforms: names; empty for the test bed of each system's paper.
        sets: hardware number (`role.key`) -> list of values.
        knobs: knob -> list of values, rules or `auto`.
        traces: names or CSV files that bring their own lengths, in place of batch, context and output.
        method: `fluid`, or `simulate` to play the queue of a trace.
        seed: of the requests drawn from a trace.
    """

    systems: tuple[str, ...]
    models: tuple[str, ...]
    batch: str = "16"
    context: str = "32k"
    output: str = "64"
    platforms: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    method: str = "fluid"
    seed: int = 0

    @property
    def workload_axes(self) -> int:
        """Axes that say what is asked of a system; they come first in every grid."""
        return 2 if self.traces else 4


@dataclass(frozen=True)
class Block:
    """The part of a study that one system evaluates on one platform, all of its points in one grid.

    Attributes:
        system, platform: what runs where.
        parts: the models along the `model` axis.
        grid: axes of the workload, of set numbers and of swept knobs.
        sets: axes that replace a hardware number: axis name -> `role.key`.
        said: knobs that are solved or ruled, by name.
        traces: requests along the `trace` axis, where there is one.
        method: `fluid` or `simulate`.
    """

    system: System
    platform: Platform
    parts: tuple[Part, ...]
    grid: Grid
    sets: Mapping[str, str]
    requested: Mapping[str, Requested]
    traces: tuple[Trace, ...] = ()
    method: str = "fluid"

    @cached_property
    def display_grid(self) -> Grid:
        """The axes as columns: hardware numbers say their unit in the name, and are in it."""
        return Grid(tuple(self._display_axis(axis) for axis in self.grid.axes))

    def _display_axis(self, axis: Axis) -> Axis:
        if axis.name not in self.sets:
            return axis
        key = self.platform.key(self.sets[axis.name])
        return Axis(axis.name + key.suffix, np.array([key.shown(value) for value in axis.values]))

    def inputs(self, box: Box) -> tuple[Machine, LLM, Workload, dict[str, Requested]]:
        """What the system is called with for a box of design points."""
        return self.at(self.grid.mesh(box))

    def at(
        self, mesh: Mapping[str, Numbers], numbers: Mapping[str, Numbers] = NONE
    ) -> tuple[Machine, LLM, Workload, dict[str, Requested]]:
        """What the system is called with at any values of the axes.

        Args:
            mesh: values by axis name, of shapes that broadcast.
            numbers: more hardware numbers to replace, by `role.key`, in SI.
        """
        replaced = {key: mesh[axis] for axis, key in self.sets.items()}
        machine = self.platform.machine().with_values({**replaced, **numbers})
        index = mesh["model"].astype(int)
        shape = {
            name: np.array([part.numbers[name].si for part in self.parts])[index]
            for name in self.parts[0].numbers
            if all(name in part.numbers for part in self.parts)
        }
        llm = llm_of(shape, machine["precision"])
        if self.traces:
            work = workload_of(self.traces, mesh["trace"].astype(int))
        else:
            work = Workload(mesh["batch"], mesh["context_tok"], mesh["output_tok"])
        swept = {n: mesh[n] for n, k in self.system.knobs.items() if not k.sets and n in mesh}
        return machine, llm, work, {**swept, **self.requested}


def comma_list(text: str) -> tuple[str, ...]:
    """Read a list of names apart by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """Read `NAME=VALUE` options.

    Raises:
        InputError: one has no name or no value, or a name comes twice.
    """
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name or not value:
            raise InputError(f"{option} {item!r}: write it as NAME=VALUE")
        if name in found:
            raise InputError(
                f"{option} {name}: given twice; give all values at once, as in {name}={found[name]},{value}"
            )
        found[name] = value
    return found


def blocks(study: Study) -> list[Block]:
    """Check a study and lay out its blocks, system by system.

    Raises:
        InputError: any name, number or combination that cannot be evaluated.
    """
    for names, option in (
        (study.models, "--model"),
        (study.platforms, "--platform"),
        (study.traces, "--trace"),
    ):
        once(names, option)
    chosen = [find_system(name) for name in study.systems]
    parts = tuple(load_llm(name) for name in study.models)
    if not chosen or not parts:
        raise InputError("nothing to evaluate; name at least one system and one --model")
    for name, times in Counter(study.systems).items():
        if times > 1:
            raise InputError(f"{name}: named twice; name every system once")
    check_knobs(chosen, study.knobs)
    lengths = (study.batch, study.context, study.output) != (
        Study.batch,
        Study.context,
        Study.output,
    )
    traces = traces_of(study.traces, study.method, study.seed, lengths)
    model = Axis("model", np.arange(float(len(parts))), study.models)
    work = (
        (model, Axis("trace", np.arange(float(len(traces))), study.traces))
        if traces
        else (
            model,
            Axis("batch", np.array(values(study.batch, size, "--batch"))),
            Axis("context_tok", np.array(values(study.context, size, "--context"))),
            Axis("output_tok", np.array(values(study.output, size, "--output"))),
        )
    )
    laid: list[Block] = []
    for system in chosen:
        for platform in study.platforms or (system.platform,):
            laid += _lay(system, load_platform(platform), parts, work, traces, study)
    return laid


def one_point(study: Study) -> tuple[Machine, LLM]:
    """The machine and the model of a study of one design point, as scalars.

    Raises:
        InputError: the study cannot be evaluated or holds more than one point.
    """
    laid = blocks(study)
    if len(laid) != 1 or laid[0].grid.size != 1:
        raise InputError(
            "this takes one model, one platform and one value of each --set, not a list"
        )
    hw, llm, _, _ = laid[0].inputs(laid[0].grid.whole)
    roles = {
        name: {key: np.ravel(value)[0] for key, value in role.values.items()}
        for name, role in hw.roles.items()
    }
    scalars = {field.name: np.ravel(getattr(llm, field.name))[0] for field in fields(LLM)}
    return Machine(hw.platform, roles), LLM(**scalars)


def _lay(
    system: System,
    platform: Platform,
    parts: tuple[Part, ...],
    work: tuple[Axis, ...],
    traces: tuple[Trace, ...],
    study: Study,
) -> list[Block]:
    sets = {address: address for address in study.sets}
    axes = [_set_axis(address, address, text, platform) for address, text in study.sets.items()]
    options: list[list[Axis | tuple[str, str]]] = []
    for name, knob in system.knobs.items():
        text = study.knobs.get(name, "")
        if knob.sets and text:
            if knob.sets in study.sets:
                raise InputError(
                    f"--knob {name} and --set {knob.sets} say the same thing; give one of them"
                )
            axes.append(_set_axis(name, knob.sets, text, platform))
            sets[name] = knob.sets
        elif not knob.sets:
            options.append(_knob_options(system, name, knob, text or str(knob.default)))
    laid = []
    for combination in product(*options):
        swept = [item for item in combination if isinstance(item, Axis)]
        requested = dict(item for item in combination if not isinstance(item, Axis))
        grid = Grid((*work, *axes, *swept))
        laid.append(Block(system, platform, parts, grid, sets, requested, traces, study.method))
    return laid


def _set_axis(name: str, address: str, text: str, platform: Platform) -> Axis:
    key = platform.key(address)
    return Axis(name, np.array(values(text, number(key), f"--set {address}")))


def _knob_options(system: System, name: str, knob: Knob, text: str) -> list[Axis | tuple[str, str]]:
    """A knob's plain numbers as one axis, each rule or `auto` as a case of its own."""
    where = f"--knob {name}"
    if not comma_list(text):
        raise InputError(f"{where}={text!r}: names no value; give a number, a rule or auto")
    if knob.kind == "choice":
        text = ",".join(_choice(name, knob, item) for item in comma_list(text))
    words = [item for item in comma_list(text) if item == "auto" or item in knob.rules]
    plain = ",".join(item for item in comma_list(text) if item not in words)
    found: list[Axis | tuple[str, str]] = []
    if plain:
        numbers = values(plain, _knob_reader(system, knob), where)
        found.append(Axis(name, np.array(numbers), knob.choices))
    return found + [(name, word) for word in words]


def _choice(name: str, knob: Knob, item: str) -> str:
    if item == "auto" or item.isdigit():
        return item
    if item not in knob.choices:
        raise unknown(f"value of {name}", item, [*knob.choices, "auto"])
    return str(knob.choices.index(item))


def _knob_reader(system: System, knob: Knob) -> Reader:
    def fault(value: float) -> str:
        if knob.low <= value <= knob.high and (knob.kind == "share" or value == int(value)):
            return ""
        if knob.choices:
            return f"is none of {', '.join([*knob.choices, 'auto'])}"
        kind = "a number" if knob.kind == "share" else "a whole number"
        words = ", ".join(["auto", *knob.rules])
        return f"does not fit: {system.name} takes {kind} from {knob.low:,.10g} to {knob.high:,.10g}, or {words}"

    return Reader(lambda text, where: parse(text, "1", where), fault)

"""A study in numbers and names, and its division into grids of design points."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import check_published
from nearkv.costmodel.model.registry import Knob, System, check_knobs, find_system
from nearkv.hardware.catalog import Part, Platform, load_llm, load_part, load_platform
from nearkv.hardware.errors import InputError, once, unknown
from nearkv.hardware.machine import Machine
from nearkv.sweeps.study.axes import BAND_SAMPLES, WORKLOAD_OPTIONS, field_of, read_axes
from nearkv.sweeps.study.bands import (
    MODEL_ERROR,
    RATIO_ERROR,
    Band,
    check_band,
)
from nearkv.sweeps.study.grid import Axis, Block, Grid
from nearkv.sweeps.study.own_systems import load_plugins
from nearkv.sweeps.study.sizes import (
    Amount,
    Floats,
    KnobValue,
    RawValues,
    choices,
    in_si,
    names,
)
from nearkv.sweeps.study.traces import Trace, is_file, traces_of

NO_MODEL = "no --model is named; `nearkv models` lists them"
OWN = "own"
"""Stands in place of a platform for each system's own test bed."""
ARRIVAL_AXES = {"rate": "rate_req_s", "users": "users"}
"""Field of a study of requests that arrive -> its axis."""


@dataclass(frozen=True, init=False)
class Study:
    """The question of a user, in numbers and names.

    It is made of what a user gives: text as on the command line (`"8k:128k:x2"`), numbers, names
    and lists of these, which are read here. `dataclasses.replace` reads what it is given, too.

    Attributes:
        systems: names.
        models: names, or models read before.
        batch, context, output_tokens: sequences served together, prompt tokens of each, and tokens
            that each generates [1].
        platforms: names, or platforms read before; `own` for the test bed of each system's paper;
            empty for that of the first system of each family.
        sets: hardware number (`role.key`) -> its values.
        knobs: knob -> numbers, names of values or rules, or `auto`.
        per_round: sequences of a batch that run together at most; all where none is stated [1].
        rate: requests per second, at random, in place of a batch [1/s].
        users: that ask again when they are answered, in place of a batch [1].
        slo: `ttft_s` and `tpot_ms` up to which an answer counts for goodput.
        traces: names or CSV files that bring their own lengths, in place of batch, context
            and output_tokens.
        method: `fluid`, or `simulate` to serve the queue of a trace event by event.
        seed: of the requests drawn from a trace, and of the draws of a band.
        band: share of the draws inside the range of each answer [%]; 0 for no range.
        samples: draws of a band.
        plugins: files that register systems of the user's own.
        parts: role of the platform -> parts that fill it, in place of its own.
        zipped: axis -> values that go together with those of the other axes here.
        published: whether knobs that are not stated take the settings of their systems' papers.
    """

    systems: tuple[str, ...]
    models: tuple[str | Part, ...]
    batch: Floats = (16.0,)
    context: Floats = (32768.0,)
    output_tokens: Floats = (64.0,)
    per_round: Floats = ()
    rate: Floats = ()
    users: Floats = ()
    slo: Mapping[str, float] = field(default_factory=dict)
    platforms: tuple[str | Platform, ...] = ()
    sets: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    knobs: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    method: str = "fluid"
    seed: int = 0
    band: float = 0.0
    samples: int = BAND_SAMPLES
    plugins: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    zipped: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    published: bool = False

    def __init__(
        self,
        systems: RawValues,
        models: RawValues,
        batch: RawValues = batch,
        context: RawValues = context,
        output_tokens: RawValues = output_tokens,
        **others: Any,
    ) -> None:
        lengths = {"batch": batch, "context": context, "output_tokens": output_tokens}
        fields = {"systems": names(systems, "systems")}
        fields |= read_axes({"models": models, **lengths, **others})
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def but(self, **changes: Any) -> Study:
        """The study with other fields, given as to `Study`."""
        return replace(self, **changes)

    @property
    def workload_axes(self) -> int:
        """Number of axes of models and workloads; they come first in every grid."""
        return 2 + bool(self.arrives) if self.traces else 4 + bool(self.per_round)

    @property
    def arrives(self) -> str:
        """The axis of requests that arrive, `rate` or `users`; empty for a batch."""
        return "rate" if self.rate else "users" if self.users else ""

    @property
    def states_machine(self) -> bool:
        """True if it states numbers, parts or knobs, which a system may not read."""
        return bool(self.sets or self.knobs or self.parts or self.zipped or self.platforms)


def stated_study(**fields: Any) -> Study:
    """The study that a user states.

    Raises:
        InputError: something that cannot be read, or draws where nothing is drawn.
    """
    study = Study(**fields)
    check_draws(study.seed, study.samples, fields.get("band"), study.traces)
    return study


def sizes_by_default(
    study: Study, columns: Collection[str], shown: Collection[str] = ()
) -> list[str]:
    """Name the sizes that were left at their defaults and that stand in no column.

    Args:
        study: what is asked.
        columns: of the answer; those that hold some sizes lack one that was searched, as of
            `solve batch`.
        shown: those that a reader sees.
    """
    if study.traces:
        return []
    sizes = {"context_tok": "context", "output_tokens": "output_tokens"}
    if not study.arrives:
        sizes = {"batch": "batch", **sizes}
    held = sizes.keys() & columns
    defaults = []
    for column, axis in sizes.items():
        default = getattr(Study, axis)
        is_left = getattr(study, axis) == default and axis not in study.zipped
        if is_left and column not in shown and column in (held or sizes):
            defaults.append(f"{column} {default[0]:,.0f}")
    return [f"At {', '.join(defaults)}, as by default."] if defaults else []


def check_draws(seed: int, samples: int, band: float | None, traces: Sequence[str]) -> None:
    """Refuse options of draws where nothing is drawn.

    Args:
        seed: of the draws; 0 where none is stated.
        samples: of a band; `BAND_SAMPLES` where none are stated.
        band: its level; None where there is no band [%].
        traces: whose requests are served; those of a file are taken as they are.

    Raises:
        InputError: a band of 0 %, a seed where nothing is drawn, or samples without a band.
    """
    if band == 0:
        raise InputError(
            "--band 0: give the share inside in percent, from 1 to 99, as in 90"
        )
    has_band = band is not None
    are_drawn = any(not is_file(trace) for trace in traces)
    if seed and not (are_drawn or has_band):
        advice = "give --trace, or leave it out, or give the --band that it draws"
        if traces:
            advice = f"the requests of {traces[0]} are taken as they are; leave it out"
        raise InputError(f"--seed {seed} draws nothing here; {advice}")
    if samples != BAND_SAMPLES and not has_band:
        raise InputError(
            f"--samples {samples} are draws of a band; give --band, or leave it out"
        )


def blocks(study: Study) -> list[Block]:
    """Check a study and divide it into blocks, system by system.

    Raises:
        InputError: any name, number or combination that cannot be evaluated.
    """
    parts = _pairings(study) if study.zipped else [study]
    divided = [block for part in parts for block in _blocks(part)]
    divided.sort(key=lambda block: study.systems.index(block.system.name))
    return _with_band(divided, study) if study.band else divided


def _pairings(study: Study) -> list[Study]:
    """The study at each place of its paired axes.

    Raises:
        InputError: lists of different lengths, or an axis that is given beside, too.
    """
    lengths = {axis: len(listed) for axis, listed in study.zipped.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} of {axis}" for axis, count in lengths.items())
        raise InputError(f"--zip: values are paired one by one, and there are {counts}")
    for axis in study.zipped:
        name = field_of(axis)
        stated = getattr(study, name)
        is_stated = axis in stated if isinstance(stated, dict) else stated
        if is_stated and stated != getattr(Study, name, ()):
            raise InputError(
                f"--zip {axis}: this axis has an option of its own, too; leave out one"
            )
    studies = []
    for row in zip(*study.zipped.values(), strict=True):
        changed: dict[str, Any] = {"zipped": {}}
        for axis, value in zip(study.zipped, row, strict=True):
            name = field_of(axis)
            if name in ("sets", "knobs", "parts"):
                before = changed.get(name, getattr(study, name))
                changed[name] = {**before, axis: (value,)}
            else:
                changed[name] = (value,)
        studies.append(replace(study, **changed))
    return studies


def _blocks(study: Study) -> list[Block]:
    """The blocks of a study without paired axes."""
    once(study.traces, "--trace")
    if study.plugins:
        load_plugins(study.plugins)
    systems = list(map(find_system, study.systems))
    if not systems:
        raise InputError("no system is named; `nearkv systems` lists them")
    if not study.models:
        raise InputError(NO_MODEL)
    once(study.systems, "systems")
    parts, labels = models_and_labels(study.models)
    check_knobs(systems, study.knobs)
    workload, traces = _workload_axes(study)
    workload.insert(0, Axis("model", np.arange(float(len(parts))), labels))
    once([name_of(platform) for platform in study.platforms], "--platform")
    divided: list[Block] = []
    for system in systems:
        for stated in study.platforms or (_of_family(system, systems),):
            named = system.platform if stated == OWN else stated
            own = load_platform(named) if isinstance(named, str) else named
            for platform in swapped(own, study.parts):
                sets, axes, ruled = _axes(system, platform, study)
                for case in product(*ruled):
                    swept = [item for item in case if isinstance(item, Axis)]
                    open_knobs = dict(item for item in case if not isinstance(item, Axis))
                    swept += _followers(system, study, open_knobs)
                    block = Block(
                        system=system,
                        platform=platform,
                        parts=parts,
                        grid=Grid((*workload, *axes, *swept)),
                        sets=sets,
                        open_knobs=open_knobs,
                        traces=traces,
                        method=study.method,
                        slo=study.slo,
                        seed=study.seed,
                    )
                    divided.append(block)
    return divided


def _followers(system: System, study: Study, open_knobs: dict[str, str]) -> list[Axis]:
    """Knobs that keep their first value beside one that is stated, taken from the open ones."""
    axes = []
    for name, knob in system.knobs.items():
        is_open = name not in study.knobs and open_knobs.get(name) == "auto"
        if knob.follows and is_open and open_knobs.get(knob.follows) != "auto":
            del open_knobs[name]
            axes.append(Axis(name, np.zeros(1), knob.choices))
    return axes


def _workload_axes(study: Study) -> tuple[list[Axis], tuple[Trace, ...]]:
    """The axes of what is served, and the traces of the `trace` axis.

    Raises:
        InputError: lengths, a batch and a trace that exclude each other.
    """
    check_arrivals(study)
    axes: list[Axis] = []
    traces: tuple[Trace, ...] = ()
    if study.traces or (study.method != "fluid" and not study.arrives):
        has_lengths = any(
            getattr(study, axis) != getattr(Study, axis) for axis in WORKLOAD_OPTIONS
        )
        traces = traces_of(study.traces, study.method, study.seed, has_lengths)
        axes.append(Axis("trace", np.arange(float(len(traces))), study.traces))
    if study.arrives:
        axes.append(
            Axis(ARRIVAL_AXES[study.arrives], np.array(getattr(study, study.arrives)))
        )
    elif not traces:
        axes.append(Axis("batch", np.array(study.batch)))
        if study.per_round:
            axes.append(Axis("per_round", np.array(study.per_round)))
    if not traces:
        axes.append(Axis("context_tok", np.array(study.context)))
        axes.append(Axis("output_tokens", np.array(study.output_tokens)))
    return axes, traces


def check_arrivals(study: Study) -> None:
    """Refuse a batch, or a level of service, that requests which arrive say nothing of.

    Raises:
        InputError: two of batch, rate and users, requests without a prompt, or limits without
            requests that arrive.
    """
    if study.rate and study.users:
        raise InputError("--rate and --users: requests come by one of them; leave one out")
    for name in ("batch", "per_round"):
        if study.arrives and getattr(study, name) != getattr(Study, name):
            other = f"leave it out, or --{study.arrives}"
            option = WORKLOAD_OPTIONS[name]
            raise InputError(f"{option}: its requests all wait from the start; {other}")
    if study.arrives and 0 in study.context:
        raise InputError(
            f"--context 0: requests that arrive have a prompt; give 1 or more, or leave out "
            f"--{study.arrives}"
        )
    if study.slo and not (study.arrives or study.traces):
        advice = "add --rate, --users or a --trace with arrival_s"
        raise InputError(f"--slo: its limits are for requests that arrive; {advice}")


def models_and_labels(
    stated: Sequence[str | Part],
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """The models of a study, and how a table names each.

    Two files may hold models of one name; a table then names all as they were stated.
    """
    names = list(map(name_of, stated))
    once(names, "--model")
    parts: list[Part] = []
    labels: dict[str, None] = {}
    for model in stated:
        part = load_llm(model) if isinstance(model, str) else model
        if isinstance(model, str):
            check_published(part)
        parts.append(part)
        labels[part.name] = None
    distinct = len(labels) == len(parts)
    return tuple(parts), tuple(labels if distinct else names)


def _of_family(system: System, systems: Sequence[System]) -> str:
    """The platform of the first system of the same family, the file that registers both."""
    family = system.model.__module__
    return next(other.platform for other in systems if other.model.__module__ == family)


def name_of(named: str | Part | Platform) -> str:
    """The name of what is named, or was read before."""
    return named if isinstance(named, str) else named.name


def swapped(platform: Platform, parts: Mapping[str, Sequence[str]]) -> Iterator[Platform]:
    """The platform with every combination of parts in its roles; itself where none is named.

    Args:
        platform: with its own parts.
        parts: role -> parts, by name or file.

    Raises:
        InputError: no such role or part, or one of another type than the role takes.
    """
    lists: list[list[tuple[str, Part, str]]] = []
    for role, named in parts.items():
        different = once(named, f"--part {role}")
        lists.append([(role, load_part(name), name) for name in different])
    for combination in product(*lists):
        variant = platform
        for role, part, name in combination:
            variant = variant.with_part(role, part, name)
        yield variant


KnobCase = tuple[str, str]
"""A knob and the rule, or `auto`, that chooses it: a case of its own, no axis."""


def _axes(
    system: System, platform: Platform, study: Study
) -> tuple[dict[str, str], list[Axis], list[list[Axis | KnobCase]]]:
    """Hardware numbers and knobs of a study, for one system on one platform.

    Returns:
        Axes that replace a hardware number (axis name -> `role.key`), these axes, and of each other
        knob its plain numbers as one axis and each of its rules as a case of its own.

    Raises:
        InputError: a number or a knob that cannot be used, or that is given twice.
    """
    sets: dict[str, str] = {}
    axes: list[Axis] = []
    cases: list[list[Axis | KnobCase]] = []

    def replaces(name: str, address: str, values: Sequence[KnobValue]) -> None:
        numbers = in_si(values, platform.key(address), f"--set {address}")
        axes.append(Axis(name, np.array(numbers)))
        sets[name] = address

    for address, values in study.sets.items():
        replaces(address, address, values)
    for name, knob in system.knobs.items():
        stated = study.knobs.get(name)
        if not knob.sets:
            usual = (study.published and knob.published) or knob.default
            values = stated or choices(usual, f"--knob {name}")
            if knob.share and knob.names[-1] in values and knob.share not in study.knobs:
                raise InputError(
                    f"--knob {name}={knob.names[-1]}: give {knob.share} a value as well"
                )
            cases.append(_knob_cases(system, name, knob, values))
        elif stated:
            if knob.sets in study.sets:
                both = f"--knob {name} and --set {knob.sets}"
                raise InputError(f"{both} say the same thing; give one of them")
            replaces(name, knob.sets, stated)
    if axes:
        extremes = {
            sets[axis.name]: (axis.values.min(), axis.values.max()) for axis in axes
        }
        platform.check(extremes)
        platform.warn_of_doubts(extremes)
    return sets, axes, cases


def _knob_cases(
    system: System, name: str, knob: Knob, values: Sequence[KnobValue]
) -> list[Axis | KnobCase]:
    """A knob's plain numbers as one axis, each rule or `auto` as a case of its own.

    Raises:
        InputError: a value that the knob does not take.
    """
    numbers: list[float] = []
    rules: list[Axis | KnobCase] = []
    for value in values:
        text = value if isinstance(value, str) else value.text
        if text in knob.names:
            numbers.append(float(knob.names.index(text) % len(knob.choices)))
        elif text in knob.rule_names:
            rules.append((name, text))
        elif text == "auto":
            given = "it describes requests or the model, which no solver may choose"
            raise InputError(f"--knob {name}=auto: {given}; give it a value")
        elif isinstance(value, str) and knob.kind == "choice":
            known = [*knob.choices, *knob.rule_names]
            raise unknown(f"value of {name}", text, known)
        elif isinstance(value, Amount) and _takes(knob, value):
            numbers.append(value.si)
        else:
            problem = _knob_fault(system, knob)
            raise InputError(f"--knob {name}: {text!r} {problem}")
    if not numbers:
        return rules
    return [Axis(name, np.array(numbers), knob.choices), *rules]


def _takes(knob: Knob, value: Amount) -> bool:
    """True if a knob takes a number; one with a unit it does not."""
    if value.dimension != "1" or not knob.low <= value.si <= knob.high:
        return False
    return knob.is_continuous or value.si == int(value.si)


def _knob_fault(system: System, knob: Knob) -> str:
    """Name what a knob takes, for a value that it does not."""
    if knob.choices:
        listed = ", ".join(dict.fromkeys([*knob.choices, *knob.rule_names]))
        return f"is none of {listed}"
    numbers = "a number" if knob.is_continuous else "a whole number"
    limits = f"from {knob.low:,.10g} to {knob.high:,.10g}"
    taken = ", or ".join(filter(None, [f"{numbers} {limits}", ", ".join(knob.rule_names)]))
    return f"does not fit: {system.name} takes {taken}"


def _with_band(divided: list[Block], study: Study) -> list[Block]:
    """Blocks with a band, which all share their draws."""
    band = Band(study.band, study.samples, study.seed)
    check_band(band, study.method)
    drawn = {MODEL_ERROR, RATIO_ERROR}
    for block in divided:
        drawn |= set(block.draws.values())
    common = replace(band, names=tuple(sorted(drawn)))
    return [replace(block, band=common) for block in divided]


def one_block(
    study: Study,
    command: str = "estimate",
    needed: str = "one design point; use compare or sweep for lists",
) -> Block:
    """The block of a study of one design point.

    Args:
        study: what to evaluate.
        command, needed: what takes but so much, used in errors.

    Raises:
        InputError: the study cannot be evaluated, or is not one design point.
    """
    first, *others = blocks(study)
    if others or first.grid.size != 1:
        raise InputError(f"{command} takes {needed}")
    return first


def one_point(study: Study, read: set[str] | None = None) -> tuple[Machine, LLM]:
    """The machine and the model of a study of one design point, as scalars.

    Args:
        study: of one model on one machine.
        read: takes the name of each hardware number that is read, `role.key`.

    Raises:
        InputError: the study cannot be evaluated or holds more than one point.
    """
    needed = "one model, one platform, one part of a role and one value of each --set"
    block = one_block(study, "this", f"{needed}, not a list")
    hw, llm, _, _ = block.at(block.grid.mesh(block.grid.whole), read=read)
    return hw, llm

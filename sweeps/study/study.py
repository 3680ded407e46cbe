"""What to evaluate: systems, models, workloads, numbers and knobs, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

import numpy as np

from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import check_published
from nearkv.costmodel.model.registry import check_knobs, find_system
from nearkv.hardware.catalog import Part, Platform, load_llm, load_platform
from nearkv.hardware.errors import InputError, once
from nearkv.hardware.machine import Machine
from nearkv.sweeps.study.axes import name_axis, size_axis
from nearkv.sweeps.study.bands import (
    MODEL_ERROR,
    RATIO_ERROR,
    SAMPLES,
    Band,
    check_band,
)
from nearkv.sweeps.study.block import NONE, Block, Numbers
from nearkv.sweeps.study.cases import cases, swapped
from nearkv.sweeps.study.grid import Axis, Grid
from nearkv.sweeps.study.plugin_files import load_plugins
from nearkv.sweeps.study.sizes import comma_list, pairs
from nearkv.sweeps.study.traces import traces_of
from nearkv.sweeps.study.zipped import LENGTHS, NAMES, field_of, pairings

__all__ = [
    "NONE",
    "Block",
    "Numbers",
    "Study",
    "blocks",
    "comma_list",
    "one_point",
    "pairs",
]


@dataclass(frozen=True)
class Study:
    """The question of a user, as written.

    Attributes:
        systems: names.
        models: names, or models read before.
        batch, context, output_tokens: lists of sizes.
        platforms: names, or platforms read before; empty for the test bed of each system's paper.
        sets: hardware number (`role.key`) -> list of values.
        parts: role of the platform -> list of parts that fill it, in place of its own.
        knobs: knob -> list of values, rules or `auto`.
        traces: names or CSV files that bring their own lengths, in place of batch, context
            and output.
        method: `fluid`, or `simulate` to serve the queue of a trace event by event.
        seed: of the requests drawn from a trace, and of the draws of a band.
        band: share of the draws inside the range of each answer [%]; 0 for no range.
        samples: draws of a band.
        plugins: files that register systems of the user's own.
        zipped: axis -> list of values that go together with those of the other axes here.
    """

    systems: tuple[str, ...]
    models: tuple[str | Part, ...]
    batch: str = "16"
    context: str = "32k"
    output_tokens: str = "64"
    platforms: tuple[str | Platform, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    method: str = "fluid"
    seed: int = 0
    band: float = 0.0
    samples: int = SAMPLES
    plugins: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    zipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_lengths(self) -> bool:
        """Whether a batch, a context or an output differs from the default."""
        lengths = (self.batch, self.context, self.output_tokens)
        return lengths != (Study.batch, Study.context, Study.output_tokens)

    @property
    def workload_axes(self) -> int:
        """Number of axes of models and workloads; they come first in every grid."""
        return 2 if self.traces else 4


def blocks(study: Study) -> list[Block]:
    """Check a study and divide it into blocks, system by system.

    Raises:
        InputError: any name, number or combination that cannot be evaluated.
    """
    divided: list[Block] = []
    for part in _expanded(study):
        divided += _blocks(part)
    divided.sort(key=lambda block: study.systems.index(block.system.name))
    return _with_band(divided, study) if study.band else divided


def _expanded(study: Study) -> list[Study]:
    """The studies of paired axes, one for each pairing; itself where none are paired."""
    if not study.zipped:
        return [study]
    studies = []
    for pairing in pairings(study.zipped):
        part = replace(study, zipped={})
        for axis, value in pairing.items():
            part = _with_value(part, axis, value)
        studies.append(part)
    return studies


def _with_value(study: Study, axis: str, value: str) -> Study:
    """A study with one value of one axis.

    Raises:
        InputError: the axis is given beside.
    """
    name = field_of(axis)
    stated = getattr(study, name)
    changed: dict[str, Any] = {name: value}
    is_given = stated != getattr(Study, name, ())
    if axis in NAMES:
        changed = {name: (value,)}
    elif axis not in LENGTHS:
        changed = {name: {**stated, axis: value}}
        is_given = axis in stated
    if is_given:
        raise InputError(f"--zip {axis}: is given beside it too; leave out one")
    return replace(study, **changed)


def _blocks(study: Study) -> list[Block]:
    """The blocks of a study without paired axes."""
    model_names = once(_names_of(study.models), "--model")
    once(_names_of(study.platforms), "--platform")
    once(study.traces, "--trace")
    load_plugins(study.plugins)
    systems = [find_system(name) for name in study.systems]
    parts = tuple(_read_model(model) for model in study.models)
    if not systems or not parts:
        raise InputError("nothing to evaluate; name at least one system and one --model")
    once(study.systems, "systems")
    check_knobs(systems, study.knobs)
    traces = traces_of(study.traces, study.method, study.seed, study.has_lengths)
    labels = tuple(part.name for part in parts)
    if len(set(labels)) < len(labels):
        labels = tuple(model_names)
    workload = (name_axis("model", labels), *_workload_axes(study))
    divided: list[Block] = []
    for system in systems:
        stated = study.platforms or (system.platform,)
        read = [_read_platform(platform) for platform in stated]
        for platform in chain(*(swapped(platform, study.parts) for platform in read)):
            for case in cases(system, platform, study.sets, study.knobs):
                grid = Grid((*workload, *case.axes))
                divided.append(
                    Block(
                        system=system,
                        platform=platform,
                        parts=parts,
                        grid=grid,
                        sets=case.sets,
                        requested=case.requested,
                        traces=traces,
                        method=study.method,
                    )
                )
    return divided


def _with_band(divided: list[Block], study: Study) -> list[Block]:
    """The same blocks, all of which share their draws."""
    band = Band(study.band, study.samples, study.seed)
    check_band(band, study.method)
    names = {MODEL_ERROR, RATIO_ERROR}
    for block in divided:
        names |= set(block.draws.values())
    common = replace(band, names=tuple(sorted(names)))
    return [replace(block, band=common) for block in divided]


def _workload_axes(study: Study) -> tuple[Axis, ...]:
    if study.traces:
        return (name_axis("trace", study.traces),)
    return (
        size_axis("batch", study.batch, "--batch"),
        size_axis("context_tok", study.context, "--context"),
        size_axis("output_tokens", study.output_tokens, "--output-tokens"),
    )


def _read_model(model: str | Part) -> Part:
    if isinstance(model, Part):
        return model
    part = load_llm(model)
    check_published(part)
    return part


def _read_platform(platform: str | Platform) -> Platform:
    if isinstance(platform, Platform):
        return platform
    return load_platform(platform)


def _names_of(items: Iterable[str | Part | Platform]) -> tuple[str, ...]:
    names = []
    for item in items:
        name = item if isinstance(item, str) else item.name
        names.append(name)
    return tuple(names)


def one_point(study: Study) -> tuple[Machine, LLM]:
    """The machine and the model of a study of one design point, as scalars.

    Raises:
        InputError: the study cannot be evaluated or holds more than one point.
    """
    divided = blocks(study)
    if len(divided) != 1 or divided[0].grid.size != 1:
        needed = "one model, one platform and one value of each --set"
        raise InputError(f"this takes {needed}, not a list")
    hw, llm, _, _ = divided[0].inputs(divided[0].grid.whole)
    roles: dict[str, dict[str, float]] = {}
    for name, role in hw.roles.items():
        roles[name] = {key: np.ravel(value)[0] for key, value in role.values.items()}
    return Machine(hw.platform, roles), _scalar(llm)


def _scalar(llm: LLM) -> LLM:
    """A model of one design point, as scalars."""
    sizes: dict[str, Any] = {}
    for field_ in fields(llm):
        value = getattr(llm, field_.name)
        if isinstance(value, Mapping):
            sizes[field_.name] = {name: _scalar(kind) for name, kind in value.items()}
        elif value is not None:
            sizes[field_.name] = np.ravel(value)[0]
    return replace(llm, **sizes)

"""Divide what is asked of a system into grids: numbers are axes, each rule of a knob is a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from nearkv.costmodel.model.registry import System
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import InputError, once
from nearkv.hardware.part import Part
from nearkv.hardware.platform import Platform
from nearkv.solvers.knobs import Requested
from nearkv.sweeps.study.axes import RuledKnob, hardware_axis, knob_choices
from nearkv.sweeps.study.grid import Axis
from nearkv.sweeps.study.sizes import comma_list


@dataclass(frozen=True)
class Case:
    """Hardware numbers and knobs of one grid.

    Attributes:
        axes: swept hardware numbers and knobs.
        sets: axes that replace a hardware number: axis name -> `role.key`.
        requested: knobs that a solver or a rule chooses, by name.
    """

    axes: tuple[Axis, ...]
    sets: Mapping[str, str]
    requested: Mapping[str, Requested]


def cases(
    system: System, platform: Platform, texts: Mapping[str, str], knobs: Mapping[str, str]
) -> list[Case]:
    """One case for each combination of rules of the knobs; their numbers are axes.

    Args:
        system, platform: what runs where.
        texts: hardware number (`role.key`) -> its values as the user wrote them.
        knobs: knob -> values, rules or `auto`, as the user wrote them.

    Raises:
        InputError: a number or a knob that cannot be read, or that is given twice.
    """
    sets = {address: address for address in texts}
    axes = [
        hardware_axis(address, address, text, platform) for address, text in texts.items()
    ]
    choices: list[list[Axis | RuledKnob]] = []
    for name, knob in system.knobs.items():
        text = knobs.get(name, "")
        if not knob.sets:
            choices.append(knob_choices(system, name, text or str(knob.default)))
        elif text:
            if knob.sets in texts:
                both = f"--knob {name} and --set {knob.sets}"
                raise InputError(f"{both} say the same thing; give one of them")
            axes.append(hardware_axis(name, knob.sets, text, platform))
            sets[name] = knob.sets
    extremes = {sets[axis.name]: (axis.values.min(), axis.values.max()) for axis in axes}
    platform.check(extremes)
    platform.warn_of_doubts(extremes)
    divided: list[Case] = []
    for combination in product(*choices):
        swept = [item for item in combination if isinstance(item, Axis)]
        ruled = [item for item in combination if isinstance(item, RuledKnob)]
        requested = {knob.name: knob.rule for knob in ruled}
        divided.append(Case((*axes, *swept), sets, requested))
    return divided


def swapped(platform: Platform, parts: Mapping[str, str]) -> Iterator[Platform]:
    """The platform with every combination of parts in its roles; itself where none is named.

    Args:
        platform: with its own parts.
        parts: role -> comma-separated parts, by name or file.

    Raises:
        InputError: no such role or part, or one of another kind than the role takes.
    """
    choices: list[list[tuple[str, Part, str]]] = []
    for role, text in parts.items():
        names = once(comma_list(text), f"--part {role}")
        choices.append([(role, load_part(name), name) for name in names])
    for combination in product(*choices):
        variant = platform
        for role, part, name in combination:
            variant = variant.with_part(role, part, name)
        yield variant

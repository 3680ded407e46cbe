"""Build the axes of a grid: workload, hardware numbers and knobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.model.registry import Knob, System
from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.units import parse
from nearkv.sweeps.study.grid import Axis
from nearkv.sweeps.study.sizes import Reader, comma_list, number, size, values


@dataclass(frozen=True)
class RuledKnob:
    """A knob that a solver or a closed form chooses: a case of its own, no axis.

    Attributes:
        name: of the knob.
        rule: `auto` or the name of a rule.
    """

    name: str
    rule: str


def name_axis(name: str, labels: tuple[str, ...]) -> Axis:
    """An axis of names, as their places in the list."""
    places = np.arange(float(len(labels)))
    return Axis(name, places, labels)


def size_axis(name: str, text: str, option: str) -> Axis:
    """An axis of sizes, as written in an option."""
    sizes = values(text, size, option)
    return Axis(name, np.array(sizes))


def hardware_axis(name: str, address: str, text: str, platform: Platform) -> Axis:
    """An axis that replaces a hardware number.

    Args:
        name: of the axis.
        address: of the number, as `role.key`.
        text: values as the user wrote them.
        platform: holds the number.
    """
    key = platform.key(address)
    numbers = values(text, number(key), f"--set {address}")
    return Axis(name, np.array(numbers))


def knob_choices(system: System, name: str, text: str) -> list[Axis | RuledKnob]:
    """A knob's plain numbers as one axis, each rule or `auto` as a case of its own.

    Raises:
        InputError: no value, or one that the knob does not take.
    """
    knob = system.knobs[name]
    items = comma_list(text)
    if not items:
        problem = "names no value; give a number, a rule or auto"
        raise InputError(f"--knob {name}={text!r}: {problem}")
    if knob.kind == "choice":
        items = tuple(_choice(name, knob, item) for item in items)
    ruled = [item for item in items if item == "auto" or item in knob.rules]
    plain = [item for item in items if item not in ruled]
    choices: list[Axis | RuledKnob] = []
    if plain:
        reader = _knob_reader(system, knob)
        numbers = values(",".join(plain), reader, f"--knob {name}")
        choices.append(Axis(name, np.array(numbers), knob.choices))
    choices += [RuledKnob(name, rule) for rule in ruled]
    return choices


def _choice(name: str, knob: Knob, item: str) -> str:
    if item in knob.choices:
        place = knob.choices.index(item)
        return str(place)
    if item == "auto" or item in knob.rules or item.isdigit():
        return item
    raise unknown(f"value of {name}", item, [*knob.choices, *knob.rules, "auto"])


def _knob_reader(system: System, knob: Knob) -> Reader:
    def fault(value: float) -> str:
        allowed = knob.low <= value <= knob.high
        whole = value == int(value)
        if allowed and (whole or knob.kind == "share"):
            return ""
        return _knob_fault(system, knob)

    return Reader(lambda text, where: parse(text, "1", where), fault)


def _knob_fault(system: System, knob: Knob) -> str:
    """A sentence about a value that a knob does not take: what it takes."""
    if knob.choices:
        names = ", ".join(dict.fromkeys([*knob.choices, *knob.rules, "auto"]))
        return f"is none of {names}"
    kind = "a number" if knob.kind == "share" else "a whole number"
    limits = f"from {knob.low:,.10g} to {knob.high:,.10g}"
    rules = ", ".join(["auto", *knob.rules])
    return f"does not fit: {system.name} takes {kind} {limits}, or {rules}"

"""All machines that can be assembled for some systems, as boxes of sizes and counts.

A case is a system, a server, a part for each slot that the system needs, and a value of all that is
enumerated. What is left is a box: how much DRAM, and how many parts of one slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from nearkv.costmodel.model.registry import ANY, System
from nearkv.hardware.part import Part
from nearkv.hardware.platform import Platform
from nearkv.hardware.server import Count, Fitted, Server, memory_of

BROUGHT = ("chassis", "link")
"""Types of part that a server brings, whatever is in its slots."""
ENUMERATED = ("gpu", "ownership")
"""Roles whose numbers are never the axis of a box: a larger ring may be slower, rent is no more."""


@dataclass(frozen=True)
class SlotChoice:
    """How many parts are in a slot, or how much DRAM.

    Attributes:
        role: of the slot; `host` stands for its DRAM.
        values: rising [1] or [B].
        numbers: number of the machine that follows it, `role.key` -> its values [SI].
    """

    role: str
    values: tuple[float, ...]
    numbers: Mapping[str, tuple[float, ...]]


NOTHING = SlotChoice("", (0.0,), {})
"""In place of an axis that a case does not have."""


@dataclass(frozen=True)
class Case:
    """Machines of one system with the same parts, as a box.

    Attributes:
        system, server: what runs where.
        parts: in the slots that are chosen, by role, at the least count.
        given: what is enumerated, by role: a count, DRAM [B], or 1 for a machine that is rented.
        numbers: of the machine that follow from that, by `role.key` [SI].
        axes: DRAM, and the count of one slot.
        last: place of the largest value of each axis that can be assembled.
    """

    system: System
    server: Server
    parts: Mapping[str, Part]
    given: Mapping[str, float]
    numbers: Mapping[str, float]
    axes: tuple[SlotChoice, SlotChoice]
    last: tuple[int, int]

    @property
    def name(self) -> str:
        """All that tells it from other cases."""
        words = [f"{self.system.name} on {self.server.part.name}"]
        words += [f"{role}={part.name}" for role, part in self.parts.items()]
        words += [f"{role}:{value:g}" for role, value in self.given.items()]
        ends = zip(self.axes, self.last, strict=True)
        words += [
            f"{axis.role}:{axis.values[0]:g}..{axis.values[end]:g}" for axis, end in ends
        ]
        return " ".join(words)

    @property
    def roles(self) -> dict[str, Part]:
        """Every part of its machines, by role."""
        return {**self.server.as_sold.roles, **self.parts}

    def values(self, point: Sequence[int]) -> dict[str, float]:
        """What is chosen at a point, by role, as in `given`."""
        spanned = zip(self.axes, point, strict=True)
        return {**self.given, **{axis.role: axis.values[place] for axis, place in spanned}}

    def machine(self, point: Sequence[int]) -> Platform:
        """The machine at a point, under the name of its server."""
        values = self.values(point)
        memory = values.pop("host", 0.0)
        build = {
            role: Fitted(part, values.get(role, part.si["count"]))
            for role, part in self.parts.items()
        }
        machine = self.server.machine(build, memory)
        owned = machine.override("ownership.rented", values.get("ownership", 0.0))
        return replace(owned, name=self.server.part.name)


def cases_of(
    system: System,
    server: Server,
    offered: Mapping[str, Sequence[Part]],
    measures: Sequence[str],
    is_whole: bool,
    rents: bool = False,
) -> Iterator[Case]:
    """All cases of a system on a server.

    Args:
        system, server: what runs where; none where the server lacks a slot of what it owns.
        offered: role -> parts that may be fitted, at the least count.
        measures: that bound a box; an axis in which one is not monotone is enumerated.
        is_whole: whether all sequences are served at once.
        rents: whether each machine may be rented, too.
    """
    needed = [role for role in system.owns if role in server.slots]
    brought = {role for role, part in server.platform.roles.items() if part.type in BROUGHT}
    # what systems read of a host is found missing once they are asked
    absent_host = {"host"} - server.platform.roles.keys()
    is_complete = {*system.owns} <= {*needed, *brought, *absent_host}
    if not needed or not is_complete:
        return
    choices = _choices(server, needed, rents)
    monotone = [choice for choice in choices if is_axis(system, choice, measures, is_whole)]
    dram = [choice for choice in monotone if choice.role == "host"]
    # one alone, so that what lanes and supply carry is a range of counts
    counted = [choice for choice in monotone if choice.role != "host"][-1:]
    axes = ([*dram, NOTHING][0], [*counted, NOTHING][0])
    enumerated = [choice for choice in choices if choice not in axes]
    shape = [range(len(choice.values)) for choice in enumerated]
    for chosen in product(*(offered[role] for role in needed)):
        parts = dict(zip(needed, chosen, strict=True))
        for places in product(*shape):
            given: dict[str, float] = {}
            numbers: dict[str, float] = {}
            for choice, place in zip(enumerated, places, strict=True):
                given[choice.role] = choice.values[place]
                numbers |= {key: values[place] for key, values in choice.numbers.items()}
            count = _assembled(server, parts, given, axes[1])
            if count:
                last = (len(axes[0].values) - 1, count - 1)
                yield Case(system, server, parts, given, numbers, axes, last)


def _assembled(
    server: Server,
    parts: Mapping[str, Part],
    given: Mapping[str, float],
    counted: SlotChoice,
) -> int:
    """Number of values of an axis, the smallest first, that lanes and supply carry."""
    counts: dict[str, Count] = {**given, counted.role: np.array(counted.values)}
    counts.pop("host", None)
    build = {
        role: Fitted(part, counts.get(role, part.si["count"]))
        for role, part in parts.items()
    }
    lanes, watts = server.draws(build).values()
    fits = np.less_equal(*lanes) & np.less_equal(*watts)
    return int(np.sum(np.broadcast_to(fits, len(counted.values))))


def is_axis(
    system: System, choice: SlotChoice, measures: Sequence[str], is_whole: bool
) -> bool:
    """Whether every measure that bounds a box is monotone in a choice."""
    if choice.role in ENUMERATED or system.combinations:
        return False  # of splits, the best for one span may be slow in another
    placed = ("prefill_s", "step_ms") if is_whole and places_weights(system) else ()
    return all(
        measure in placed or system.is_monotone(measure, address)
        for measure, address in product(measures, choice.numbers)
    )


def places_weights(system: System) -> bool:
    """Whether prefill and steps trade against each other by the placement of weights alone.

    Each of them is then monotone with weights placed for it alone, which bounds it.
    """
    has_share = any(knob.share for knob in system.knobs.values())
    trades = [
        reversal.axes == (ANY,) and "total_s" not in reversal.measures
        for reversal in system.reversals
    ]
    return has_share and len(trades) > 0 and all(trades)


def _choices(server: Server, roles: Sequence[str], rents: bool) -> list[SlotChoice]:
    """What may be chosen on a server beside its parts: counts, DRAM, and whether it is rented."""
    choices = []
    for role in roles:
        slot = server.slots[role]
        if len(slot.counts) > 1:
            counted = {f"{name}.count": slot.counts for name in (role, *slot.links)}
            choices.append(SlotChoice(role, slot.counts, counted))
        if slot.sizes:
            choices.append(SlotChoice(role, slot.sizes, _dram(server, role)))
    if rents:
        choices.append(
            SlotChoice("ownership", (0.0, 1.0), {"ownership.rented": (0.0, 1.0)})
        )
    return choices


def _dram(server: Server, role: str) -> dict[str, tuple[float, ...]]:
    """The DRAM of a host, and what its system may use of it, at each size of its slot [B]."""
    host, sizes = server.platform.roles[role], server.slots[role].sizes
    by_size = [memory_of(host, size) for size in sizes]
    return {f"{role}.{key}": tuple(each[key] for each in by_size) for key in by_size[0]}

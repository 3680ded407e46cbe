"""All machines that can be assembled for some systems, as boxes of counts and sizes.

A case is a system, a server, a part for each slot that the system needs, and a number for all that
is enumerated. What is left is a box: how many drives, how much DRAM. Cases of a system whose
machines state the same numbers are evaluated together, as points of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from operator import attrgetter

import numpy as np

from nearkv.costmodel.model.registry import ANY, System
from nearkv.hardware.part import Part
from nearkv.hardware.platform import Platform
from nearkv.hardware.server import Fitted, Server
from nearkv.solvers.boxes import Integers, Mask, Numbers
from nearkv.solvers.knobs import TOTAL
from nearkv.solvers.shares.solve import Timed

MONEY = ("price", "rent", "power", "idle_power")
"""Numbers that parts of one slot may state or not without being evaluated apart."""
BROUGHT = ("chassis", "link")
"""Types of part that a server brings, whatever is in its slots."""
PLACED_FOR: Mapping[str, Timed] = {
    "prefill": attrgetter("prefill"),
    "step": attrgetter("step"),
    "total": TOTAL,
}
"""The span of an estimate for which weights are placed."""
ENUMERATED = ("gpu", "ownership")
"""Roles whose numbers are never the axis of a box: a larger ring may be slower, rent is no more."""


@dataclass(frozen=True)
class Choice:
    """One axis of a case: how many parts of a slot, or how much DRAM.

    Attributes:
        role: of the slot; `host` stands for its DRAM.
        values: rising [1] or [B].
        addresses: numbers of the machine that follow it, as `role.key`.
    """

    role: str
    values: tuple[float, ...]
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Offer:
    """Parts that may be fitted in a slot and state the same numbers, apart from those of money.

    Attributes:
        parts: to choose from.
        table: number -> value of each part in its place [SI].
    """

    parts: tuple[Part, ...]
    table: Mapping[str, Numbers]


def offers(server: Server, role: str, parts: Sequence[Part]) -> list[Offer]:
    """Parts for a slot, by which numbers they state."""
    alike: dict[frozenset[str], list[Part]] = {}
    for part in parts:
        alike.setdefault(frozenset(part.numbers.keys() - set(MONEY)), []).append(part)
    listed = []
    for own in alike.values():
        least = server.slots[role].counts[0]
        placed = [server.placed(role, Fitted(part, least)).si for part in own]
        keys = dict.fromkeys(key for si in placed for key in si)
        table = {key: np.array([_stated(si, key) for si in placed]) for key in keys}
        listed.append(Offer(tuple(own), table))
    return listed


@dataclass(frozen=True)
class Cases:
    """Cases of one system on one server whose parts state the same numbers.

    Attributes:
        system, server: what runs where.
        roles: slots that are chosen.
        offers: of each slot, the parts to choose from.
        picks: place of the part of each slot, and then of each enumerated value: (cases, choices).
        enumerated, axes: what is given by the case, and what spans its box.
        machine: the first of them.
    """

    system: System
    server: Server
    roles: tuple[str, ...]
    offers: tuple[Offer, ...]
    picks: Integers
    enumerated: tuple[Choice, ...]
    axes: tuple[Choice, ...]
    machine: Platform

    def __len__(self) -> int:
        return len(self.picks)

    @cached_property
    def names(self) -> list[str]:
        """A name a case, which no other has."""
        named = []
        for case in range(len(self)):
            parts = [f"{role}={self.part(role, case).name}" for role in self.roles]
            places = zip(self.enumerated, self.picks[case, len(self.roles) :], strict=True)
            given = [f"{choice.role}:{choice.values[place]:g}" for choice, place in places]
            spanned = [
                f"{axis.role}:{axis.values[0]:g}..{axis.values[-1]:g}" for axis in self.axes
            ]
            machine = f"{self.system.name} on {self.server.part.name}"
            named.append(" ".join([machine, *parts, *given, *spanned]))
        return named

    def part(self, role: str, case: int) -> Part:
        """The part in a slot of a case."""
        place = self.roles.index(role)
        return self.offers[place].parts[int(self.picks[case, place])]

    def values(self, case: int, point: Sequence[int]) -> dict[str, float]:
        """How many parts are in each slot of a point, and the DRAM of its host."""
        places = self.picks[case, len(self.roles) :]
        given = zip(self.enumerated, places, strict=True)
        spanned = zip(self.axes, point[: len(self.axes)], strict=True)
        return {choice.role: choice.values[place] for choice, place in (*given, *spanned)}

    def build(self, case: int, point: Sequence[int]) -> tuple[dict[str, Fitted], float]:
        """What is fitted at a point, and its DRAM [B]; 0 where the host has what it comes with."""
        values = self.values(case, point)
        memory = values.pop("host", 0.0)
        least = {role: self.server.slots[role].counts[0] for role in self.roles}
        build = {
            role: Fitted(self.part(role, case), values.get(role, least[role]))
            for role in self.roles
        }
        return build, memory

    def numbers(self, case: Integers, point: Integers) -> dict[str, Numbers]:
        """The numbers of the machines at some points that differ from the first [SI]."""
        numbers = {}
        for place, role in enumerate(self.roles):
            for key, table in self.offers[place].table.items():
                numbers[f"{role}.{key}"] = table[self.picks[case, place]]
        given = self.picks[case, len(self.roles) :].T
        for choice, places in zip(
            (*self.enumerated, *self.axes), (*given, *point.T), strict=False
        ):
            values = np.array(choice.values)[places]
            for address in choice.addresses:
                numbers[address] = values * self._scales.get(address, 1.0)
        return numbers

    @cached_property
    def chosen(self) -> list[str]:
        """The numbers of its machines that follow from what is chosen, as `role.key`."""
        nothing = np.zeros(0, np.int64)
        return list(self.numbers(nothing, np.zeros((0, len(self.axes)), np.int64)))

    def assembles(self, case: Integers, point: Integers) -> Mask:
        """Whether lanes and supply carry what is fitted."""
        numbers = self.numbers(case, point)
        delivered = self.machine.roles
        counts: dict[str, Numbers] = {}
        watts: dict[str, Numbers] = {}
        for role in self.server.slots:
            stated = delivered[role].si
            counts[role] = numbers.get(f"{role}.count", np.array(stated["count"]))
            own = np.array(stated.get("power", 0.0))
            watts[role] = np.nan_to_num(numbers.get(f"{role}.power", own))
        drawn = self.server.draws(counts, watts).values()
        within = [np.less_equal(needed, there) for needed, there in drawn]
        every: Mask = np.broadcast_to(np.logical_and(*within), case.shape)
        return every

    @cached_property
    def _scales(self) -> dict[str, float]:
        """What a system may use of the DRAM, as a share of it [1]."""
        host = self.machine.roles["host"].si if "host" in self.machine.roles else {}
        usable = host.get("kv_memory", 0.0) / host.get("memory", 1.0)
        return {"host.kv_memory": usable}


def _stated(si: Mapping[str, float], key: str) -> float:
    """A number of a part; its idle power where it states none at work, NaN where it has none."""
    return si.get(key, si.get("idle_power", np.nan) if key == "power" else np.nan)


def cases_of(
    system: System,
    server: Server,
    offered: Mapping[str, Sequence[Offer]],
    measures: Sequence[str],
    is_whole: bool,
    rents: bool = False,
) -> Iterator[Cases]:
    """All cases of a system on a server, those with the same numbers together.

    Args:
        system, server: what runs where; none where the server lacks a slot of what it owns.
        offered: role -> parts that may be fitted.
        measures: that bound a box; an axis in which one is not monotone is enumerated.
        is_whole: whether all sequences are served at once.
        rents: whether each machine may be rented, too.
    """
    needed = [role for role in system.owns if role in server.slots]
    brought = {role for role, part in server.platform.roles.items() if part.type in BROUGHT}
    # what systems read of a host is found missing once they are asked
    has_host = "host" in server.platform.roles
    is_whole = set(system.owns) <= {*needed, *brought, *(() if has_host else ("host",))}
    if not needed or not is_whole or not all(offered[role] for role in needed):
        return
    choices = _choices(server, needed)
    if rents:
        choices.append(Choice("ownership", (0.0, 1.0), ("ownership.rented",)))
    axes = tuple(
        choice for choice in choices if is_axis(system, choice, measures, is_whole)
    )
    enumerated = tuple(choice for choice in choices if choice not in axes)
    for chosen in product(*(offered[role] for role in needed)):
        shape = [*(len(offer.parts) for offer in chosen)]
        shape += [len(choice.values) for choice in enumerated]
        picks = np.indices(shape).reshape(len(shape), -1).T
        roles = dict(server.as_sold.roles)
        for role, offer in zip(needed, chosen, strict=True):
            least = server.slots[role].counts[0]
            roles[role] = server.placed(role, Fitted(offer.parts[0], least))
        machine = replace(server.as_sold, roles=roles)
        yield Cases(system, server, tuple(needed), chosen, picks, enumerated, axes, machine)


def is_axis(
    system: System, choice: Choice, measures: Sequence[str], is_whole: bool
) -> bool:
    """Whether every measure that bounds a box is monotone in a choice."""
    if choice.role in ENUMERATED or system.combinations:
        return False  # of splits, the best for one span may be slow in another
    is_placed = is_whole and places_weights(system)
    return all(
        system.is_monotone(measure, address)
        or (is_placed and measure in ("prefill_s", "step_ms"))
        for measure, address in product(measures, choice.addresses)
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


def _choices(server: Server, roles: Sequence[str]) -> list[Choice]:
    """What may be chosen on a server beside its parts: counts, and DRAM."""
    choices = []
    for role in roles:
        slot = server.slots[role]
        counted = tuple(f"{name}.count" for name in (role, *slot.links))
        if len(slot.counts) > 1:
            choices.append(Choice(role, slot.counts, counted))
        if slot.sizes:
            keys = [
                key
                for key in ("memory", "kv_memory")
                if key in server.platform.roles[role].si
            ]
            choices.append(Choice(role, slot.sizes, tuple(f"{role}.{key}" for key in keys)))
    return choices

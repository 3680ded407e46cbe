"""All machines on which a system may run: what fits the slots of servers, in every combination."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Integers, Numbers
from nearkv.costmodel.model.metrics import SERVER, Evaluated, cost, power_cap, rack_units
from nearkv.hardware.machine import recording
from nearkv.hardware.platform import Part, Platform
from nearkv.hardware.schema import PARTLESS
from nearkv.hardware.server import Fitted, Server, memory_of

BROUGHT = ("chassis", "link")
"""Types of part that a server brings, whatever is in its slots."""
OF_PARTS = {"cost_usd": cost, "power_cap_w": power_cap, "rack_units": rack_units}
"""Column that follows from the parts alone, so that it is known before a machine is evaluated."""
ABSENT = -1
"""In place of a part where a machine does not have the role."""


Places = NDArray[np.int32]
Computed = TypeVar("Computed")


@dataclass(frozen=True)
class Option:
    """Choices in one role of a server: a part, how many, how much DRAM.

    Attributes:
        fitted: the part, and how many.
        memory: DRAM of the host; 0 in other roles [B].
        fills: role -> the numbers that the machine has there: the part's, and those of its links.
    """

    fitted: Fitted
    memory: float
    fills: Mapping[str, Mapping[str, float]]


def options_of(server: Server, role: str, parts: Sequence[Part]) -> list[Option]:
    """All that may be fitted in a slot, by the name of the part, then the fewest first."""
    slot = server.slots[role]
    links = {count: server.linked(role, count) for count in slot.counts}
    options = []
    for part in parts:
        placed = server.placed(role, Fitted(part, slot.counts[0]))
        for count, memory in product(slot.counts, slot.sizes or (0.0,)):
            dram = memory_of(placed, memory) if memory else {}
            fills = {link: linked.si for link, linked in links[count].items()}
            fills[role] = {**placed.si, **dram, "count": count}
            options.append(Option(Fitted(part, count), memory, fills))
    return options


def terms_of(ownership: Part) -> list[Option]:
    """A machine that is bought, and one that is rented."""
    return [
        Option(
            Fitted(ownership, 1.0), 0.0, {"ownership": {**ownership.si, "rented": rented}}
        )
        for rented in (0.0, 1.0)
    ]


def needed_slots(owns: Sequence[str], server: Server) -> list[str]:
    """The slots that a system needs for the roles that it owns; none where the server lacks one."""
    needed = [role for role in owns if role in server.slots]
    roles = server.platform.roles
    brought = {role for role, part in roles.items() if part.type in BROUGHT}
    # a host's numbers are found missing once they are read; devices in the host need no chassis
    absent = {"host", "chassis"} - roles.keys()
    is_complete = {*owns} <= {*needed, *brought, *absent}
    return needed if is_complete else []


@dataclass(frozen=True)
class Builds:
    """All builds of a server: every combination of options that lanes and supply carry.

    Attributes:
        server: what is built.
        options: of each role in which there is a choice.
        priced: roles in which a part without a price is left out.
    """

    server: Server
    options: Mapping[str, Sequence[Option]]
    priced: Sequence[str] = ()

    @cached_property
    def _assembled(self) -> tuple[dict[str, Places], int]:
        """What lanes and supply carry: `places`, and how many lack a price."""
        shape = [len(options) for options in self.options.values()]
        indices = np.indices(shape, np.int32).reshape(len(shape), -1)
        places = dict(zip(self.options, indices, strict=True))
        drawn = self.server.own_draw
        for role, delivered in self.server.delivered.items():
            choices = self.options.get(role)
            fitted = [option.fitted for option in choices] if choices else [delivered]
            each = np.array([self.server.drawn(role, one) for one in fitted])
            drawn = drawn + each[places.get(role, 0)]
        fits = np.broadcast_to(
            np.all(drawn <= self.server.carries, axis=-1), indices[0].shape
        )
        has_price = np.ones(len(fits), bool)
        for role in self.priced:
            if role in self.options:
                stated = ["price" in option.fills[role] for option in self.options[role]]
                has_price &= np.array(stated)[places[role]]
            elif sold := self.server.as_sold.roles.get(role):
                has_price &= "price" in sold.numbers
        kept = np.flatnonzero(fits & has_price)
        return {role: place[kept] for role, place in places.items()}, int(
            np.sum(fits)
        ) - len(kept)

    @property
    def places(self) -> dict[str, Places]:
        """Place of each build's option in the list of its role, in rising order."""
        return self._assembled[0]

    @property
    def unpriced(self) -> int:
        """Number of builds that are left out, as a part of them has no price."""
        return self._assembled[1]

    def unpriced_parts(self) -> Iterator[str]:
        """Parts without a price, where they leave a build out."""
        for role in self.priced:
            for option in self.options.get(role, ()):
                if "price" not in option.fills[role]:
                    yield option.fitted.part.name
            sold = self.server.as_sold.roles.get(role)
            if role not in self.options and sold and "price" not in sold.numbers:
                yield sold.name

    def __len__(self) -> int:
        return len(next(iter(self.places.values())))

    def roles(self) -> Iterator[tuple[str, Sequence[Mapping[str, float]], Places]]:
        """Each role, all that may stand in it as numbers [SI], and its place there by build.

        What is chosen comes after what is sold.
        """
        sold = np.zeros(len(self), np.int32)
        for role, part in self.server.as_sold.roles.items():
            yield role, [part.si], sold
        for role, options in self.options.items():
            for filled in options[0].fills:
                yield (
                    filled,
                    [option.fills[filled] for option in options],
                    self.places[role],
                )

    def chosen(self, number: int) -> dict[str, Option]:
        """The options of one build, by role."""
        return {
            role: self.options[role][place[number]] for role, place in self.places.items()
        }

    def words(self, number: int) -> str:
        """One build, in words."""
        fitted = [option.fitted for option in self.chosen(number).values()]
        parts = [f"{each.count:g} x {each.part.name}" for each in fitted]
        return f"{self.server.part.name} with {', '.join(parts)}"

    def machine(self, number: int) -> Platform:
        """The machine of one build, under the name of its server."""
        chosen = self.chosen(number)
        terms = chosen.pop("ownership", None)
        fitted = {role: option.fitted for role, option in chosen.items()}
        memory = sum(option.memory for option in chosen.values())
        machine = self.server.machine(fitted, memory)
        if terms:
            rented = terms.fills["ownership"]["rented"]
            machine = machine.override("ownership.rented", rented)
        return replace(machine, name=self.server.part.name)


@dataclass(frozen=True)
class Machines:
    """All machines on which systems that own the same may run, numbered through all servers.

    Attributes:
        owns: roles that the systems own.
        builds: of each server.
        columns: numbers of all that may stand in a role, by `role.key`, once they were asked for.
    """

    owns: tuple[str, ...]
    builds: Sequence[Builds]
    columns: dict[str, Numbers] = field(default_factory=dict)

    @cached_property
    def ends(self) -> Integers:
        """Number behind the last machine of each server."""
        return np.cumsum([len(each) for each in self.builds])

    def __len__(self) -> int:
        return int(self.ends[-1]) if self.builds else 0

    @property
    def every(self) -> Integers:
        """The number of every machine."""
        return np.arange(len(self))

    @property
    def slots(self) -> list[str]:
        """Roles in which parts are chosen."""
        chosen = dict.fromkeys(role for builds in self.builds for role in builds.options)
        return [role for role in chosen if role != "ownership"]

    def build(self, number: int) -> tuple[Builds, int]:
        """The server of a machine, and its number among the builds of that."""
        place = int(np.searchsorted(self.ends, number, side="right"))
        return self.builds[place], number - (int(self.ends[place - 1]) if place else 0)

    def platform(self, number: int) -> Platform:
        """One machine, with the roles that a system may read."""
        builds, own = self.build(number)
        machine = builds.machine(own)
        roles = {
            role: part for role, part in machine.roles.items() if self.reads(role, part)
        }
        return replace(machine, roles=roles)

    def reads(self, role: str, part: Part) -> bool:
        """True if a system may read a role: its own, server, links, engine, or without a part."""
        return role in (*self.owns, SERVER) or part.type in ("link", "engine", *PARTLESS)

    @cached_property
    def tables(self) -> dict[str, tuple[list[Mapping[str, float]], Places]]:
        """Role -> all that may stand in it, as numbers [SI], and its place there by machine."""
        tables: dict[str, tuple[list[Mapping[str, float]], Places]] = {}
        first = 0
        for builds in self.builds:
            own = slice(first, first + len(builds))
            first = own.stop
            for role, numbers, place in builds.roles():
                if self.reads(role, builds.server.as_sold.roles[role]):
                    nowhere = np.full(len(self), ABSENT, np.int32)
                    table, places = tables.setdefault(role, ([], nowhere))
                    places[own] = len(table) + place
                    table += numbers
        return tables

    def column(self, address: str, machines: Integers) -> Numbers:
        """A number of some machines, as `role.key`; NaN where one does not state it [SI]."""
        role, _, key = address.partition(".")
        table, places = self.tables[role]
        if address not in self.columns:
            values = [numbers.get(key, np.nan) for numbers in table]
            self.columns[address] = np.array(
                [*values, np.nan]
            )  # the last where it is absent
        return self.columns[address][places[machines]]

    def alike(self, read: Collection[str]) -> Integers:
        """A number a machine, equal where machines have the same roles and state the same keys.

        Args:
            read: the keys that count, as `role.key`.
        """
        kinds = np.zeros(len(self), np.int64)
        for role, (table, places) in self.tables.items():
            keys = {
                key for own, _, key in (name.partition(".") for name in read) if own == role
            }
            stated = [frozenset(numbers.keys() & keys) for numbers in table]
            code = {each: number for number, each in enumerate(dict.fromkeys(stated))}
            codes = np.array([*(code[each] for each in stated), len(code)])[places]
            if np.any(codes != codes[0]):
                _, kinds = np.unique(kinds * (len(code) + 1) + codes, return_inverse=True)
        return kinds

    @cached_property
    def of_parts(self) -> dict[str, Numbers]:
        """Columns that follow from the parts alone; NaN where a part lacks a number for it."""
        known = {name: np.full(len(self), np.nan) for name in OF_PARTS}

        def priced(machines: Integers, seen: set[str]) -> None:
            hw = read.base(machines).machine().with_values(read.numbers(machines))
            answer = Evaluated(None, recording(hw, seen), self.owns)  # type: ignore[arg-type]
            for name, column in OF_PARTS.items():
                known[name][machines] = column(answer)

        read = Read(self)
        for _ in read.by_kind(self.every, priced):
            pass
        return known

    @cached_property
    def parts(self) -> Numbers:
        """Number of parts in the slots of each machine [1]."""
        counts = [self.column(f"{role}.count", self.every) for role in self.slots]
        return np.asarray(np.nansum(counts, axis=0), np.float64)


class Read:
    """The numbers that were read of any machine so far, and which machines state the same of them.

    Machines that do are of one kind, and are evaluated as one array: a base, and where the others
    differ from it.

    Args:
        machines: all of them.
    """

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.addresses: set[str] = set()
        self.kinds = machines.alike(())
        self.bases: dict[int, Platform] = {}

    def by_kind(
        self, machines: Integers, compute: Callable[[Integers, set[str]], Computed]
    ) -> Iterator[tuple[Integers, Computed]]:
        """Places of machines of one kind, and what is computed of them.

        Where more is read of some than of any machine before, they are told apart anew.

        Args:
            machines: numbers of some machines.
            compute: of machines of one kind; it adds what it reads, as `role.key`, to a set.
        """
        left = [np.arange(len(machines))]
        while left:
            places = left.pop()
            kinds = self.kinds[machines[places]]
            group, others = places[kinds == kinds[0]], places[kinds != kinds[0]]
            if len(others):
                left.append(others)
            seen: set[str] = set()
            computed = compute(machines[group], seen)
            if not seen <= self.addresses:
                self.addresses |= seen
                self.kinds = self.machines.alike(self.addresses)
                self.bases.clear()
            kinds = self.kinds[machines[group]]
            if np.any(kinds != kinds[0]):
                left.append(group)
            else:
                yield group, computed

    def base(self, machines: Integers) -> Platform:
        """A machine of the kind of some machines."""
        kind = int(self.kinds[machines[0]])
        if kind not in self.bases:
            self.bases[kind] = self.machines.platform(int(machines[0]))
        return self.bases[kind]

    def numbers(self, machines: Integers) -> dict[str, Numbers]:
        """The numbers in which machines of one kind differ from their base [SI].

        One that a machine does not state is that of the base; as soon as it is read, the machine is
        of another kind.
        """
        numbers: dict[str, Numbers] = {}
        for role, part in self.base(machines).roles.items():
            for key, value in part.si.items():
                values = self.machines.column(f"{role}.{key}", machines)
                if np.any(values != value):
                    numbers[f"{role}.{key}"] = np.where(np.isnan(values), value, values)
        return numbers

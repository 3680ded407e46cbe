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
from nearkv.costmodel.model.metrics import COLUMNS, SERVER, Evaluated
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import MissingNumberError, by_role, recording
from nearkv.hardware.platform import Part, Platform
from nearkv.hardware.server import Fitted, Server, memory_of

BROUGHT = ("chassis", "link")
"""Types of part that a server brings, whatever is in its slots."""
PART_COLUMNS = ("cost_usd", "power_cap_w", "rack_units", "parts")
"""Columns that follow from the parts alone, so that they are known before an evaluation."""
MOST_KINDS = 2**48
"""Numbers of kinds of machine, most of which none is of."""
ABSENT = -1
"""Stands in place of a part where a machine does not have the role."""


Places = NDArray[np.int32]
Computed = TypeVar("Computed")


@dataclass(frozen=True)
class Option:
    """Choices in one role of a server: a part, how many, how much DRAM.

    Attributes:
        fitted: the part, and how many.
        memory: DRAM of the host; 0 in other roles [B].
        fills: role -> the numbers that the machine has there: the part's, those of its links, and
            of roles whose numbers follow theirs.
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
            fills |= _following(server, fills)
            options.append(Option(Fitted(part, count), memory, fills))
    return options


def _following(
    server: Server, fills: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """The numbers of roles that are sold with a server and follow what is fitted, as by count."""
    sold, stated = server.as_sold, dict[str, float]()
    for role, numbers in fills.items():
        stated |= {f"{role}.{key}": value for key, value in numbers.items()}
    following = {
        at: stated[leader] for at, leader in sold.follows.items() if leader in stated
    }
    return {
        role: {**sold.roles[role].si, **own}
        for role, own in by_role(following).items()
        if role not in fills and role not in server.slots
    }


def terms_of(ownership: Part) -> list[Option]:
    """A machine that is bought, and one that is rented."""
    fitted = Fitted(ownership, 1.0)
    bought, rented = ({**ownership.si, "rented": rented} for rented in (0.0, 1.0))
    return [Option(fitted, 0.0, {"ownership": terms}) for terms in (bought, rented)]


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
    """

    server: Server
    options: Mapping[str, Sequence[Option]]

    @cached_property
    def places(self) -> dict[str, Places]:
        """Place of each build's option in the list of its role, in rising order."""
        shape = [len(options) for options in self.options.values()]
        indices = np.indices(shape, np.int32).reshape(len(shape), -1)
        places = dict(zip(self.options, indices, strict=True))
        drawn = np.broadcast_to(self.server.own_draw, (indices.shape[1], 2))
        for role, delivered in self.server.delivered.items():
            choices = self.options.get(role)
            fitted = [option.fitted for option in choices] if choices else [delivered]
            each = np.array([self.server.drawn(role, one) for one in fitted])
            drawn = drawn + each[places.get(role, 0)]
        kept = np.flatnonzero(np.all(drawn <= self.server.carries, axis=-1))
        return {role: place[kept] for role, place in places.items()}

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
                numbers = [option.fills[filled] for option in options]
                yield filled, numbers, self.places[role]

    def unpriced(self, role: str) -> list[str]:
        """Parts without a price that may stand in a role."""
        if role in self.options:
            options = self.options[role]
            return [
                each.fitted.part.name for each in options if "price" not in each.fills[role]
            ]
        sold = self.server.as_sold.roles.get(role)
        return [sold.name] if sold and "price" not in sold.numbers else []

    def machine(self, number: int) -> Platform:
        """The machine of one build, under the name of its server."""
        chosen = {
            role: self.options[role][place[number]] for role, place in self.places.items()
        }
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

    def build(self, number: int) -> tuple[Builds, int]:
        """The server of a machine, and its number among the builds of that."""
        place = int(np.searchsorted(self.ends, number, side="right"))
        return self.builds[place], number - (int(self.ends[place - 1]) if place else 0)

    def platform(self, number: int) -> Platform:
        """One machine, with the roles that a system may read; numbers that follow others stay."""
        builds, own = self.build(number)
        machine = builds.machine(own)
        roles = {
            role: replace(part, follows={})
            for role, part in machine.roles.items()
            if self.reads(role, part)
        }
        return replace(machine, roles=roles)

    def reads(self, role: str, part: Part) -> bool:
        """True if a system may read a role: a device of its own, the server, or no device."""
        return role in (*self.owns, SERVER) or not part.is_device

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
            # the last where it is absent
            self.columns[address] = np.array([*values, np.nan])
        return self.columns[address][places[machines]]

    def scaled(self, address: str, factor: float) -> Machines:
        """The machines with one number of all parts in its role, `role.key`, times a factor.

        Raises:
            InputError: no machine has such a number.
        """
        role, _, key = address.partition(".")
        table, _ = self.tables.get(role, ([], None))
        values = [numbers.get(key, np.nan) for numbers in table]
        if not np.isfinite(values).any():
            raise InputError(f"{address}: no machine that may be built has such a number")
        return replace(self, columns={address: factor * np.array([*values, np.nan])})

    def alike(self, read: Collection[str]) -> Integers:
        """A number a machine, equal where machines have the same roles and state the same keys.

        Args:
            read: the keys that count, as `role.key`.
        """
        kinds, count = np.zeros(len(self), np.int64), 1
        for role, (table, places) in self.tables.items():
            keys = {
                key for own, _, key in (name.partition(".") for name in read) if own == role
            }
            stated = [frozenset(numbers.keys() & keys) for numbers in table]
            code = {each: number for number, each in enumerate(dict.fromkeys(stated))}
            codes = np.array([*(code[each] for each in stated), len(code)])[places]
            if np.any(codes != codes[0]):
                kinds, count = kinds * (len(code) + 1) + codes, count * (len(code) + 1)
            if count > MOST_KINDS:  # numbered anew before they outgrow an integer
                distinct, kinds = np.unique(kinds, return_inverse=True)
                count = len(distinct)
        return kinds

    @cached_property
    def of_parts(self) -> dict[str, Numbers]:
        """Columns that follow from the parts alone; NaN where a part lacks a number for it."""
        known = {name: np.full(len(self), np.nan) for name in PART_COLUMNS}
        read = Read(self)

        def evaluated(machines: Integers) -> Evaluated:
            hw = read.base(machines).machine().with_values(read.numbers(machines))
            answer = Evaluated(None, recording(hw, read.addresses), self.owns)  # type: ignore[arg-type]
            for name in PART_COLUMNS:
                known[name][machines] = COLUMNS[name].compute(answer)
            return answer

        for _ in read.by_kind(self.every, evaluated):
            pass
        return known


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
        self, machines: Integers, compute: Callable[[Integers], Computed]
    ) -> Iterator[tuple[Integers, Computed | None]]:
        """Places of machines of one kind, and what is computed of them.

        Where more was read than of any machine before, they are told apart anew and computed again:
        what was read may be a number of the base that another does not state.

        Args:
            machines: numbers of some machines.
            compute: of machines of one kind, None where they lack a number; what it reads it adds
                to `addresses`.

        Raises:
            InputError: a machine cannot be computed.
        """
        left = [np.arange(len(machines))]
        while left:
            places = left.pop()
            kinds, known = self.kinds[machines[places]], len(self.addresses)
            others = places[kinds != kinds[0]]
            if len(others):
                left.append(others)
                places = places[kinds == kinds[0]]
            computed = fault = None
            try:
                computed = compute(machines[places])
            except InputError as problem:
                fault = problem
            if len(self.addresses) > known:
                self.kinds = self.machines.alike(self.addresses)
                self.bases.clear()
                left.append(places)
            elif fault and not isinstance(fault, MissingNumberError):
                raise fault
            else:
                yield places, computed

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

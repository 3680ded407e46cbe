"""A platform: roles filled by parts, numbers named `role.key`, and replacing one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nearkv.hardware.errors import InputError, check_known, unknown
from nearkv.hardware.machine import Machine
from nearkv.hardware.part import (
    Part,
    PartValues,
    check_part,
    check_relations,
    check_role,
    warn_of_doubts,
)
from nearkv.hardware.quantity import Quantity, stated_by_user
from nearkv.hardware.schema import ROLES, Key, check_factor, keys_of


@dataclass(frozen=True)
class Platform:
    """A test bed: its roles, each filled by a part.

    Attributes:
        name: kebab-case, or the path of a user's file.
        title: for readers.
        cite: key into sources.toml.
        roles: role -> part in its place; `derate` holds the correction factors.
        swapped: role -> name of the part that took the place of the platform's own.
    """

    name: str
    title: str
    cite: str
    roles: Mapping[str, Part]
    swapped: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give the numbers that follow those of another role their values."""
        for address, leader in self.follows.items():
            role, _, key = address.partition(".")
            other, _, name = leader.partition(".")
            part = self.roles[role]
            numbers = {**part.numbers, key: self.roles[other].numbers[name]}
            roles = {**self.roles, role: replace(part, numbers=numbers)}
            object.__setattr__(self, "roles", roles)

    @property
    def follows(self) -> dict[str, str]:
        """Number -> the number of another role that it is always equal to, as `role.key`."""
        return {
            f"{role}.{key}": leader
            for role, part in self.roles.items()
            for key, leader in part.follows.items()
        }

    @property
    def label(self) -> str:
        """Its name, and the parts that were swapped."""
        swaps = [f"{role}={name}" for role, name in self.swapped.items()]
        return " ".join([self.name, *swaps])

    @property
    def numbers(self) -> dict[str, Quantity]:
        """Every number, by `role.key`."""
        numbers: dict[str, Quantity] = {}
        for role, part in self.roles.items():
            numbers |= {f"{role}.{key}": number for key, number in part.numbers.items()}
        return numbers

    @property
    def part_columns(self) -> dict[str, str]:
        """Names of the parts that were swapped, by the column that shows them."""
        return {f"{role}.part": name for role, name in self.swapped.items()}

    def machine(self) -> Machine:
        """The numbers in SI, as cost models read them."""
        values = {
            role: {key: number.si for key, number in part.numbers.items()}
            for role, part in self.roles.items()
        }
        return Machine(self.name, values, self.follows)

    def with_part(self, role: str, part: Part, name: str) -> Platform:
        """A copy with another part in a role; what the place adds, as its count, stays.

        Args:
            role: whose part is swapped.
            part: the new part.
            name: what the user calls it.

        Raises:
            InputError: no such role, or the part is of another type or contradicts its place.
        """
        where = f"--part {role}={name}"
        check_known("part", [role], self.roles, f"{where}: platform {self.name!r}")
        check_role(part, role, where)
        before = self.roles[role]
        if part.type != before.type and role not in ROLES:
            raise InputError(
                f"{where} is a part of type {part.type}; {role} takes one of type {before.type}"
            )
        placed = part.in_place_of(before)
        check_part(placed, where, is_own=False)
        roles = {**self.roles, role: placed}
        return replace(self, roles=roles, swapped={**self.swapped, role: name})

    def key(self, address: str) -> Key:
        """The schema of a number named as `role.key`.

        Raises:
            InputError: no such role, or no such number in it.
        """
        where = f"platform {self.name!r}"
        role, dot, name = address.partition(".")
        if not dot:
            roles = ", ".join(sorted(self.roles))
            raise InputError(
                f"{address!r} is not ROLE.KEY, as in csd.count; the roles are {roles}"
            )
        if role == "derate":
            check_factor(name, where)
        check_known("part", [role], self.roles, where)
        part = self.roles[role]
        keys = keys_of(part.type, part.numbers)
        if name not in keys:
            raise unknown("number", address, [f"{role}.{key}" for key in keys], where)
        return keys[name]

    def check(self, changes: PartValues, option: str = "--set ") -> None:
        """Refuse values of numbers that are impossible or contradict those beside them.

        Args:
            changes: `role.key` -> every value that it takes, in SI.
            option: put in front of an address in messages.

        Raises:
            InputError: no such number, an impossible value, or two that contradict each other.
        """
        by_role: dict[str, dict[str, Sequence[float]]] = {}
        for address, values in changes.items():
            key = self.key(address)
            role, _, name = address.partition(".")
            by_role.setdefault(role, {})[name] = values
            for value in values:
                if fault := key.fault(value):
                    raise InputError(f"{option}{address}: {key.text(value)} {fault}")
        for role, changed in by_role.items():
            part = self.roles[role]
            beside = {name: (number,) for name, number in part.si.items()}
            where = ", ".join(f"{option}{role}.{name}" for name in changed)
            check_relations(part.type, {**beside, **changed}, where, f"{role}.")

    def warn_of_doubts(self, changes: PartValues, option: str = "--set ") -> None:
        """Warn of values that are possible but outside the usual range.

        Args:
            changes: `role.key` -> every value that it takes, in SI.
            option: put in front of an address in messages.
        """
        for address, values in changes.items():
            role, _, name = address.partition(".")
            warn_of_doubts(self.roles[role].type, {name: values}, option, f"{role}.")

    def override(
        self, address: str, value: float, requested: str = "set by the user"
    ) -> Platform:
        """A copy with one number replaced.

        Args:
            address: `role.key`.
            value: the new value in SI units.
            requested: what the user wrote, kept as the number's address in its source.

        Raises:
            InputError: no such role, no such number in it, or a value that cannot be believed.
        """
        self.check({address: (value,)})
        self.warn_of_doubts({address: (value,)})
        role, _, name = address.partition(".")
        part = self.roles[role]
        number = stated_by_user(value, self.key(address), requested)
        return replace(self, roles={**self.roles, role: part.with_numbers({name: number})})

"""A platform as cost models read it: SI values by role and key, arrays where an axis is swept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, NearkvError, a_few
from nearkv.hardware.schema import PARTLESS

_Named = TypeVar("_Named")
SiValue = float | NDArray[np.float64]

_PLACEHOLDER = 1.0
"""Stands for every number a machine lacks while those that are missing are collected."""


def by_role(values: Mapping[str, _Named]) -> dict[str, dict[str, _Named]]:
    """Values that are named `role.key`, by role and key."""
    roles: dict[str, dict[str, _Named]] = {}
    for address, value in values.items():
        role, _, key = address.partition(".")
        roles.setdefault(role, {})[key] = value
    return roles


class MissingNumberError(InputError):
    """A platform lacks a role or a number that is read of it."""


class Role:
    """The numbers of one part in its place: `hw.csd.count`, `hw.gpu.gemm`.

    Reading a number the part does not have raises MissingNumberError.
    """

    def __init__(self, platform: str, name: str, values: Mapping[str, SiValue]) -> None:
        self.platform, self.name, self.values = platform, name, dict(values)

    def __getattr__(self, key: str) -> SiValue:
        if key[:2] == "__":
            raise AttributeError(key)
        return self[key]

    def __getitem__(self, key: str) -> SiValue:
        try:
            return self.values[key]
        except KeyError:
            raise MissingNumberError(
                f"platform {self.platform!r} has no {self.name}.{key}, which this system needs; "
                "use the platform of its paper (see `nearkv systems`), or state it, in the part or "
                f"by --set {self.name}.{key}=VALUE"
            ) from None

    def __contains__(self, key: str) -> bool:
        """True if the part states a number."""
        return key in self.values

    def maybe(self, key: str, otherwise: SiValue) -> SiValue:
        """The value where the part states one, else another."""
        if key not in self:
            return otherwise
        return self[key]


class Machine:
    """All roles of a platform.

    Args:
        platform: its name.
        roles: role -> key -> SI value.
        follows: number -> the number of another role that it is always equal to, as `role.key`.
    """

    def __init__(
        self,
        platform: str,
        roles: Mapping[str, Mapping[str, SiValue]],
        follows: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.platform, self.follows = platform, follows
        self.roles = {name: Role(platform, name, values) for name, values in roles.items()}

    def __getattr__(self, role: str) -> Role:
        if role[:2] == "__" or role == "roles":
            raise AttributeError(role)
        return self[role]

    def __getitem__(self, role: str) -> Role:
        try:
            return self.roles[role]
        except KeyError:
            roles = a_few(sorted(self.roles), like=role)
            raise MissingNumberError(
                f"platform {self.platform!r} has no {role!r}, which this system needs; "
                f"its roles are {roles}"
            ) from None

    def with_values(self, changes: Mapping[str, SiValue]) -> Machine:
        """A copy with some numbers replaced, named as `role.key`, in SI units.

        What follows one of them changes with it, unless it is replaced itself.
        """
        follows = {at: leader for at, leader in self.follows.items() if at not in changes}
        following = {at: leader for at, leader in follows.items() if leader in changes}
        all_changes = {**changes, **{at: changes[following[at]] for at in following}}
        copy = Machine(self.platform, {}, follows)
        copy.roles.update(self.roles)
        for role, values in by_role(all_changes).items():
            before = self[role].values
            copy.roles[role] = Role(self.platform, role, {**before, **values})
        return copy


@dataclass
class _Watch:
    """Record of what is read of a machine and of its copies, as roles and `role.key`.

    Attributes:
        read: all that is asked for.
        lacks: what the machine does not have, for which a placeholder is read; None where that
            is an error, as of any machine.
    """

    read: set[str]
    lacks: set[str] | None = None


class _WatchedRole(Role):
    """A role whose numbers are watched as they are read."""

    def __init__(self, role: Role, watch: _Watch) -> None:
        super().__init__(role.platform, role.name, role.values)
        self._watch = watch

    def __getitem__(self, key: str) -> SiValue:
        self._watch.read.add(f"{self.name}.{key}")
        if key in self.values:
            return self.values[key]
        if self._watch.lacks is not None:
            self._watch.lacks.add(f"{self.name}.{key}")
            return _PLACEHOLDER
        return super().__getitem__(key)

    def __contains__(self, key: str) -> bool:
        """True if the part states a number, of any value; that counts as read, too."""
        self._watch.read.add(f"{self.name}.{key}")
        return super().__contains__(key)


class _WatchedMachine(Machine):
    """A machine whose roles, and those of its copies, are watched."""

    def __init__(self, machine: Machine, watch: _Watch) -> None:
        super().__init__(machine.platform, {}, machine.follows)
        own = machine.roles.items()
        self.roles.update({name: _WatchedRole(role, watch) for name, role in own})
        self._watch = watch

    def __getitem__(self, role: str) -> Role:
        if role in self.roles or self._watch.lacks is None:
            return super().__getitem__(role)
        blank = Role(self.platform, role, {})
        if role in PARTLESS:
            return _WatchedRole(blank, self._watch)
        self._watch.lacks.add(role)
        # the missing role says it all: its numbers are not listed as well
        return _WatchedRole(blank, _Watch(set(), set()))

    def with_values(self, changes: Mapping[str, SiValue]) -> Machine:
        """A copy with some numbers replaced, which is watched alike."""
        if self._watch.lacks is not None:
            roles = self.roles.keys()
            changes = {at: changes[at] for at in changes if at.partition(".")[0] in roles}
        return _WatchedMachine(super().with_values(changes), self._watch)


def recording(machine: Machine, read: set[str]) -> Machine:
    """A machine that adds the name of each number that is read of it, `role.key`, to a set."""
    return _WatchedMachine(machine, _Watch(read))


def lacking(machine: Machine, run: Callable[[Machine], object]) -> list[str]:
    """All that a computation reads of a machine and the machine does not have.

    Args:
        machine: what it runs on.
        run: the computation; it may fail on the numbers that are made up for it.

    Returns:
        Names of roles, and of numbers as `role.key`.
    """
    lacks: set[str] = set()
    watched = _WatchedMachine(machine, _Watch(set(), lacks))
    # placeholders may make no sense, so the computation may fail in any of its checks
    failures = (NearkvError, ArithmeticError, LookupError, ValueError)
    with np.errstate(all="ignore"), suppress(*failures):
        run(watched)
    return sorted(lacks)

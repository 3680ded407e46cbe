"""A platform as cost models read it: SI values by role and key, arrays where an axis is swept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError

Value = float | NDArray[np.float64]


class Role:
    """The numbers of one part in its place: `hw.csd.count`, `hw.derate.gemm`.

    Reading a number the part does not have raises InputError.
    """

    def __init__(self, platform: str, name: str, values: Mapping[str, Value]) -> None:
        self.platform, self.name, self.values = platform, name, dict(values)

    def __getattr__(self, key: str) -> Value:
        if key.startswith("__"):
            raise AttributeError(key)
        try:
            return self.values[key]
        except KeyError:
            raise InputError(
                f"platform {self.platform!r} has no {self.name}.{key}, which this system needs; "
                "use the platform of its paper (see `nearkv systems`)"
            ) from None

    def maybe(self, key: str, otherwise: Value) -> Value:
        """The value where the part states one, else another."""
        return self.values.get(key, otherwise)


class Machine:
    """All roles of a platform.

    Args:
        platform: its name.
        roles: role -> key -> SI value.
    """

    def __init__(self, platform: str, roles: Mapping[str, Mapping[str, Value]]) -> None:
        self.platform = platform
        self.roles = {name: Role(platform, name, values) for name, values in roles.items()}

    def __getattr__(self, role: str) -> Role:
        if role.startswith("__") or role == "roles":
            raise AttributeError(role)
        return self[role]

    def __getitem__(self, role: str) -> Role:
        try:
            return self.roles[role]
        except KeyError:
            roles = ", ".join(sorted(self.roles))
            raise InputError(
                f"platform {self.platform!r} has no {role!r}, which this system needs; "
                f"its roles are {roles}"
            ) from None

    def with_values(self, changes: Mapping[str, Value]) -> Machine:
        """A copy with some numbers replaced, named as `role.key`, in SI units."""
        roles = {name: dict(role.values) for name, role in self.roles.items()}
        for address, value in changes.items():
            role, _, key = address.partition(".")
            roles[role][key] = value
        return Machine(self.platform, roles)

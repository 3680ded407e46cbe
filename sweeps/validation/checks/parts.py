"""Checks of numbers that belong to a whole role, or to a number scaled as a paper's table scales it."""

from __future__ import annotations

from nearkv.hardware.catalog import load_platform
from nearkv.hardware.quantity import unit_of
from nearkv.sweeps.validation.checks import check


@check
def installed(platform: str, roles: str, key: str, unit: str) -> float:
    """What all devices of some roles, apart by `+`, have of a number together, in a unit.

    A count is the number of devices.
    """
    numbers = [load_platform(platform).roles[role].numbers for role in roles.split("+")]
    each = [
        capacity_check["count"].si * (1.0 if key == "count" else capacity_check[key].si)
        for capacity_check in numbers
    ]
    return sum(each) / unit_of(unit)[1]


@check
def scaled(platform: str, address: str, factor: str, unit: str) -> float:
    """A number of a platform times a factor, in a unit: a variant of a sensitivity study."""
    role, _, key = address.partition(".")
    return (
        float(load_platform(platform).roles[role].numbers[key].si)
        * float(factor)
        / unit_of(unit)[1]
    )

"""Checks of numbers as the catalogue states them: parts, platforms, knobs and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.units import unit_of
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import number_at

STUDIES = Path(__file__).parent.parent.parent / "studies"


@check
def times(count: str, address: str, unit: str) -> float:
    """A multiple of a number, in a unit; the count is a number or an address itself."""
    many = number_at(count) if ":" in count else float(count)
    return many * number_at(address) / unit_of(unit)[1]


@check
def sum_of(*addresses: str) -> float:
    """The sum of numbers [SI]."""
    return sum(number_at(address) for address in addresses)


@check
def price_above(address: str, other: str) -> float:
    """What one number exceeds another by [SI]."""
    return number_at(address) - number_at(other)


@check
def quotient(address: str, of: str) -> float:
    """One number over another [1]."""
    return number_at(address) / number_at(of)


@check
def lanes(address: str, four_lanes: str) -> float:
    """Lanes of a link, from its bandwidth and that of four lanes of its generation [1]."""
    return 4 * number_at(address) / number_at(four_lanes)


@check
def installed(platform: str, roles: str, key: str, unit: str) -> float:
    """Total of a number over all devices of the roles, joined by `+`, in a unit.

    The total of `count` is the number of devices.
    """
    total = 0.0
    for role in roles.split("+"):
        numbers = load_platform(platform).roles[role].numbers
        each = 1.0 if key == "count" else numbers[key].si
        total += numbers["count"].si * each
    return total / unit_of(unit)[1]


@check
def scaled(platform: str, address: str, factor: str, unit: str) -> float:
    """A number of a platform times a factor, in a unit: a variant of a sensitivity study."""
    number = number_at(f"{platform}:{address}")
    return number * float(factor) / unit_of(unit)[1]


@check
def default_of(key: str, study: str = "") -> float:
    """The default of a workload axis: the tool's, or that of a study of a paper's figure [1]."""
    source = load_study(str(STUDIES / f"{study}.toml")) if study else Study((), ())
    return size(getattr(source, key), key)


@check
def knob_default(system: str, knob: str) -> Any:
    """The default of a system's knob."""
    return find_system(system).knobs[knob].default

"""What the catalogues list and show: systems, models, platforms, parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearkv.costmodel import registry
from nearkv.costmodel.metrics import COLUMNS
from nearkv.hardware.catalog import load_part, load_platform, names
from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.evaluation.provenance import numbers, platform_numbers
from nearkv.sweeps.space.sizes import number

Rows = list[dict[str, Any]]


def system_rows() -> Rows:
    """One row a system."""
    return [
        {
            "system": s.name,
            "paper": s.cite,
            "platform": s.platform,
            "knobs": ", ".join(s.knobs),
            "what": s.summary,
        }
        for s in registry.systems().values()
    ]


def summary_of(name: str) -> str:
    """First line of what a system does."""
    return registry.find_system(name).summary


def knob_rows(name: str) -> Rows:
    """One row a knob of a system.

    Raises:
        InputError: no such system, or it has no knobs.
    """
    found = registry.find_system(name)
    if not found.knobs:
        raise InputError(
            f"{name} has no knobs; `nearkv hardware show {found.platform}` prints the numbers it runs on"
        )
    return [
        {
            "knob": knob,
            "values": ", ".join(spec.choices)
            or (spec.sets and f"--set {spec.sets}")
            or f"{spec.low:g} .. {spec.high:g}",
            "default": "the platform's"
            if spec.sets
            else spec.choices[int(spec.default)]
            if spec.choices
            else f"auto, by {spec.solver}"
            if spec.solver
            else spec.default,
            "rules": ", ".join(spec.rules),
            "what": spec.what,
        }
        for knob, spec in found.knobs.items()
    ]


def hardware_rows() -> Rows:
    """One row a platform, then one a part."""
    platforms = [{**row, "kind": "platform"} for row in platform_rows()]
    parts = [{**row, "roles": ""} for row in part_rows()]
    order = ("name", "kind", "what", "roles")
    return [{key: row[key] for key in order} for row in (*platforms, *parts)]


def platform_rows() -> Rows:
    """One row a platform: its name, what it is and the roles of its parts."""
    rows: Rows = []
    for name in names("platform"):
        platform = load_platform(name)
        rows.append({"name": name, "what": platform.title, "roles": ", ".join(platform.roles)})
    return rows


def part_rows() -> Rows:
    """One row a part: its name, its kind and what it is."""
    parts = {name: load_part(name) for name in names("part")}
    return [{"name": name, "kind": part.kind, "what": part.title} for name, part in parts.items()]


def column_rows() -> Rows:
    """One row a column of results: its name, unit and definition."""
    rows: Rows = []
    for name, column in COLUMNS.items():
        definition, _, unit = column.what.partition(" [")
        rows.append({"column": name, "unit": unit.rstrip("]"), "what": definition})
    return rows


def part_numbers(name: str) -> Rows:
    """Every number of a part.

    Raises:
        InputError: no such name, or a file that cannot be read.
    """
    return numbers(name, load_part(name))


def hardware_numbers(name: str, sets: Mapping[str, str]) -> Rows:
    """Every number of a platform, with some overridden, or of a part.

    Raises:
        InputError: no such name, or an override that does not fit.
    """
    parts, platforms = names("part"), names("platform")
    if name in parts and sets:
        raise InputError(
            f"{name} is a part; --set replaces numbers of a platform, one of {', '.join(platforms)}"
        )
    if name in parts:
        return part_numbers(name)
    if name not in platforms and not name.endswith(".toml"):
        raise unknown("platform or part", name, [*platforms, *parts])
    platform = load_platform(name)
    for address, text in sets.items():
        platform = platform.override(
            address, number(platform.key(address))(text, f"--set {address}")
        )
    return platform_numbers(platform)

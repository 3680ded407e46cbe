"""Where one system overtakes another along an axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearkv.costmodel.metrics import COLUMNS
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.quantity import unit_of
from nearkv.solvers.search import Crossing, Points, crossings
from nearkv.sweeps.evaluation.probe import Probe, column
from nearkv.sweeps.evaluation.table import plain
from nearkv.sweeps.evaluation.targets import FAR, higher_is_better
from nearkv.sweeps.explore.sizing import Rows
from nearkv.sweeps.space.sizes import number, size, values
from nearkv.sweeps.space.study import NONE, Block, Numbers, Study, blocks

WORKLOAD = {"batch": "batch", "context": "context_tok", "output": "output_tok"}
_LOOKS = 97


def crossovers(study: Study, along: str, of: str) -> Rows:
    """Find every value at which the better of two systems changes.

    Args:
        study: two systems; its other axes may hold lists.
        along: `batch=LOW:HIGH`, `context=...`, `output=...` or `role.key=LOW:HIGH`.
        of: the column to compare by. A system that does not fit loses.

    Returns:
        A row a crossing (`from` leads up to `below`, `to` leads from `above` on; where neither fits
        nobody leads) and, where there is none, a row that says who leads all along.

    Raises:
        InputError: not two systems with the same points, or an axis or a column that cannot be used.
    """
    if of not in COLUMNS:
        raise unknown("column", of, COLUMNS, "--of")
    name, equals, limits = along.partition("=")
    if not equals or limits.count(":") != 1:
        raise InputError(f"--along {along!r}: write it as AXIS=LOW:HIGH, as in context=4k:1M")
    if "." not in name and name not in WORKLOAD:
        raise unknown("axis", name, [*WORKLOAD, "csd.count"], "--along")
    if len(set(study.systems)) != 2 or len(study.systems) != 2:
        raise InputError("a crossover is between two systems; name two different ones")
    rows: Rows = []
    laid = [blocks(_without(replace(study, systems=(system,)), name)) for system in study.systems]
    if len(laid[0]) != len(laid[1]):
        raise InputError("both systems need the same rows; give their knobs one value each")
    for pair in zip(*laid, strict=True):
        rows += _rows(Race(Probe(pair[0]), Probe(pair[1]), name, of), limits)
    return rows


def _without(study: Study, axis: str) -> Study:
    """The study with one value on the axis that is to be walked."""
    here = {name: "1" if name == axis else getattr(study, name) for name in WORKLOAD}
    return replace(study, batch=here["batch"], context=here["context"], output=here["output"])


def _line(name: str, limits: str, block: Block) -> tuple[Numbers, bool, float, str]:
    """Values along an axis, whether only whole numbers count, and the unit to show them in."""
    read = size
    whole, unit, scale = True, "1", 1.0
    if name not in WORKLOAD:
        key = block.platform.key(name)
        role, _, own = name.partition(".")
        stated = block.platform.roles[role].numbers.get(own)
        unit = stated.unit if stated else key.unit
        read, whole, scale = number(key), key.whole, unit_of(unit)[1]
    low, high = values(limits.replace(":", ","), read, f"--along {name}")
    if not low < high:
        raise InputError(f"--along {name}={limits}: low must come before high")
    looks = np.geomspace(low, high, _LOOKS)
    return (np.unique(np.round(looks)) if whole else looks), whole, scale, unit


@dataclass(frozen=True)
class Race:
    """Two systems along an axis, compared by a column.

    Attributes:
        first, second: the systems, point for point.
        axis: `batch`, `context`, `output` or `role.key`.
        of: the column.
    """

    first: Probe
    second: Probe
    axis: str
    of: str

    def of_each(self, point: Points, value: Numbers) -> dict[str, Numbers]:
        """The column of each system, NaN where it does not fit."""
        axes, numbers = (
            ({WORKLOAD[self.axis]: value}, NONE)
            if self.axis in WORKLOAD
            else (NONE, {self.axis: value})
        )
        return {
            probe.block.system.name: column(probe.answer(point, axes, numbers), self.of, len(point))
            for probe in (self.first, self.second)
        }

    def lead(self, point: Points, value: Numbers) -> Numbers:
        """How far the first is ahead, on a logarithmic scale; a system that does not fit is far behind."""
        better = 1.0 if higher_is_better(self.of) else -1.0
        with np.errstate(divide="ignore"):
            ours, theirs = (better * np.log(found) for found in self.of_each(point, value).values())
        apart = np.nan_to_num(ours, nan=-FAR) - np.nan_to_num(theirs, nan=-FAR)
        limited: Numbers = np.clip(apart, -FAR, FAR)
        return limited

    def contested(self, crossing: Crossing) -> bool:
        """Whether on both sides of a crossing at least one system fits."""
        point = np.array([crossing.point])
        each = [
            self.of_each(point, np.array([value])).values()
            for value in (crossing.below, crossing.above)
        ]
        return all(any(np.isfinite(found[0]) for found in side) for side in each)


def _rows(race: Race, limits: str) -> Rows:
    if race.first.size != race.second.size:
        raise InputError("both systems need the same rows; give their knobs one value each")
    looks, whole, scale, unit = _line(race.axis, limits, race.first.block)
    names = (race.first.block.system.name, race.second.block.system.name)
    hidden = (race.axis, WORKLOAD.get(race.axis, ""))
    found = [c for c in crossings(race.lead, race.first.size, looks, whole) if race.contested(c)]
    rows: Rows = []
    for i in range(race.first.size):
        point = race.first.names(i, hidden)
        point.pop("system")
        for crossing in (crossing for crossing in found if crossing.point == i):
            order = names[::-1] if crossing.rises else names
            row: dict[str, Any] = {"from": order[0], "to": order[1], "along": race.axis}
            row |= {"below": crossing.below / scale, "above": crossing.above / scale, "unit": unit}
            each = race.of_each(np.array([i]), np.array([crossing.above]))
            row |= {f"{name}_{race.of}": float(value[0]) for name, value in each.items()}
            rows.append(point | {key: plain(value) for key, value in row.items()} | {"reason": ""})
        if not any(crossing.point == i for crossing in found):
            ahead = names[0] if race.lead(np.array([i]), looks[:1])[0] >= 0 else names[1]
            nothing: dict[str, Any] = dict.fromkeys(
                ("below", "above", "unit", *(f"{name}_{race.of}" for name in names))
            )
            reason = f"never: {ahead} leads from {limits.replace(':', ' to ')}"
            rows.append(
                point | {"from": ahead, "to": "", "along": race.axis} | nothing | {"reason": reason}
            )
    return rows

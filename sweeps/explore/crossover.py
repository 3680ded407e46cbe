"""`nearkv solve crossover`: where one system overtakes another along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.evaluate.probe import Probe, check_column
from nearkv.sweeps.explore.lines import (
    WORKLOAD,
    Line,
    limits_of,
    line,
    refuse_set,
    searched,
    stated,
)
from nearkv.sweeps.explore.race import Change, Race
from nearkv.sweeps.explore.rows import Row, Rows, sentences
from nearkv.sweeps.study.bands import Band, check_band
from nearkv.sweeps.study.study import Block, Study
from nearkv.sweeps.tables.table import plain

LOOKS = 97
"""Values looked at before crossings between them are refined."""
EQUAL = "equal"
"""Stands in place of a leader where both systems are equal."""
UNEQUAL = "both systems need the same rows; give their knobs one value each"


def crossovers(study: Study, along: str, of: str) -> Rows:
    """Find every value at which the better of two systems changes.

    Args:
        study: two systems; its other axes may hold lists.
        along: `batch=LOW:HIGH`, `context=...`, `output_tokens=...` or `role.key=LOW:HIGH`.
        of: the column to compare by. A system that does not fit loses.

    Returns:
        A row per change: `from` leads up to `below`, `to` leads from `above` on; `equal` stands
        where both are equal. Where neither fits nobody leads. Where there is no crossing, a row
        that says who leads throughout.
        The column of both is that at `above`, or at the low end where there is no crossing.
        `reason` says which system fits on one side only, and what is short on the other.
        `resolution` is the relative distance between the values looked at: a crossing that is
        reversed within it may go unseen. With a band, `above_p05` and so on: where the first
        crossing in that direction lies in each draw, and `crossing_share`, the share of the draws
        that have one.

    Raises:
        InputError: not two systems with the same points, or an axis or a column that cannot be
            used.
    """
    axis, limits = _axis(along)
    band = Band(study.band, study.samples, study.seed) if study.band else None
    if band is not None:
        check_band(band, study.method)
    study = replace(study, band=0.0)
    if len(set(study.systems)) != 2 or len(study.systems) != 2:
        raise InputError("a crossover is between two systems; name two different ones")
    both = _blocks(study, axis)
    first, second = (
        [block for block in both if block.system.name == name] for name in study.systems
    )
    if len(first) != len(second):
        raise InputError(UNEQUAL)
    rows: Rows = []
    for one, other in zip(first, second, strict=True):
        race = Race(Probe(one), Probe(other), axis, of)
        check_column(of, race.first.own_columns, race.second.own_columns)
        rows += _rows(race, limits, band)
    return rows


def _axis(along: str) -> tuple[str, str]:
    """Name and limits of the axis to walk along."""
    axis, equals, limits = along.partition("=")
    if not equals or limits.count(":") != 1:
        raise InputError(
            f"--along {along!r}: write it as AXIS=LOW:HIGH, as in context=4k:1M"
        )
    if "." not in axis and axis not in WORKLOAD:
        raise unknown("axis", axis, [*WORKLOAD, "csd.count"], "--along")
    return axis, limits


def _blocks(study: Study, axis: str) -> list[Block]:
    """Blocks of both systems, with one value on the axis that is walked."""
    if axis in WORKLOAD:
        if getattr(study, axis) != getattr(Study, axis):
            raise InputError(f"--{axis}: is what --along walks; leave it out")
        study = _with_one(study, axis)
    study_blocks = searched(study)
    for block in study_blocks:
        refuse_set(study, block, axis, "--along")
    warn_of_unread(study_blocks, {axis: "--along"})
    return study_blocks


def _with_one(study: Study, axis: str) -> Study:
    """The study with one value on an axis of its workload."""
    if axis == "batch":
        return replace(study, batch="1")
    if axis == "context":
        return replace(study, context="1")
    return replace(study, output_tokens="1")


def _line(axis: str, limits: str, block: Block) -> Line:
    whole, unit = True, "1"
    if axis not in WORKLOAD:
        key, _, unit = stated(block, axis)
        whole = key.whole
    edges = limits_of(limits, block, axis, f"--along {axis}={limits}")
    return line(axis, edges, LOOKS, whole, unit)


def _rows(race: Race, limits: str, band: Band | None) -> Rows:
    if race.first.size != race.second.size:
        raise InputError(UNEQUAL)
    walk = _line(race.axis, limits, race.first.block)
    changes = race.changes(walk.values, walk.whole)
    contested = [change for change in changes if race.is_contested(change)]
    bands = _bands(race, walk, contested, band) if band else None
    rows: Rows = []
    for point in range(race.first.size):
        own = [change for change in contested if change.point == point]
        answers = _answers(race, walk, point, own, limits)
        for place, answer in enumerate(answers):
            row = {**_names(race, point), **answer, "resolution": walk.resolution}
            over_draws = bands[point][place] if bands else {}
            rows.append({**row, **over_draws, "note": walk.note})
    return rows


def _bands(
    race: Race, walk: Line, stated: Sequence[Change], band: Band
) -> list[list[dict[str, Any]]]:
    """Bands of the crossings of each design point."""
    from nearkv.sweeps.explore.crossover_bands import crossing_bands

    own: list[list[Change]] = [[] for _ in range(race.first.size)]
    for change in stated:
        own[change.point].append(change)
    return crossing_bands(race, band, walk, own)


def _names(race: Race, point: int) -> dict[str, Any]:
    """What tells a design point from the others."""
    names = race.first.names(point, (race.axis, WORKLOAD.get(race.axis, "")))
    del names["system"]
    return names


def _answers(
    race: Race, walk: Line, point: int, own: Sequence[Change], limits: str
) -> list[dict[str, Any]]:
    if own:
        return [_crossing(race, walk, change) for change in own]
    leader, why = _leader(race, walk, point)
    over = limits.replace(":", " to ")
    return [
        {
            "from": leader,
            "to": "",
            "along": race.axis,
            "below": None,
            "above": None,
            "unit": None,
            **_quantities(race, point, walk.values[0]),
            "reason": f"never: {why} from {over}",
        }
    ]


def _leader(race: Race, walk: Line, point: int) -> tuple[str, str]:
    """Which system leads wherever one does, if any, and the words for it."""
    points = np.full(len(walk.values), point)
    lead = race.lead(points, walk.values)
    ahead = lead[lead != 0]
    if len(ahead):
        leader = race.names[0] if ahead[0] > 0 else race.names[1]
        where = "" if len(ahead) == len(lead) else ", where one does,"
        return leader, f"{leader} leads{where}"
    if np.isfinite(race.columns(points, walk.values)).any():
        return "", "both are equal"
    return "", "neither has a value"


def _crossing(race: Race, walk: Line, change: Change) -> dict[str, Any]:
    first, second = race.names
    leaders = {1: first, 0: EQUAL, -1: second}
    return {
        "from": leaders[change.before],
        "to": leaders[change.after],
        "along": race.axis,
        "below": plain(change.below / walk.scale),
        "above": plain(change.above / walk.scale),
        "unit": walk.unit,
        **_quantities(race, change.point, change.above),
        "reason": "; ".join(race.misfits(change)),
    }


def _quantities(race: Race, point: int, value: float) -> dict[str, Any]:
    """The column of both systems at one value along the axis."""
    values = race.columns(np.array([point]), np.array([value]))
    names = [f"{name}_{race.of}" for name in race.names]
    return {name: plain(value[0]) for name, value in zip(names, values, strict=True)}


def why_crossover(rows: Sequence[Row]) -> list[str]:
    """Say which system leads on either side of each crossing."""
    return sentences(_why_crossover(row) for row in rows if row["to"])


def _why_crossover(row: Row) -> str:
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    below, above = (f"{row[side]:,.6g}{unit}" for side in ("below", "above"))
    change = (
        f"{_leads(row['from'])} up to {row['along']} {below}, "
        f"{_leads(row['to'])} from {above} on"
    )
    reason = f"; {row['reason']}" if row["reason"] else ""
    return f"{row['model']}: {change}{reason}."


def _leads(name: str) -> str:
    return "both are equal" if name == EQUAL else f"{name} leads"

"""The proof of a design: boxes of machines that are ruled out, and its check from the question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_text
from nearkv.solvers.boxes import Boxes, Integers, Mask, Numbers, Optimum, covers
from nearkv.sweeps.explore.design.measures import Space
from nearkv.sweeps.explore.design.question import Question

CLOSE = 1e-7
"""Relative distance of values that are the same, and to which monotony holds [1]."""
AT_ONCE = 1 << 14


def certificate_of(space: Space, optimum: Optimum) -> dict[str, Any]:
    """The best machines and the cuts that rule out all others, by the names of their cases.

    Args:
        space, optimum: what was searched, and what was found.

    Returns:
        What JSON can hold: `cases` by name, `best` and `cuts` of these cases.
    """
    best = zip(optimum.case, optimum.point, optimum.value, strict=True)
    cuts = zip(optimum.cuts.case, optimum.cuts.low, optimum.cuts.high, strict=True)
    return {
        "goal": _goal(space),
        "monotone": space.relied_on(),
        "cases": space.names,
        "best": [[int(c), point.tolist(), value.tolist()] for c, point, value in best],
        "cuts": [[int(c), low.tolist(), high.tolist()] for c, low, high in cuts],
        "open": len(optimum.open),
    }


def _goal(space: Space) -> dict[str, Any]:
    goal = space.goal
    sides = ["highest" if highest else "least" for highest in goal.highest]
    limits = [
        f"{limit.name} {'>=' if limit.at_least else '<='} {limit.value!r}"
        for limit in goal.limits
    ]
    return {"objectives": list(zip(goal.objectives, sides, strict=True)), "limits": limits}


def read_certificate(file: str) -> dict[str, Any]:
    """A certificate as `--certificate` wrote it.

    Raises:
        InputError: the file is none.
    """
    try:
        held = json.loads(read_text(Path(file), "certificate"))
        cases, cuts = held["cases"], held["cuts"]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{file}: is no certificate; `nearkv design --certificate` writes one"
        ) from None
    assert isinstance(cases, list)
    assert isinstance(cuts, list)
    return dict(held)


def fault_of(question: Question, certificate: Mapping[str, Any]) -> str:
    """What is wrong with a certificate, by nothing but the question; empty where it holds.

    The space, its prices and rules of assembly are built anew. The cuts must fill it; the cheapest
    and the best corner of each must show that nothing in it is better than the best that is stated.

    Args:
        question: what was asked.
        certificate: as `certificate_of` gives it.
    """
    space, _ = question.space()
    return next(_faults(space, certificate), "")


def _faults(space: Space, certificate: Mapping[str, Any]) -> Iterator[str]:
    """The faults of a certificate; what comes after the first may not be asked for."""
    if json.loads(json.dumps(certificate["goal"])) != json.loads(json.dumps(_goal(space))):
        yield "it is of another objective or other limits"
    if certificate["open"]:
        yield "the search was stopped before it ended, so it proves no more than its gap"
    place = {name: case for case, name in enumerate(space.names)}
    if unknown := [name for name in certificate["cases"] if name not in place]:
        yield f"the question has no case {unknown[0]!r}"
    known = np.array([place[name] for name in certificate["cases"]], np.int64)
    cuts = _cuts(certificate, known)
    if len(cuts) == 0 or cuts.low.shape[1] != space.boxes.low.shape[1]:
        yield "it has no cuts of this space"
    covered = covers(space.boxes, cuts)
    if not np.all(covered):
        first = space.names[int(np.argmin(covered))]
        yield f"cuts do not fill {int(np.sum(~covered))} cases once, as {first}"
    best = certificate["best"]
    case = known[[row[0] for row in best]]
    point = np.array([row[1] for row in best], np.int64).reshape(len(best), -1)
    value = np.array([row[2] for row in best], float).reshape(len(best), -1)
    inside = (space.boxes.low[case] <= point) & (point <= space.boxes.high[case])
    if not np.all(inside) or not np.allclose(space.value(case, point), value, CLOSE, 0):
        yield "a machine it names does not have the value it states"
    holds = _holds(space, cuts, case, value)
    if not np.all(holds):
        row = int(np.argmin(holds))
        name = space.names[int(cuts.case[row])]
        yield f"{int(np.sum(~holds))} cuts do not hold, as {name} {cuts.low[row].tolist()}"


def _cuts(certificate: Mapping[str, Any], known: Integers) -> Boxes:
    """The cuts of a certificate as boxes of the space that was built anew."""
    rows = certificate["cuts"]
    case = known[[row[0] for row in rows]]
    low, high = (np.array([row[end] for row in rows], np.int64) for end in (1, 2))
    return Boxes(case, low.reshape(len(rows), -1), high.reshape(len(rows), -1))


def _holds(space: Space, cuts: Boxes, case: Integers, value: Numbers) -> Mask:
    """Where no machine of a cut can be better than a best one of its system."""
    _, system = space.systems()
    if len(space.goal.objectives) > 1:
        system = np.zeros_like(system)  # a front is of all systems together
    holds = np.zeros(len(cuts), bool)
    for start in range(0, len(cuts), AT_ONCE):
        rows = np.arange(start, min(start + AT_ONCE, len(cuts)))
        bounds = space.quick(cuts[rows])
        holds[rows] = _is_beaten(bounds, system[cuts.case[rows]], system[case], value)
        rest = rows[~holds[rows]]
        single = cuts[rest].sizes == 1
        asked = np.maximum(space.quick(cuts[rest]), space.bound(cuts[rest]))
        asked[single] = space.value(cuts.case[rest[single]], cuts.low[rest[single]])
        holds[rest] = _is_beaten(asked, system[cuts.case[rest]], system[case], value)
    return holds


def _is_beaten(bounds: Numbers, system: Integers, holder: Integers, value: Numbers) -> Mask:
    """Where a bound is infinite, or a best machine of the same system is as good in all."""
    slack = value - CLOSE * np.abs(value)
    good = np.all(slack <= bounds[:, np.newaxis], axis=2)
    of_its_own = system[:, np.newaxis] == holder
    beaten: Mask = np.any(bounds == np.inf, axis=1) | np.any(good & of_its_own, axis=1)
    return beaten

"""The proof of a search on boxes: those that are ruled out, and its check from the question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_text
from nearkv.solvers.boxes import Boxes, Integers, Mask, Numbers, Optimum, covers, is_beaten

CLOSE = 1e-7
"""Relative distance of values that are the same, and to which monotony holds [1]."""
AT_ONCE = 1 << 14
LARGEST = 1 << 28
"""Size of a file that may be a certificate: some hundred bytes a case [B]."""


class Searched(Protocol):
    """What was searched: cases by name, and what is asked of their points."""

    @property
    def names(self) -> list[str]:
        """A name a case, which holds all that tells it from a case of another question."""

    @property
    def boxes(self) -> Boxes:
        """A box a case."""

    def asked(self) -> dict[str, Any]:
        """Objectives and limits, as JSON holds them."""

    def relied_on(self) -> list[str]:
        """What the bounds take as monotone."""

    def groups_of_cases(self) -> Integers:
        """The group of each case; the best of each is sought."""

    def quick(self, boxes: Boxes) -> Numbers:
        """A bound that costs little: (boxes, objectives)."""

    def bound(self, boxes: Boxes) -> Numbers:
        """What no point of each box is below: (boxes, objectives)."""

    def value(self, case: Integers, point: Integers) -> Numbers:
        """The objectives of points: (points, objectives)."""


def certificate_of(space: Searched, optimum: Optimum) -> dict[str, Any]:
    """The best points and the cuts that rule out all others, by the names of their cases.

    Args:
        space, optimum: what was searched, and what was found.

    Returns:
        What JSON can hold: `cases` by name, `best` and `cuts` of these cases.
    """
    best = zip(optimum.case, optimum.point, optimum.value, strict=True)
    cuts = zip(optimum.cuts.case, optimum.cuts.low, optimum.cuts.high, strict=True)
    return {
        "goal": space.asked(),
        "monotone": space.relied_on(),
        "cases": space.names,
        "best": [[int(c), point.tolist(), value.tolist()] for c, point, value in best],
        "cuts": [[int(c), low.tolist(), high.tolist()] for c, low, high in cuts],
        "open": len(optimum.open),
    }


def check_certificate(file: str, space: Searched) -> str:
    """A sentence that a certificate holds.

    Args:
        file: that `--certificate` wrote.
        space: what was searched, built anew from the question.

    Raises:
        InputError: the file is none, or does not hold.
    """
    text = read_text(Path(file), "certificate", most=LARGEST)
    try:
        held = json.loads(text)
        fault = fault_of(space, held)
        cases, cuts = len(held["cases"]), len(held["cuts"])
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        raise InputError(f"{file}: is no certificate; --certificate writes one") from None
    if fault:
        raise InputError(f"{file}: does not hold: {fault}")
    return f"{file} holds: {cuts:,} cuts rule out all else of {cases:,} cases."


def fault_of(space: Searched, certificate: Mapping[str, Any]) -> str:
    """What is wrong with a certificate, by nothing but the question; empty where it holds.

    The cuts must fill the space; the cheapest and the best corner of each must show that nothing in
    it is better than the best that is stated.

    Args:
        space: of the question, with its prices and rules of assembly.
        certificate: as `certificate_of` gives it.
    """
    return next(_faults(space, certificate), "")


def _faults(space: Searched, certificate: Mapping[str, Any]) -> Iterator[str]:
    """The faults of a certificate; what comes after the first may not be asked for."""
    if certificate["goal"] != space.asked():
        yield "it is of another objective or other limits"
    if certificate["open"]:
        yield "the search was stopped before it ended, so it proves no more than its gap"
    place = {name: case for case, name in enumerate(space.names)}
    if unknown := [name for name in certificate["cases"] if name not in place]:
        yield f"the question has no case {unknown[0]!r}"
    known = np.array([place[name] for name in certificate["cases"]], np.int64)
    if not certificate["cuts"]:
        yield "it has no cuts"
    cuts = _cuts(certificate, known)
    if cuts.low.shape[1] != space.boxes.low.shape[1]:
        yield "it has no cuts of this space"
    covered = covers(space.boxes, cuts)
    if not np.all(covered):
        first = space.names[int(np.argmin(covered))]
        yield f"cuts do not fill {int(np.sum(~covered))} cases once, as {first}"
    best = certificate["best"]
    case = known[[row[0] for row in best]]
    axes, objectives = space.boxes.low.shape[1], len(space.asked()["objectives"])
    point = np.array([row[1] for row in best], np.int64).reshape(-1, axes)
    value = np.array([row[2] for row in best], float).reshape(-1, objectives)
    inside = (space.boxes.low[case] <= point) & (point <= space.boxes.high[case])
    if not np.all(inside) or not np.allclose(space.value(case, point), value, CLOSE, 0):
        yield "what it names as best does not have the value it states"
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


def _holds(space: Searched, cuts: Boxes, case: Integers, value: Numbers) -> Mask:
    """Where no point of a cut can be better than a best one of its group."""
    group = space.groups_of_cases()
    best, holder = value - CLOSE * np.abs(value), group[case]
    holds = np.zeros(len(cuts), bool)
    for start in range(0, len(cuts), AT_ONCE):
        rows = np.arange(start, min(start + AT_ONCE, len(cuts)))
        bounds = space.quick(cuts[rows])
        holds[rows] = is_beaten(bounds, group[cuts.case[rows]], best, holder)
        rest = rows[~holds[rows]]
        single, asked = cuts[rest].sizes == 1, space.quick(cuts[rest])
        asked[~single] = np.maximum(asked[~single], space.bound(cuts[rest[~single]]))
        asked[single] = space.value(cuts.case[rest[single]], cuts.low[rest[single]])
        holds[rest] = is_beaten(asked, group[cuts.case[rest]], best, holder)
    return holds

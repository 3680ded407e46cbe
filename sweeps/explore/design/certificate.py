"""The proof of a search on boxes: those that are ruled out, and its check from the question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_text
from nearkv.solvers.boxes import (
    Boxes,
    Integers,
    Mask,
    Numbers,
    Optimum,
    Searched,
    covers,
    is_beaten,
)

CLOSE = 1e-7
"""Relative distance of values that are the same, and to which monotony holds [1]."""
LARGEST = 1 << 28
"""Size of a file that may be a certificate: some hundred bytes a case [B]."""


class Asked(Searched, Protocol):
    """What was searched: cases by name, and what is asked of their points."""

    @property
    def names(self) -> list[str]:
        """A name a case, which holds all that tells it from a case of another question."""

    def asked(self) -> dict[str, Any]:
        """Objectives and limits, as JSON holds them."""

    def relied_on(self) -> list[str]:
        """What the bounds take as monotone."""


def certificate_of(space: Asked, optimum: Optimum) -> dict[str, Any]:
    """The best points and the cuts that rule out all others, by the names of their cases.

    Args:
        space, optimum: what was searched, and what was found.

    Returns:
        What JSON can hold: `cases` by name, `best` and `cuts` of these cases.
    """
    cuts = optimum.cuts
    return {
        "goal": space.asked(),
        "monotone": space.relied_on(),
        "cases": space.names,
        "best": _rows(optimum.case, optimum.point, optimum.value),
        "cuts": _rows(cuts.case, cuts.low, cuts.high),
        "open": len(optimum.open),
    }


def _rows(*columns: Integers | Numbers) -> list[list[Any]]:
    """Arrays of as many rows each, side by side as JSON holds them."""
    return [list(row) for row in zip(*(each.tolist() for each in columns), strict=True)]


def check_certificate(file: str, space: Asked) -> str:
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


def fault_of(space: Asked, certificate: Mapping[str, Any]) -> str:
    """What is wrong with a certificate, by nothing but the question; empty where it holds.

    The cuts must fill the space; the cheapest and the best corner of each must show that nothing in
    it is better than the best that is stated.

    Args:
        space: of the question, with its prices and rules of assembly.
        certificate: as `certificate_of` gives it.
    """
    return next(chain(_strangeness(space, certificate), _faults(space, certificate)), "")


def _strangeness(space: Asked, certificate: Mapping[str, Any]) -> Iterator[str]:
    """What shows that a certificate is of another question, or of none that was answered."""
    if certificate["goal"] != space.asked():
        yield "it is of another objective or other limits"
    if json.dumps(certificate["open"]) != "0":
        yield "the search was stopped before it ended, so it proves no more than its gap"
    if certificate["cases"] != space.names:
        yield "its cases are not those of the question"
    if certificate["monotone"] != space.relied_on():
        yield "it relies on another monotony than the question allows"


def _faults(space: Asked, certificate: Mapping[str, Any]) -> Iterator[str]:
    """Faults of the cuts and of the best; what comes after the first may not be asked for."""
    if not certificate["cuts"]:
        yield "it has no cuts"
    cuts = Boxes(*map(np.array, zip(*certificate["cuts"], strict=True)))
    nothing = cuts.case[:0], cuts.low[:0], space.quick(cuts[:0])
    best = zip(*certificate["best"], strict=True) if certificate["best"] else nothing
    case, point, value = map(np.array, best)
    places = (case, point, cuts.case, cuts.low, cuts.high)
    if any(each.dtype.kind != "i" for each in places):
        yield "it has places that are no whole numbers"
    if not cuts.low.shape[1] == cuts.high.shape[1] == space.boxes.low.shape[1]:
        yield "it has no cuts of this space"
    covered = covers(space.boxes, cuts)
    if not np.all(covered):
        first = space.names[int(np.argmin(covered))]
        yield f"cuts do not fill {int(np.sum(~covered))} cases once, as {first}"
    boxes = space.boxes[case]
    inside = (case[:, np.newaxis] >= 0) & (boxes.low <= point) & (point <= boxes.high)
    known = space.value(case, point) if np.all(inside) else np.zeros(0)
    if known.shape != value.shape or not np.allclose(known, value, CLOSE, 0):
        yield "what it names as best does not have the value it states"
    group = space.groups_of_cases()[case]
    as_good = np.all(value[:, np.newaxis] <= value, axis=2) & (
        group[:, np.newaxis] == group
    )
    if np.any(np.sum(as_good, axis=0) > 1):
        yield "one that it names as best is named twice, or no better than another one"
    holds = _holds(space, cuts, case, value)
    if not np.all(holds):
        row = int(np.argmin(holds))
        name = space.names[int(cuts.case[row])]
        yield f"{int(np.sum(~holds))} cuts do not hold, as {name} {cuts.low[row].tolist()}"


def _holds(space: Asked, cuts: Boxes, case: Integers, value: Numbers) -> Mask:
    """Where no point of a cut can be better than a best one of its group."""
    group = space.groups_of_cases()
    best, holder = value - CLOSE * np.abs(value), group[case]
    bounds = space.quick(cuts)
    open_still = np.flatnonzero(~is_beaten(bounds, group[cuts.case], best, holder))
    is_point = cuts[open_still].sizes == 1
    wide, points = open_still[~is_point], open_still[is_point]
    bounds[wide] = np.maximum(bounds[wide], space.bound(cuts[wide]))
    bounds[points] = space.value(cuts.case[points], cuts.low[points])
    return is_beaten(bounds, group[cuts.case], best, holder)

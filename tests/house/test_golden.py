"""Numbers stay what they were until a commit says which changes and why."""

from __future__ import annotations

import csv
from math import isclose

import pytest
from golden.pins import HEADER, PINS, pins


@pytest.mark.slow
def test_every_system_answers_what_is_pinned() -> None:
    """A formula that changes on purpose changes `pins.csv` in its own commit: `make golden`."""
    with PINS.open(newline="") as file:
        header, *pinned = csv.reader(file)
    now = list(pins())
    assert tuple(header) == HEADER
    assert [row[:3] for row in pinned] == [list(row[:3]) for row in now]
    changed = [
        (old, new[3]) for old, new in zip(pinned, now, strict=True) if not same(old[3], new[3])
    ]
    assert not changed, f"{len(changed)} of {len(now)} values, first: {changed[:5]}"


def same(old: str, new: str) -> bool:
    """Whether two values are the same text, or numbers equal to 1e-12."""
    if old == new:
        return True
    try:
        return isclose(float(old), float(new), rel_tol=1e-12, abs_tol=0.0)
    except ValueError:
        return False

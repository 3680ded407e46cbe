"""Who leads on either side of a crossing: one system, the other, or neither."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from nearkv.solvers.search import Numbers, Points
from nearkv.sweeps.evaluate.compare import compare
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.explore.crossover import Race, crossovers, why_crossover
from nearkv.sweeps.explore.lines import Line
from nearkv.sweeps.study.study import Study


@pytest.mark.parametrize("order", [1, -1])
def test_where_both_are_equal_nobody_leads(order: int) -> None:
    """Whichever system is named first."""
    names = ("flexgen-dram", "flexgen-ssd")[::order]
    pair = Study(names, ("opt-66b",), context="4k")
    (row,) = crossovers(pair, "batch=38:44", "prefill_s")
    table = compare(replace(pair, batch=f"{row['below']},{row['above']}"))
    first, second = table["prefill_s"].astype(float).reshape(2, 2)
    assert first[0] == second[0]
    faster = names[int(first[1] > second[1])]
    assert (row["from"], row["to"], row["reason"]) == ("equal", faster, "")
    (sentence,) = why_crossover([row])
    ends = f"up to batch {row['below']}, {faster} leads from {row['above']} on."
    assert sentence == f"opt-66b: both are equal {ends}"


def test_a_system_that_stops_fitting_hands_over_the_lead() -> None:
    """The memory that is short is the one that a comparison names."""
    pair = Study(("hilos", "h2m2"), ("llama3.1-70b",))
    (row,) = crossovers(pair, "context=200k:210k", "decode_tok_s")
    assert (row["from"], row["to"]) == ("h2m2", "hilos")
    beyond = compare(replace(pair, context=str(row["above"])))
    (short_of,) = set(beyond["short_of"]) - {""}
    assert row["reason"] == f"h2m2 no longer runs there: {short_of} memory is short"
    (sentence,) = why_crossover([row])
    assert sentence.endswith(f"; {row['reason']}.")


@dataclass(frozen=True)
class Tie(Race):
    """A race that the first wins beyond 0.3, equal within some distance of it."""

    width: float = 0.0

    def lead(self, point: Points, value: Numbers) -> Numbers:
        """Rounding makes it 0 close to the crossing."""
        ahead: Numbers = value - 0.3
        return np.where(np.abs(ahead) <= self.width, 0.0, ahead)


@pytest.mark.parametrize(
    ("width", "leaders"), [(0.0, [(-1, 1)]), (1e-14, [(-1, 1)]), (0.05, [(-1, 0), (0, 1)])]
)
def test_a_tie_of_rounding_is_part_of_a_crossing(
    width: float, leaders: list[tuple[int, int]]
) -> None:
    """A range in which both are equal has two ends; a point of it is no range."""
    one = cast("Probe", SimpleNamespace(size=1))
    race = Tie(one, one, "context", "decode_tok_s", width=width)
    changes = race.changes(Line("context", np.array([0.1, 0.5, 0.9]), whole=False, unit="1"))
    assert [(change.before, change.after) for change in changes] == leaders
    ends = [0.3 - width, 0.3 + width][-len(changes) :]
    assert [change.above for change in changes] == pytest.approx(ends)
    assert all(change.rises for change in changes)

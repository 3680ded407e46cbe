"""`weights=auto` is the best placement: against every stated one, on any machine."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from support.drawing import POINTS, Design, designs, seeded
from support.systems import SYSTEMS

from nearkv.costmodel.algebra.span import Booleans

CASES = int(os.environ.get("NEARKV_CASES", "20"))
"""Design points a system: every placement of each is evaluated, so few in the tests."""
CLOSE = 1e-8
SHARES = np.linspace(0.0, 1.0, 9)[:, np.newaxis]
PLACED = [name for name, system in SYSTEMS.items() if "weights" in system.knobs]


@pytest.mark.parametrize("name", PLACED)
@settings(seeded, max_examples=max(CASES // POINTS, 1))
@given(st.data())
def test_no_placement_beats_the_best_one(name: str, data: st.DataObject) -> None:
    """Neither one memory, the paper's, the filled ones, nor any share on the drives."""
    design = data.draw(designs(name))
    # every placement is tried beside an alpha that is not stated, which takes a while
    if "alpha" in design.knobs and data.draw(st.integers(0, 7)) == 0:
        design = design.having(alpha=data.draw(st.sampled_from(["auto", "paper"])))
    if data.draw(st.booleans()) and "ssd_weights" in design.knobs:
        design = design.having(ssd_weights=0.0)
    assume(not design.is_refused)
    best = design.having(weights="auto")
    choices = range(len(design.system.knobs["weights"].choices))
    others = [design.having(weights=float(place)) for place in choices]
    if np.any(design.knobs.get("ssd_weights", 0.0)):
        # a stated share on the drives binds the filled memories alone
        others = others[:1]
    # beside a solved alpha the best share is proven where the system says so alone
    if "ssd_weights" in design.knobs and not isinstance(design.knobs.get("alpha"), str):
        least = np.asarray(design.knobs["ssd_weights"], float)
        shares = least + SHARES * (1 - least)
        others.append(design.having(weights=0.0, ssd_weights=shares))
    for other in others:
        assert not np.any(beaten(best, other)), other.knobs


def beaten(best: Design, other: Design) -> Booleans:
    """Where another design fits and the best one does not, or takes longer."""
    ours, theirs = best.estimate, other.estimate
    slower = np.greater(ours.total.seconds, theirs.total.seconds * (1 + CLOSE))
    where = theirs.fits.ok & (~np.asarray(ours.fits.ok) | slower)
    return np.broadcast_to(where, np.broadcast_shapes(np.shape(where), (POINTS,)))

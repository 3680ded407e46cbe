"""The spread of Student's law."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.uncertainty.spread import scores, spread


def test_the_spread_is_the_scale_of_students_law() -> None:
    """Errors drawn from 0.2 times Student's t of four degrees of freedom, without inputs."""
    ranked = (np.arange(400) + 0.5) / 400
    errors = 0.2 * scores(ranked)
    assert spread(errors, np.zeros(400), ["one"] * 400) == pytest.approx(0.2, rel=0.02)
    # Student's t of 4 at 97.5 % is 2.776
    assert scores(np.array([0.975, 0.5])) == pytest.approx([2.776, 0], abs=1e-3)
    inputs = np.full(400, 0.15)
    beside = spread(errors, inputs, ["one"] * 400)
    assert np.hypot(beside, 0.15) == pytest.approx(0.2, rel=0.02)

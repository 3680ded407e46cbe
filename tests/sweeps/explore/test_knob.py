"""The best value of a knob beside what the rules of the papers pick."""

from __future__ import annotations

import numpy as np

from nearkv.sweeps.explore.knob import best_knob
from nearkv.sweeps.study.study import Study


def test_a_rule_of_one_system_is_blank_for_another() -> None:
    """HILOS rounds its rule to powers of two as well; INF2 prints one rule."""
    both = best_knob(Study(("hilos", "inf2"), ("opt-66b",)), "alpha")
    for row, name in enumerate(("hilos", "inf2")):
        alone = best_knob(Study((name,), ("opt-66b",)), "alpha")
        for column in ("value", "rule", "rule_loss"):
            assert both[column][row] == alone[column][0], (name, column)
    assert np.isnan(both["rule_power_of_two"].astype(float)).tolist() == [False, True]

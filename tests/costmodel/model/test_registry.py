"""Knobs of registered systems, and what is said of unknown ones."""

from __future__ import annotations

import pytest
from support.systems import SYSTEMS

from nearkv.costmodel.model.registry import check_knobs
from nearkv.hardware.errors import InputError


def test_systems_without_knobs_say_so() -> None:
    without = [SYSTEMS[name] for name in ("lpddr-only", "hbm-8")]
    with pytest.raises(
        InputError, match=r"lpddr-only and hbm-8: unknown knob 'alpha'; valid are: chunk"
    ):
        check_knobs(without, ["alpha"])
    with pytest.raises(InputError, match=r"unknown knob 'alpha' of hilos-.*|'alpah'"):
        check_knobs([SYSTEMS["hilos"], SYSTEMS["inf2"]], ["alpah"])
    check_knobs([SYSTEMS["hilos"], without[0]], ["alpha"])

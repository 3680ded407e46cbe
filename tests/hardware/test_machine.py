"""Parts of a machine are what its numbers make them."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.model.resources import csd
from nearkv.hardware.catalog import load_platform


def test_devices_attend_at_the_rate_of_their_group_and_width() -> None:
    hw = load_platform("hilos-a100").machine()
    both = np.asarray(csd(hw, np.array([1.0, 4.0])).attend.rate)
    assert both[0] == csd(hw, 1.0).attend.rate
    assert csd(hw, 1.0, kv_width=1.0).kv_width == 1.0
    assert csd(hw, 1.0).kv_width == 2.0


def test_a_machine_with_other_numbers_builds_its_own_parts() -> None:
    hw = load_platform("hilos-a100").machine()
    fewer = hw.with_values({"csd.count": hw.csd.count / 2})
    assert fewer is not hw
    assert csd(hw, 1.0).read.rate == 2 * csd(fewer, 1.0).read.rate

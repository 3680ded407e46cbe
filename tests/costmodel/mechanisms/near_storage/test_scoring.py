"""Keys that are copied narrower, and the start of their kernel, by hand."""

from __future__ import annotations

import pytest
from support.personal_computer import machine
from support.tiny import TINY

from nearkv.costmodel.mechanisms.near_storage.scoring import Pools, csd_path, narrow_copies


@pytest.mark.parametrize(
    ("source", "flash", "dram"), [(0.0, 0.0, 0.0), (1.0, 25.0, 0.0), (2.0, 0.0, 25.0)]
)
def test_keys_of_half_the_width_are_a_quarter_of_the_cache(
    source: float, flash: float, dram: float
) -> None:
    """Keys are half of 100 bytes of two-byte K and V; a copy keeps a byte of each element."""
    copies = narrow_copies(TINY, 100.0, 1.0, source)
    assert (copies.flash, copies.dram) == (flash, dram)


def test_a_kernel_is_started_once() -> None:
    hw = machine(csd__launch=0.25)
    pools = Pools(hot=100.0, cold=300.0, retention=0.2, sigma=0.5, hop=1.0)
    span = csd_path(hw, TINY, pools, 1.0, 0.0, 4.0, 1.0)
    assert span.parts["launch"].seconds == 0.25

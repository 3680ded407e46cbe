"""Where buffers of K, V and X begin to take host memory that weights would fill."""

from __future__ import annotations

import pytest
from support.tiny import ALL_WEIGHTS, NEW_KV, NEW_X, TINY, WORK

from nearkv.costmodel.mechanisms.near_storage.x_cache import alpha_breaks
from nearkv.costmodel.model.resources import host
from nearkv.hardware.catalog import load_platform

KNOBS = {"interval": 16.0, "writeback": 1.0}


def test_weights_fill_dram_from_where_half_of_the_buffers_are_of_x() -> None:
    """DRAM of all weights and of 16 rows of five sequences, half of them K and V and half X."""
    hw = load_platform("hilos-a100").machine()
    usable = host(hw).memory / hw.host.memory
    needed = ALL_WEIGHTS + 16 * (NEW_KV + NEW_X) / 2
    sizes = {"gpu.memory": 1.0, "host.memory": needed / usable, "policy.pinned_rounding": 0.0}
    full = hw.with_values(sizes)
    assert alpha_breaks(full, TINY, WORK, KNOBS) == pytest.approx((0.5,))
    # weights on the devices leave the buffers all of DRAM
    assert alpha_breaks(full, TINY, WORK, {**KNOBS, "ssd_weights": 1.0}) == ()

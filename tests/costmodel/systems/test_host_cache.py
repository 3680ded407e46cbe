"""Where INF² keeps a cache that host memory may hold, of models whose heads share K and V."""

from __future__ import annotations

import numpy as np
from support.systems import SYSTEMS, model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import Requested, resolve_knobs


def test_a_cache_of_shared_heads_stays_in_host_memory_only_beside_its_x() -> None:
    """Llama 2's X takes four times its K and V: 512 GiB hold all K and V, but not beside 6 % of X.

    K and V: 2 x 1024 x 2 B x 80 layers x 36 x 40,852 tokens = 482 GB; X four times that.
    """
    hw = load_platform("inf2-a100").machine().with_values({"gpu.memory": 160e9})
    work = Workload(36.0, 40_546.0, 306.0)
    knobs: dict[str, Requested] = {
        "alpha": np.array([0.0, 0.057]),
        "interval": 2.0,
        "writeback": 0.0,
        "buffering": 0.0,
        "weights": 2.0,
        "ssd_weights": 0.0,
    }
    estimate = resolve_knobs(SYSTEMS["inf2"], hw, model("llama2-70b", hw), work, knobs).estimate
    assert np.all(estimate.fits.ok)
    on_drives, _ = estimate.fits.tiers["csd"]
    assert np.array_equal(np.asarray(on_drives) > 0, [False, True])

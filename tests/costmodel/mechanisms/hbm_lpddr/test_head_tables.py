"""Tables of heads and layers on HBM at their ends."""

from __future__ import annotations

import numpy as np
import pytest
from support.systems import model

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, layer_tables
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.mapping.policies import greedy


def test_where_nothing_fits_hbm_keeps_what_it_holds() -> None:
    """Units of 5 bytes on either side, and 3 bytes of room on both."""
    seconds, on_hbm, on_lpddr = np.ones(3), np.array([0.0, 5.0, 10.0]), np.array([10.0, 5.0, 0.0])
    rooms = np.asarray(3.0), np.asarray(3.0), np.asarray(2.0)
    tables = HeadTables((seconds,) * 3, (on_hbm,) * 3, (on_lpddr,) * 3, *rooms)
    answer = greedy(tables)
    assert [float(n) for n in answer.units] == [0, 0, 0]
    assert not answer.ok


def test_all_layers_on_one_side_leave_nothing_on_the_other() -> None:
    """Every weight matrix of the decoder and the whole KV cache, at one end of the table."""
    llm = model("gpt-175b")
    work = Workload(batch=3.0, prompt=1000.0, output=2.0)
    tables = layer_tables(load_platform("gh-asymmetric").machine(), llm, work)
    layers = int(llm.layers)
    cache = 3 * llm.layers * llm.kv_bytes(1.0, work.context)
    qkv_weights = llm.layers * 3 * llm.hidden**2 * 2
    attention, qkv, _ = (np.ravel(part)[layers] for part in tables.hbm)
    assert attention == pytest.approx(cache)
    assert qkv == pytest.approx(qkv_weights, rel=0.01)
    assert [np.ravel(part)[layers] for part in tables.lpddr] == [0, 0, 0]

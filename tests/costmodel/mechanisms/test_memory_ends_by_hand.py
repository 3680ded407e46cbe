"""Memories that are full or empty: what fills them, what binds, what units take of them."""

from __future__ import annotations

import pytest
from support.systems import model
from support.tiny import ALL_WEIGHTS, FINAL_KV, TINY, WORK

from nearkv.costmodel.mechanisms.serving.cpu_share import paces
from nearkv.costmodel.mechanisms.weights.percent import drive_share, gpu_share
from nearkv.costmodel.mechanisms.weights.residency import Residency
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.inf2 import host_room
from nearkv.costmodel.systems.l3 import pu_overhead
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.placement.placement import place

DIVIDED = {"tensors": 1.0, "cache": 1.0}


def test_units_take_a_quarter_of_a_chip_and_a_tenth_of_the_power() -> None:
    """7 of 28 areas; one rank's 6 W and 16 x 2 x 4 banks' 0.25 W of 380 W."""
    numbers = {"channels": 4.0, "ranksets": 1.0, "count": 4.0, "chips": 16.0, "bank_groups": 2.0}
    numbers |= {"banks": 4.0, "relayout_power": 1.0, "adder_power": 2.0, "softmax_power": 3.0}
    numbers |= {"bank_power": 0.25, "relayout_area": 1.0, "adder_area": 2.0, "softmax_area": 4.0}
    numbers |= {"buffer_area": 28.0, "power": 380.0}
    hw = load_platform("dgx-a100-pim").machine()
    shares = pu_overhead(hw.with_values({f"dimm.{name}": size for name, size in numbers.items()}))
    assert shares == pytest.approx({"rank_pu_area_pct": 25.0, "pu_power_pct": 10.0})


def test_weights_and_two_layers_leave_the_rest_of_host_memory() -> None:
    exact = {"policy.pinned_rounding": 0.0, "host.memory": 1e6}
    hw = load_platform("inf2-a100").machine().with_values(exact)
    room = host_room(hw, TINY, WORK, Residency(0.5, 0.5, 0.0))
    assert room == pytest.approx(1e6 - ALL_WEIGHTS / 2 - 2 * FINAL_KV / 3)


def test_a_roomy_gpu_holds_all_weights_and_no_more() -> None:
    hw = load_platform("t4-box").machine()
    assert gpu_share(hw.with_values({"gpu.memory": 1e12}), TINY, WORK, DIVIDED) == 1
    # a cache that alone overfills host memory leaves all weights to the drives
    full = hw.with_values({"host.memory": FINAL_KV / 2})
    assert drive_share(full, TINY, WORK, {**DIVIDED, "gpu_weights": 0.0}) == 1
    # half of the weights beside the cache
    half = hw.with_values({"host.memory": FINAL_KV + ALL_WEIGHTS / 2})
    assert drive_share(half, TINY, WORK, {**DIVIDED, "gpu_weights": 0.0}) == pytest.approx(0.5)


def test_only_layers_with_a_cache_move_to_the_cpu() -> None:
    hw = load_platform("dgx-a100-pim").machine()
    llm = model("jamba-v0.1", hw)
    movable = [pace.movable for pace in paces(hw, llm, Workload(4.0, 4000.0, 2.0))]
    assert movable == [float(not isinstance(kind, Recurrent)) for kind in llm.kinds.values()]


def test_what_is_not_full_does_not_bind() -> None:
    """Disks that hold nothing at the optimum are worth nothing."""
    hw = load_platform("t4-flexgen").machine()
    answer = place(hw, model("opt-30b", hw), Workload(1.0, 512.0, 32.0), gpu_batch=4, num_batches=2)
    assert answer.used["disk"] < 1
    assert "disk" not in answer.binding
    assert answer.worth["disk"] == 0

"""What GPUs of one node and of several exchange, and how long that settles."""

from __future__ import annotations

import pytest
from support.systems import SYSTEMS, model
from support.tiny import WORK, split, waited_for

from nearkv.costmodel.mechanisms.serving.collectives import adapters, settling, settling_across
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.hardware.catalog import load_platform

GPU = SYSTEMS["gpu"]


def test_messages_climb_a_tree_of_nodes_and_come_down() -> None:
    """Two nodes are one hop up, one down, of 0.25 s; two all-reduces in each of 32 layers."""
    hw, llm = load_platform("hgx-h200").machine(), model("llama2-7b")
    hw = hw.with_values({"fabric.start": 0.0, "fabric.hop": 0.0, "fabric.long": 0.0})
    apart = hw.with_values({"gpu.count": 16, "fabric.latency": 0.25})
    step = GPU(apart, llm, WORK, split(16.0)).step
    assert waited_for("fabric.latency", step) == pytest.approx(32 * 2 * 2 * 0.25)
    message = WORK.batch * llm.hidden * llm.activation_width  # a ring of two sends it once
    sent = {place: amount for place, amount in step.traffic().items() if "fabric" in place[0]}
    # over the adapters of two nodes
    assert max(sent.values()) == pytest.approx(2 * 32 * 2 * message)
    alone = hw.with_values({"fabric.latency": 0.25})
    together = GPU(alone, llm, WORK, split(8.0)).step
    assert waited_for("fabric.latency", together) == 0.0


def test_each_node_at_work_lends_its_adapters() -> None:
    hw = load_platform("hgx-h200").machine()
    few, all_of_one, two = (
        adapters(hw, GpuSplit(gpus, 1.0, node=8.0)).rate for gpus in (2.0, 8.0, 16.0)
    )
    assert few == all_of_one == two / 2


@pytest.mark.parametrize(
    ("nodes", "kilobytes", "measured"),
    [(2, 16, 32.2), (2, 64, 33.1), (2, 256, 46.8), (4, 16, 46.4), (4, 64, 47.6), (4, 256, 66.9)],
)
def test_all_reduces_between_nodes_take_what_was_measured(
    nodes: int, kilobytes: int, measured: float
) -> None:
    """Nodes of eight H100 on NDR InfiniBand, in microseconds (nccl-tests, issue 309)."""
    hw = load_platform("hgx-h100").machine()
    taken = settling_across(hw, 8.0, float(nodes), 1024.0 * kilobytes)
    assert 1e6 * taken == pytest.approx(measured, rel=0.12)


def test_an_all_reduce_between_nodes_by_hand() -> None:
    """Start 1, seven hops of 2, a tree of four nodes 4 x 3, then 8 B over 2 x 2 B/s or 0.5 s."""
    numbers = {"start": 1.0, "hop": 2.0, "latency": 3.0, "short_rate": 2.0, "count": 2.0}
    values = {f"fabric.{key}": value for key, value in numbers.items()}
    hw = load_platform("hgx-h100").machine().with_values(values | {"fabric.long": 9.0})
    assert settling_across(hw, 8.0, 4.0, 8.0) == 1 + 14 + 12 + 2
    assert settling_across(hw.with_values({"fabric.long": 0.5}), 8.0, 4.0, 8.0) == 27.5
    # one rank has nothing to reduce with, and an engine asks for no library within a node
    assert settling_across(hw, 1.0, 1.0, 0.0) == 1.0


def test_kernels_of_one_node_do_not_reduce_over_two() -> None:
    """Sixteen GPUs wait for the library alone, eight for the engine's kernel alone."""
    hw, llm = load_platform("hgx-h100").machine(), model("llama2-7b")
    waits = []
    for tp in (8.0, 16.0):
        step = GPU(hw.with_values({"gpu.count": 16}), llm, WORK, split(tp)).step
        waits.append([waited_for(f"{role}.latency", step) > 0 for role in ("nvlink", "fabric")])
    assert waits == [[True, False], [False, True]]


def test_cards_on_pcie_reduce_over_it() -> None:
    """Each further card of a ring waits a hop, and no NVLink takes part."""
    hw = load_platform("rtx-pro-6000-server").machine()
    step = GPU(hw, model("llama2-7b"), WORK, split(8.0)).step
    resources = {resource for resource, _ in step.traffic()}
    assert "gpu_link.out" in resources
    assert not any(resource.startswith("nvlink") for resource in resources)
    assert settling(hw, 8.0) == pytest.approx(7 * 3.6e-6)
    assert settling(hw, 1.0) == 0

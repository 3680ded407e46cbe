"""Bytes of weights that cross the link, and the copy that brings them."""

from __future__ import annotations

from support.tiny import SHAPE

from nearkv.costmodel.algebra.span import Port
from nearkv.costmodel.mechanisms.weights.residency import Residency
from nearkv.costmodel.mechanisms.weights.streaming import PageableStream
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu, host, link
from nearkv.hardware.catalog import load_platform


def test_weights_that_are_not_pinned_leave_the_others_to_the_pinned_path() -> None:
    """Of 80 B a quarter is on the GPU, half in host memory, of which three quarters, 30 B."""
    hw = load_platform("zero-a6000").machine()
    weights = PageableStream(
        llm=LLM(**SHAPE),
        gpu=gpu(hw),
        host=host(hw),
        link=link(hw, "gpu_link", "pcie"),
        tiers=Residency(0.25, 0.5, 0.25),
        storage={},
        pageable=Port("slow", "move", 1.0),
        unpinned=0.75,
    )
    leaves = {leaf.resource: leaf.amount for _, leaf, _ in weights.over_link(80.0).leaves()}
    assert leaves == {"gpu_link.in": 80 - 20 - 30, "slow": 30}

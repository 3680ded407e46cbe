"""The program of a placement at its optimum."""

from __future__ import annotations

import pytest
from support.systems import model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.placement.blocks import BlockProblem, single_block
from nearkv.solvers.placement.linear import Simplex
from nearkv.solvers.placement.placement import place


def test_a_programme_costs_what_its_shares_take() -> None:
    """Seconds of a sequence: prefill and 31 steps of a block of eight."""
    hw = load_platform("t4-flexgen").machine()
    llm, work = model("opt-30b", hw), Workload(1.0, 512.0, 32.0)
    answer = place(hw, llm, work, gpu_batch=4, num_batches=2)
    optimum = Simplex()(BlockProblem(hw, llm, work, {}).program(single_block(4, 2)))
    assert optimum is not None
    assert optimum.value == pytest.approx((answer.prefill + answer.decode) / 8, rel=1e-6)

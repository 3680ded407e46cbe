"""Boxes of blocks, where they are cut and which blocks a walk visits; what the CPU's rate slows."""

from __future__ import annotations

import pytest
from support.systems import model

from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.placement.blocks import TIME_ROWS, BlockBox, BlockProblem, single_block
from nearkv.solvers.placement.linear import Simplex
from nearkv.solvers.placement.placement import _gpu_batches, place


@pytest.mark.parametrize(
    ("box", "halves"),
    [
        # four octaves of GPU batches, three and more of their number: cut at the square root of 64
        (BlockBox(2, 32, 3, 30), (BlockBox(2, 8, 3, 30), BlockBox(9, 32, 3, 30))),
        # one octave of GPU batches, more than two of their number: cut at the square root of 90
        (BlockBox(2, 4, 3, 30), (BlockBox(2, 4, 3, 9), BlockBox(2, 4, 10, 30))),
        # up to twice as many octaves of numbers: the GPU batch first
        (BlockBox(1, 4, 1, 4), (BlockBox(1, 2, 1, 4), BlockBox(3, 4, 1, 4))),
        (BlockBox(1, 4, 1, 16), (BlockBox(1, 2, 1, 16), BlockBox(3, 4, 1, 16))),
        (BlockBox(4, 4, 1, 8), (BlockBox(4, 4, 1, 2), BlockBox(4, 4, 3, 8))),
        (BlockBox(7, 8, 1, 1), (BlockBox(7, 7, 1, 1), BlockBox(8, 8, 1, 1))),
        (BlockBox(9, 9, 7, 8), (BlockBox(9, 9, 7, 7), BlockBox(9, 9, 8, 8))),
    ],
)
def test_a_box_is_cut_where_it_is_widest(box: BlockBox, halves: tuple[BlockBox, BlockBox]) -> None:
    assert box.halves() == halves
    assert not box.single


@pytest.mark.parametrize("low", [10**17 + 1, 10**17 + 15])
def test_no_part_of_a_huge_box_is_empty(low: int) -> None:
    """A root in floating point is rounded to 10^17, below the box, or to 10^17 + 16, its end."""
    parts = BlockBox(low, low + 1, 1, 1).halves()
    assert parts == (BlockBox(low, low, 1, 1), BlockBox(low + 1, low + 1, 1, 1))


@pytest.mark.parametrize(("sequences", "batches"), [(21.0, 5), (0.0, 2), (1e9, 7)])
def test_a_block_has_about_so_many_sequences(sequences: float, batches: int) -> None:
    box = BlockBox(4, 9, 2, 7)
    assert box.sequences == 8
    assert box.block(sequences) == single_block(4, batches)
    assert box.block(sequences).single


def test_flexgen_walks_small_batches_one_by_one_and_doubles_larger_ones() -> None:
    assert list(_gpu_batches(BlockBox(1, 40, 1, 1))) == [1, 2, 3, 4, 8, 16, 32]
    assert list(_gpu_batches(BlockBox(3, 8, 1, 1))) == [3, 4, 8]


def test_only_attention_waits_for_the_cpu() -> None:
    """Of the rows of a step the last one computes; prefill attends on the GPU."""
    hw = load_platform("t4-flexgen").machine()
    llm, work = model("opt-30b", hw), Workload(1.0, 512.0, 32.0)
    slower = hw.with_values({"offload.cpu_attention": hw.offload.cpu_attention / 2})
    quick, slow = (
        BlockProblem(machine, llm, work, {}).program(single_block(4, 2)).matrix[TIME_ROWS]
        for machine in (hw, slower)
    )
    assert (slow == quick)[:-1].all()
    columns = (slow != quick)[-1].nonzero()[0].tolist()
    assert columns == [4, 5]  # of the cache, what is in host memory and on the disk


@pytest.mark.parametrize(("memory", "most"), [(1.0, 1), (3.5, 3), (10.0, 10)])
def test_no_block_has_more_sequences_than_all_memories_hold(memory: float, most: int) -> None:
    """544 tokens of K and V, 48 layers; a fifth of every memory stays free."""
    hw = load_platform("t4-flexgen").machine()
    llm, work = model("opt-30b", hw), Workload(1.0, 512.0, 32.0)
    sequence = 48 * 544 * 2 * 7168 * 2
    gpu, host = 0.5 * sequence / 0.8, (memory - 0.5) * sequence * 1.01 / 0.8
    sized = hw.with_values({"gpu.memory": gpu, "host.memory": host, "disk.capacity": 0.0})
    assert BlockProblem(sized, llm, work, {}).most == most


def test_a_programme_costs_what_its_shares_take() -> None:
    """Seconds of a sequence: prefill and 31 steps of a block of eight."""
    hw = load_platform("t4-flexgen").machine()
    llm, work = model("opt-30b", hw), Workload(1.0, 512.0, 32.0)
    answer = place(hw, llm, work, gpu_batch=4, num_batches=2)
    optimum = Simplex()(BlockProblem(hw, llm, work, {}).program(single_block(4, 2)))
    assert optimum is not None
    assert optimum.value == pytest.approx((answer.prefill + answer.decode) / 8, rel=1e-6)

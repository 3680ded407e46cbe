"""Copies of keys, buffered pages and the value of a placement's programme, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.personal_computer import machine
from support.systems import model
from support.tiny import TINY, amounts

from nearkv.costmodel.algebra.span import Port
from nearkv.costmodel.mechanisms.gpu_layer import dequantise_cache, dequantise_weights
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.costmodel.mechanisms.near_storage.scoring import Pools, csd_path, narrow_copies
from nearkv.costmodel.mechanisms.near_storage.writeback import mean_buffered_pages, stage_pages
from nearkv.costmodel.model.resources import csd, gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.zero import eager_copies
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.mapping.policies import greedy
from nearkv.solvers.placement.blocks import BlockProblem, single_block
from nearkv.solvers.placement.linear import Simplex
from nearkv.solvers.placement.placement import place


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


@pytest.mark.parametrize(
    ("interval", "rows", "pages"),
    [
        # 3 steps with one page, 3 with two, 3 with three, one with four
        (10.0, 3.0, 22 / 10),
        (6.0, 3.0, 9 / 6),
        (16.0, 1.0, 136 / 16),
        (2.0, 8.0, 1.0),
    ],
)
def test_a_buffer_fills_page_by_page(interval: float, rows: float, pages: float) -> None:
    assert mean_buffered_pages(interval, rows) == pytest.approx(pages)


def test_a_row_of_two_pages_is_sent_in_two_transfers() -> None:
    """Rows of 6 bytes on pages of 4, 1 to 3 of them: 2 on average of 5 sequences' two heads. With
    each goes a score of 2 bytes of each of three queries."""
    hw = load_platform("hilos-a100").machine().with_values({"csd.page": 4.0})
    staged = stage_pages(TINY, 5.0, 3.0, csd(hw, 3.0), Port("uplink.out", "move", 1.0))
    assert amounts(staged) == pytest.approx(
        {"host.driver wait": 10 * 2 * 2, "uplink.out move": 10 * 2 * (6 + 3 * 2)}
    )


def test_a_programme_costs_what_its_shares_take() -> None:
    """Seconds of a sequence: prefill and 31 steps of a block of eight."""
    hw = load_platform("t4-flexgen").machine()
    llm, work = model("opt-30b", hw), Workload(1.0, 512.0, 32.0)
    answer = place(hw, llm, work, gpu_batch=4, num_batches=2)
    optimum = Simplex()(BlockProblem(hw, llm, work, {}).program(single_block(4, 2)))
    assert optimum is not None
    assert optimum.value == pytest.approx((answer.prefill + answer.decode) / 8, rel=1e-6)


@pytest.mark.parametrize(("heads", "times"), [(2.0, 2), (4.0, 6), (6.0, 8)])
def test_eager_attention_repeats_shared_heads(heads: float, times: float) -> None:
    """K and V are written and read again; of g queries each, g copies are written and read."""
    assert eager_copies(replace(TINY, heads=heads)) == times


def test_packed_keys_and_weights_are_unpacked_once() -> None:
    """Of 100 B of half a byte each 200 elements: written and read in 3 B, and 10.5 B beyond."""
    narrow = replace(TINY, kv_width=0.5, weight_width=0.5, activation_width=3.0)
    device = gpu(load_platform("hgx-h200").machine())
    moved = [
        dequantise_cache(narrow, 100.0, device, 10.5).traffic(),
        dequantise_weights(narrow, 100.0, device, 10.5).traffic(),
    ]
    assert [sum(amounts.values()) for amounts in moved] == [200 * (2 * 3 + 10.5), 200 * 10.5]
    assert dequantise_cache(TINY, 100.0, device, 10.5).seconds == 0
    assert dequantise_weights(TINY, 100.0, device, 10.5).seconds == 0


def test_where_nothing_fits_hbm_keeps_what_it_holds() -> None:
    """Units of 5 bytes on either side, and 3 bytes of room on both."""
    seconds, on_hbm, on_lpddr = np.ones(3), np.array([0.0, 5.0, 10.0]), np.array([10.0, 5.0, 0.0])
    rooms = np.asarray(3.0), np.asarray(3.0), np.asarray(2.0)
    tables = HeadTables((seconds,) * 3, (on_hbm,) * 3, (on_lpddr,) * 3, *rooms)
    answer = greedy(tables)
    assert [float(n) for n in answer.units] == [0, 0, 0]
    assert not answer.ok

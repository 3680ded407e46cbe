"""Pieces of mechanisms against their definition: what a system's total may hide."""

from __future__ import annotations

import gc
import weakref
from statistics import NormalDist

import numpy as np
import pytest
from support.systems import SYSTEMS, model
from support.tiny import TINY

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import layer_tables
from nearkv.costmodel.mechanisms.near_storage.writeback import pages_per_row, rows_per_page
from nearkv.costmodel.mechanisms.serving.cpu_share import Capacities
from nearkv.costmodel.mechanisms.serving.dimm import (
    awake_share,
    imbalance,
    least_loaded,
    normal_quantile_above,
    rank_unit_area,
    row_efficiency,
    unit_power,
)
from nearkv.costmodel.mechanisms.serving.fluid import Drain, drain_of, resident_in, tokens_reserved
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.resources import csd
from nearkv.costmodel.model.workload import Spread, Workload
from nearkv.costmodel.systems.vllm import Parallel, communicate
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.study import Study, blocks


@pytest.mark.parametrize("tail", [0.5, 0.3, 0.1, 0.01, 1e-4, 1e-6])
def test_a_normal_quantile_is_as_good_as_its_source_says(tail: float) -> None:
    """Abramowitz and Stegun 26.2.23 states an error below 4.5e-4."""
    exact = NormalDist().inv_cdf(1 - tail)
    assert normal_quantile_above(tail) == pytest.approx(exact, abs=4.5e-4)


def test_every_matrix_of_a_recurrent_mixer_is_multiplied_once() -> None:
    """Two FLOPs a weight and token, however they are shared out between the two projections."""
    kinds = model("jamba-v0.1").kinds.values()
    recurrent = [kind for kind in kinds if isinstance(kind, Recurrent)]
    assert recurrent
    for kind in recurrent:
        projected = kind.qkv_flops(7.0) + kind.output_flops(7.0)
        assert projected == pytest.approx(2 * 7.0 * kind.mixer_parameters)


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


def test_stages_hand_over_one_tensor_each() -> None:
    """Two stages: the hidden vector of every token, 16 bits an element, once over the fabric."""
    hw = load_platform("hilos-a100").machine()
    llm = model("opt-66b")
    one_stage = communicate(hw, llm, 5.0, Parallel(tp=4.0, pp=1.0, micro=5.0, idle=1.0))
    two_stages = communicate(hw, llm, 5.0, Parallel(tp=4.0, pp=2.0, micro=5.0, idle=1.0))
    assert one_stage["hand_over"].seconds == 0
    rate = hw.cluster_link.bandwidth * hw.derate.pcie
    assert two_stages["hand_over"].seconds == pytest.approx(9216 * 5 * 2 / rate)


@pytest.mark.parametrize(("host", "holds"), [(8.0, True), (4.0, False)])
def test_a_share_fits_only_where_its_memory_holds_it(host: float, holds: bool) -> None:
    """Eight requests that the CPU all attends to are eight in host memory."""
    room = Capacities(gpu=100.0, host=host, batch=8.0, replicas=8.0)
    assert room.fits(1.0) == holds


def test_more_than_the_rest_on_the_gpu_needs_its_memory() -> None:
    room = Capacities(gpu=3.0, host=100.0, batch=8.0, replicas=8.0)
    assert room.fits(0.75)
    assert not room.fits(0.5)


@pytest.mark.parametrize(("requests", "ranksets", "square"), [(32.0, 8.0, 2.0), (50.0, 16.0, 1.5)])
def test_the_fullest_rankset_is_a_normal_quantile_leaning_to_the_right(
    requests: float, ranksets: float, square: float
) -> None:
    """Blom's place of the largest of R, and the first term of Cornish and Fisher."""
    z = NormalDist().inv_cdf(1 - (1 - 0.375) / (ranksets + 0.25))
    leaning = square * (ranksets / requests) ** 0.5 * (z**2 - 1) / 6
    expected = 1 + (z + leaning) * (square * ranksets / requests) ** 0.5
    assert imbalance(requests, ranksets, square) == pytest.approx(expected, abs=2e-3)


def test_a_request_alone_fills_one_rankset_and_one_rankset_is_even() -> None:
    assert imbalance(1e-12, 8.0, 1.0) == 8
    assert imbalance(5.0, 1.0, 2.0) == pytest.approx(1, abs=1e-3)
    assert imbalance(1e15, 8.0, 1.0) == pytest.approx(1)


def test_the_least_loaded_rankset_keeps_a_third_of_a_request_a_doubling() -> None:
    assert least_loaded(16.0, 4.0, 1.0) == pytest.approx(1 + 2 * (1 / 3) * 4 / 16)
    # two requests on four ranksets: the longer one is a load of twice the mean and more
    assert least_loaded(2.0, 4.0, 1.0) == 2
    z = NormalDist().inv_cdf(1 - 0.625 / 2.25)
    assert least_loaded(2.0, 4.0, 1.25) == pytest.approx(2 * (1 + 0.5 * z), abs=1e-3)
    assert least_loaded(0.5, 4.0, 1.0) == 4


def test_a_bank_reads_rows_and_turns() -> None:
    """Bursts of 2 x 8 transfers of 8 bytes in 8 cycles; 10 + 12 + 2 x 4 x 3 cycles between rows."""
    timing = {"bus": 8, "burst": 8, "row": 1024, "ccd_l": 8, "rp": 10, "rcd": 12}
    timing |= {"bank_groups": 2, "banks": 4, "rrd_s": 3}
    hw = load_platform("dgx-a100-pim").machine()
    hw = hw.with_values({f"dimm.{name}": float(value) for name, value in timing.items()})
    assert row_efficiency(hw) == pytest.approx(64 / (64 + 46))


def test_power_is_of_all_banks_and_ranks() -> None:
    """Of a DIMM: 2 x 4 / 4 ranks, each with three units and 16 chips of 2 x 4 banks."""
    numbers = {"channels": 2.0, "ranksets": 4.0, "count": 4.0, "chips": 16.0, "bank_groups": 2.0}
    numbers |= {"banks": 4.0, "relayout_power": 1.0, "adder_power": 2.0, "softmax_power": 3.0}
    numbers |= {"bank_power": 0.25, "relayout_area": 1.0, "adder_area": 2.0, "softmax_area": 4.0}
    hw = load_platform("dgx-a100-pim").machine()
    hw = hw.with_values({f"dimm.{name}": value for name, value in numbers.items()})
    assert unit_power(hw) == 2 * (6 + 16 * 2 * 4 * 0.25)
    assert rank_unit_area(hw) == 7


def test_those_who_leave_last_take_their_remainder_between_them() -> None:
    """Shares of the last requests integrate to their mean remainder over the longest answer."""
    pieces = list(Drain(longest=300.0, remainder=100.0).pieces(0.01))
    assert sum(piece.iterations for piece in pieces) == pytest.approx(300)
    assert sum(piece.iterations * piece.served for piece in pieces) == pytest.approx(100)
    shares = [float(piece.decoding) for piece in pieces]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.01


@pytest.mark.parametrize("longest", [100.0, 101.0, 130.0, 200.0, 299.0, 301.0, 2000.0, 30000.0])
@pytest.mark.parametrize("least", [1.0, 0.5, 0.1, 1e-3])
def test_every_drain_serves_the_remainders_and_ends_with_the_last(
    longest: float, least: float
) -> None:
    """Laws from equal remainders to one request of three hundred that goes on."""
    pieces = list(Drain(longest, remainder=100.0).pieces(least))
    assert sum(piece.iterations for piece in pieces) == pytest.approx(longest, rel=1e-9)
    assert sum(piece.iterations * piece.served for piece in pieces) == pytest.approx(100, rel=2e-3)
    assert all(float(piece.decoding) >= least * (1 - 1e-9) for piece in pieces)


def test_a_drain_lasts_as_long_as_the_longest_answer() -> None:
    """Answers of 21 with E[n^2] = 1.5 E[n]^2 and up to 4 times the mean."""
    spread = Spread(output_square=1.5, longest_output=4.0)
    work = Workload(5.0, 100.0, 21.0, spread=spread)
    queue = drain_of(work, np.array(True), 200.0)
    assert (float(queue.longest), float(queue.remainder)) == (80, 15)
    nearly_all = drain_of(work, np.array(True), 12.0)  # resident from the start: no more is left
    assert (float(nearly_all.longest), float(nearly_all.remainder)) == (80, 12)
    together = drain_of(work, np.array(False), 20.0)
    assert (float(together.longest), float(together.remainder)) == (80, 20)
    alike = drain_of(Workload(5.0, 100.0, 21.0), np.array(True), 200.0)
    assert (float(alike.longest), float(alike.remainder)) == (0, 0)
    single = drain_of(Workload(5.0, 100.0, 1.0, spread=spread), np.array(True), 0.0)
    assert (float(single.longest), float(single.remainder)) == (0, 0)


def test_an_iteration_counts_tokens_and_the_fullest_rankset() -> None:
    work = Workload(5.0, 100.0, 21.0, spread=Spread(prompt_square=2.0))
    idle = serial()
    serving = Serving(
        iteration=lambda load: idle,
        prefill=lambda prompts, load: idle,
        room=1.0,
        replicas=1.0,
        skew=lambda sequences, sizes: 1 + sizes * sequences,
    )
    load = serving.load_of(work, 3.0, 7.0)
    assert (load.sequences, load.tokens, load.prompt) == (3, 3 * 110.5, 7)
    assert load.hottest == 4 * 3 * 110.5
    assert load.squares == 7 * 100 * 2
    assert load.share(0.5).squares == 700


def test_a_request_reserves_its_mean_or_its_final_length() -> None:
    """121 tokens in the end, 110.5 on average."""
    work = Workload(5.0, 100.0, 21.0)
    assert tokens_reserved(work, 0.0) == 110.5
    assert tokens_reserved(work, 1.0) == 121
    assert tokens_reserved(work, 0.5) == (110.5 + 121) / 2


@pytest.mark.parametrize(
    ("room", "resident"), [(9.0, 5.0), (5.0, 5.0), (4.5, 3.5), (1.5, 2.0), (0.0, 2.0)]
)
def test_a_queue_leaves_half_a_request_of_room_in_each_replica(
    room: float, resident: float
) -> None:
    """Five requests in two replicas: room but for one, at least one in each."""
    assert resident_in(room, 5.0, 2.0) == resident


def test_a_refresh_blocks_the_banks_for_its_share() -> None:
    hw = load_platform("dgx-a100-pim").machine()
    hw = hw.with_values({"dimm.refresh": 2e-7, "dimm.refresh_interval": 8e-6})
    assert awake_share(hw) == pytest.approx(0.975)


def test_a_page_holds_whole_rows_and_one_at_least() -> None:
    """Rows of 3 elements of 2 bytes."""
    assert [float(rows_per_page(TINY, page)) for page in (20.0, 6.0, 4.0)] == [3, 1, 1]
    assert [float(pages_per_row(TINY, page)) for page in (20.0, 6.0, 4.0)] == [1, 1, 2]


def test_a_choice_has_a_number_for_each_of_its_names() -> None:
    for system in SYSTEMS.values():
        for knob in system.knobs.values():
            if knob.kind == "choice":
                assert (knob.low, knob.high) == (0, len(knob.choices) - 1)


def test_parts_of_a_machine_are_built_once_for_the_same_arguments() -> None:
    hw = load_platform("hilos-a100").machine()
    group = np.array([1.0, 4.0])
    assert csd(hw, 1.0) is csd(hw, 1.0)
    assert csd(hw, group) is csd(hw, group)
    assert csd(hw, 1.0) is not csd(hw, 4.0)
    both = np.asarray(csd(hw, group).attend.rate)
    assert both[0] == csd(hw, 1.0).attend.rate
    assert csd(hw, 1.0, kv_width=1.0).kv_width == 1.0
    assert csd(hw, 1.0).kv_width == 2.0


def test_a_machine_with_other_numbers_builds_its_own_parts() -> None:
    hw = load_platform("hilos-a100").machine()
    fewer = hw.with_values({"csd.count": hw.csd.count / 2})
    assert fewer is not hw
    assert csd(hw, 1.0).read.rate == 2 * csd(fewer, 1.0).read.rate


def test_a_machine_is_freed_with_what_was_built_of_it() -> None:
    """A sweep builds one a box: waiting for the collector of cycles it would hold gigabytes."""
    (block,) = blocks(Study(("hilos",), ("opt-30b",), "1,2", "4k,8k"))
    gc.disable()
    try:
        hw, llm, work, requested = block.inputs(block.grid.whole)
        resolve_knobs(block.system, hw, llm, work, requested).estimate.total.attribution()
        machine = weakref.ref(hw)
        assert hw.built
        del hw
        assert machine() is None
    finally:
        gc.enable()

"""Where the H2M2 paper contradicts itself, its tables or arithmetic (docs/errata.md)."""

from dataclasses import replace

import numpy as np
import pytest
from support.systems import model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import kv_head_bytes
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import qkv_bytes
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, head_tables
from nearkv.costmodel.mechanisms.hbm_lpddr.paging import fragmentation
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.mapping.exact import exact
from nearkv.solvers.mapping.policies import greedy

HW = load_platform("gh-asymmetric").machine()
GPT3, CHINCHILLA, LLAMA2 = (
    model(name, HW) for name in ("gpt3-175b", "chinchilla-70b", "llama2-70b")
)
LENGTHS = np.arange(256.0, 2049.0, 256.0)


def at(batch: float, lengths: Real) -> Workload:
    return Workload(batch, lengths, 1.0).at(lengths)


def seconds(system: str, llm: LLM, work: Workload, hw: Machine = HW) -> Real:
    knobs = {name: knob.default for name, knob in find_system(system).knobs.items()}
    answer = resolve_knobs(find_system(system), hw, llm, work, knobs).estimate
    return np.where(answer.fits.ok, answer.step.seconds, np.nan)


def test_equation_2_counts_the_used_part_of_the_last_page() -> None:
    # sec. 4.2.1: size mod page of a tensor that needs one token more than whole pages is it,
    # not the rest
    page, heads = 2.0 * 2**20, GPT3.heads
    a_token = kv_head_bytes(GPT3, 1.0, 1.0) * heads
    tokens = np.ceil(
        page / a_token
    )  # of one sequence, whose cache of a layer then just exceeds one page
    pages = fragmentation(HW, GPT3, at(1.0, tokens), heads, heads, heads)
    used = GPT3.layers * (tokens * a_token - page)
    assert pages.as_printed == pytest.approx(used)  # all other tensors of GPT3 are whole pages
    assert pages.wasted == pytest.approx(GPT3.layers * page - used)
    assert pages.wasted > 10 * pages.as_printed


def test_table_4_prints_four_thirds_as_1_3() -> None:
    assert 4e12 / HW.hbm.bandwidth == pytest.approx(4 / 3)


def test_heads_from_none_to_all_are_97_choices() -> None:
    tables = head_tables(HW, GPT3, at(32.0, 1024.0))
    assert tables.seconds[0].shape[-1] == 97  # sec. 3.2 counts 96^3 = 884,736 mappings


def test_no_overlap_of_migration_meets_both_averages_of_hierarchical_memory() -> None:
    # sec. 5.2.1 prints 1.07 for GPT3, sec. 5.2.3 2.75 for Llama2
    lengths = np.arange(64.0, 20_000.0, 64.0)
    reach, gpt3 = [], []
    for overlap in np.linspace(0.0, 1.0, 21):
        hw = HW.with_values({"derate.migration_overlap": float(overlap)})
        long, short = at(128.0, lengths), at(32.0, LENGTHS)
        reach.append(
            np.nanmax(
                seconds("lpddr-only", LLAMA2, long, hw) / seconds("hierarchical", LLAMA2, long, hw)
            )
        )
        gpt3.append(
            np.mean(
                seconds("lpddr-only", GPT3, short, hw) / seconds("hierarchical", GPT3, short, hw)
            )
        )
    enough = np.array(reach) >= 2.75
    assert enough.any()  # not even the best single length reaches it below an overlap of 0.9
    assert np.min(np.array(gpt3)[enough]) > 1.5
    assert max(reach[:11]) < 2.4


def test_a_cost_a_byte_cannot_give_both_energies_of_figure_19() -> None:
    # 8-HBM moves all of LPDDR-only's bytes through HBM: 1.31 is then the cost of a byte of HBM over
    # one of LPDDR, and H2M2, which moves some bytes there, could only cost more than 1, where the
    # paper prints 0.76
    work = at(32.0, 1024.0)
    steps = {}
    for system in ("lpddr-only", "hbm-8", "h2m2"):
        knobs = {name: knob.default for name, knob in find_system(system).knobs.items()}
        carried = resolve_knobs(find_system(system), HW, GPT3, work, knobs).estimate.step.traffic()
        steps[system] = {name: a for (name, _), a in carried.items() if name.endswith(".memory")}
    base = steps["lpddr-only"]["lpddr.memory"]
    assert steps["hbm-8"]["hbm8.memory"] == pytest.approx(base)
    asymmetric = steps["h2m2"]
    assert (1.31 * asymmetric["hbm.memory"] + asymmetric["lpddr.memory"]) / base > 1.0


def test_evicted_heads_come_back_because_heads_are_whole() -> None:
    # sec. 4.3.2: "once a layer is evicted, there is no need to bring it back"
    tokens = np.arange(1537.0, 2049.0)
    _, qkv, fc = greedy(head_tables(HW, GPT3, at(32.0, tokens))).units
    assert np.any(np.diff(qkv) > 0)
    # room left by attention alone, below one KV head, holds several heads of qkv
    kv_head = GPT3.layers * kv_head_bytes(GPT3, 32.0, tokens)
    assert np.all(kv_head > 2 * qkv_bytes(GPT3, 1.0))
    left = 96e9 - np.floor(96e9 / kv_head) * kv_head
    assert np.any(np.diff(np.floor(left / qkv_bytes(GPT3, 1.0))) > 0)
    assert np.all(np.asarray(fc) <= np.asarray(fc)[0])


def halves(tables: HeadTables, heads: float) -> HeadTables:
    """Tables of a peak-execution model that knows operations and equal chips, and no bandwidth."""
    n = np.arange(heads + 1)
    blind = np.broadcast_to(np.maximum(n, heads - n), tables.seconds[0].shape)
    return replace(tables, seconds=(blind, blind, blind))


@pytest.mark.parametrize(("llm", "batch"), [(CHINCHILLA, 64.0), (LLAMA2, 128.0)])
def test_a_peak_model_blind_to_bandwidth_loses_more_than_5_percent(llm: LLM, batch: float) -> None:
    # sec. 4.3.2: operations over the chip's throughput, times a number for each sub-layer; both
    # chips are equal, so every sub-layer would be halved. Sec. 1 prints under 5 % for all: the
    # number must differ by side
    tables = head_tables(HW, llm, at(batch, np.arange(512.0, 4097.0, 512.0)))
    chosen = greedy(halves(tables, float(llm.heads)))
    index = [np.asarray(n).astype(int) for n in chosen.units]
    rows = np.arange(len(index[0]))
    took = sum(
        np.broadcast_to(t, (len(rows), t.shape[-1]))[rows, n]
        for t, n in zip(tables.seconds, index, strict=True)
    )
    assert np.mean(1 - exact(tables).seconds / took) > 0.05
    assert np.mean(1 - exact(tables).seconds / greedy(tables).seconds) < 0.05

"""What every mapping of H2M2 must obey: sums, limits, monotony, prefill, bad input."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.h2m2_machine import (
    CHINCHILLA,
    FAMILY,
    GPT3,
    HW,
    LLAMA2,
    resolve,
    seconds,
    step_work,
)
from support.systems import model

from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    asymmetric_memory,
    attention,
    fc,
    prompt_attention,
    qkv,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, head_tables
from nearkv.costmodel.mechanisms.hbm_lpddr.mapped_step import ORDERS, bytes_of, holds, prompt_heads
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.mapping.checks import brute, milp
from nearkv.solvers.mapping.exact import exact
from nearkv.solvers.mapping.tables import evaluate

# --- consistency ---


@pytest.mark.parametrize("name", FAMILY)
def test_times_add_up_and_points_agree_with_the_grid(name: str) -> None:
    contexts = np.array([256.0, 1000.0, 2048.0])
    grid = resolve(name, GPT3, 32.0, contexts).estimate
    for span in (grid.step, grid.prefill):
        np.testing.assert_allclose(sum(span.breakdown().values()), span.seconds, rtol=1e-12)
        assert all(
            np.all(np.asarray(worked) <= np.asarray(span.seconds) * (1 + 1e-12))
            for worked in span.busy().values()
        )
    for i, context in enumerate(contexts):
        alone: Estimate = resolve(name, GPT3, 32.0, float(context)).estimate
        assert alone.step.seconds == np.broadcast_to(grid.step.seconds, 3)[i]
        assert np.ndim(alone.step.seconds) == 0
        assert bool(alone.fits.ok) == np.broadcast_to(grid.fits.ok, 3)[i]


def test_models_with_different_heads_share_a_grid() -> None:
    names = ("gpt3-175b", "llama2-70b", "mixtral-8x7b", "chinchilla-70b")
    single = [model(name, HW) for name in names]
    fields = {
        field: np.array([getattr(llm, field) for llm in single])
        for field in ("heads", "layers", "hidden")
    }
    fields |= {
        field: np.array([getattr(llm, field) for llm in single])
        for field in ("ffn", "kv_heads", "head_size", "vocab", "positions", "gated", "tied")
    }
    fields |= {
        f: np.array([getattr(llm, f) for llm in single]) for f in ("experts", "active_experts")
    }
    together = replace(single[0], **fields)
    for name in FAMILY:
        all_ = resolve(name, together, 16.0, 2048.0)
        for i, llm in enumerate(single):
            alone = resolve(name, llm, 16.0, 2048.0)
            assert np.asarray(all_.estimate.step.seconds)[i] == alone.estimate.step.seconds, (
                name,
                names[i],
            )


def test_tables_are_the_system() -> None:
    tables = head_tables(HW, GPT3, step_work(32.0, 1024.0))
    for units in ((0, 0, 0), (96, 0, 10), (14, 43, 48)):
        knobs = dict(zip(("n_attention", "n_qkv", "n_fc"), map(float, units), strict=True))
        step = find_system("asymmetric")(HW, GPT3, step_work(32.0, 1024.0), knobs).step.seconds
        np.testing.assert_allclose(
            sum(t[n] for t, n in zip(tables.seconds, units, strict=True)), step, rtol=1e-13
        )


def test_exact_is_the_optimum_over_all_97_cubed_mappings_and_milp_agrees() -> None:
    tables = head_tables(HW, GPT3, step_work(32.0, 1024.0))
    best = exact(tables)
    assert best.seconds == brute(tables).seconds == pytest.approx(milp(tables).seconds, rel=1e-12)
    assert best.units == brute(tables).units


@pytest.mark.parametrize("name", ["h2m2", "oracle", "lpddr-only", "hbm-8"])
def test_delays_of_zero_cost_nothing(name: str) -> None:
    delays = (
        "hbm.latency",
        "lpddr.latency",
        "hbm_chip.tlb_miss",
        "lpddr_chip.tlb_miss",
        "collective.all_reduce",
    )
    none, short = (HW.with_values(dict.fromkeys(delays, delay)) for delay in (0.0, 1e-20))
    assert seconds(name, GPT3, 32.0, 1024.0, none) == pytest.approx(
        seconds(name, GPT3, 32.0, 1024.0, short), rel=1e-12
    )
    assert seconds(name, GPT3, 32.0, 1024.0, none) <= seconds(name, GPT3, 32.0, 1024.0)


def test_lpddr_capacity_pushes_heads_to_hbm() -> None:
    # cut to where greedy, which fills attention first, still fits
    small = HW.with_values({"lpddr.memory": 20e9, "hbm.memory": 300e9})
    work = step_work(32.0, 256.0)
    free = exact(head_tables(HW.with_values({"hbm.memory": 300e9}), GPT3, work))
    bound = exact(head_tables(small, GPT3, work))
    assert bound.ok
    assert bound.seconds == brute(head_tables(small, GPT3, work)).seconds
    assert bound.seconds > free.seconds


def test_a_kv_group_cut_in_two_is_paid_for_on_both_sides() -> None:
    two = asymmetric_memory(HW)
    whole, cut = (attention(two, LLAMA2, 128.0, 4096.0, n) for n in (8.0, 9.0))
    carried = [
        sum(a for (_, verb), a in span.traffic().items() if verb == "read") for span in (whole, cut)
    ]
    assert carried[1] == carried[0] * 9 / 8
    tables = head_tables(HW, LLAMA2, step_work(128.0, 4096.0))
    assert tables.hbm[0][9] + tables.lpddr[0][9] == 9 / 8 * tables.hbm[0][64]


def test_an_empty_batch_costs_nothing() -> None:
    two = asymmetric_memory(HW)
    for span in (
        attention(two, GPT3, 0.0, 512.0, 48.0),
        qkv(two, GPT3, 0.0, 48.0),
        fc(two, GPT3, 0.0, 48.0),
    ):
        assert span.seconds == 0


@pytest.mark.parametrize("llm", [GPT3, CHINCHILLA, LLAMA2])
@pytest.mark.slow
def test_the_optimum_is_never_slower_with_less_work_or_more_hardware(llm: LLM) -> None:
    batches, contexts = (
        np.array([1.0, 7.0, 24.0, 55.0])[:, None],
        np.linspace(256.0, 4096.0, 16).round(),
    )
    for name in ("oracle", "naive-granularity"):
        base = resolve(name, llm, batches, contexts).estimate
        took = np.where(base.fits.ok, base.step.seconds, np.inf)
        for axis in (0, 1):
            first, then = np.moveaxis(took, axis, 0)[:-1], np.moveaxis(took, axis, 0)[1:]
            assert np.all(first <= then)
        for address in (
            "hbm.memory",
            "hbm.bandwidth",
            "lpddr.memory",
            "lpddr.bandwidth",
            "hbm_chip.count",
        ):
            role, _, key = address.partition(".")
            more = resolve(
                name, llm, batches, contexts, HW.with_values({address: 2 * HW[role].values[key]})
            ).estimate
            assert np.all(
                np.where(more.fits.ok, more.step.seconds, np.inf) <= took * (1 + 1e-12)
            ), address


# --- prefill, which the paper does not map ---


def prompt_tables(llm: LLM, work: Workload, hw: Machine) -> HeadTables:
    two, n = asymmetric_memory(hw), np.arange(float(llm.heads) + 1)
    tokens, rest = work.batch * work.prompt, llm.heads - n
    spans = (
        prompt_attention(two, llm, work.batch, work.prompt, n),
        *(qkv(two, llm, tokens, n), fc(two, llm, tokens, n)),
    )
    a, q, f = (np.asarray(llm.layers * span.seconds) for span in spans)
    sides = (tuple(np.asarray(b) for b in bytes_of(llm, work, (heads,) * 3)) for heads in (n, rest))
    return HeadTables(
        (a, q, f),
        *sides,  # type: ignore[arg-type]
        *(np.asarray(x) for x in (two.hbm.capacity, two.lpddr.capacity, llm.heads)),
    )


def best_order(llm: LLM, work: Workload, hw: Machine) -> float:
    """Seconds of the better order that fits, over those of the best of all mappings."""
    tables, two = prompt_tables(llm, work, hw), asymmetric_memory(hw)
    took = [np.inf]
    for order in ORDERS:
        mapping = evaluate(tables, *prompt_heads(two, llm, work, order))
        if mapping.ok:
            took.append(float(mapping.seconds))
    return min(took) / float(exact(tables).seconds)


@pytest.mark.parametrize(("llm", "batch"), [(GPT3, 32.0), (CHINCHILLA, 64.0), (LLAMA2, 128.0)])
@pytest.mark.parametrize("changes", [{}, {"hbm.memory": 30e9}, {"lpddr_chip.count": 2.0}])
def test_prefill_is_mapped_at_its_best(
    llm: LLM, batch: float, changes: Mapping[str, float]
) -> None:
    hw = HW.with_values(changes)
    for prompt in (256.0, 2048.0):
        work = Workload(batch, prompt, 64.0)
        assert best_order(llm, work, hw) <= (1.02 if changes else 1.0)


def test_long_prompts_of_experts_take_hbm_before_the_weights() -> None:
    """Of 8 experts a token uses 2, so a byte of their weights stands for little work.

    Their weights first, as suits a short prompt, would take 27 % longer than the best mapping.
    """
    mixtral, work = model("mixtral-8x22b", HW), Workload(5.0, 195_094.0, 16.0)
    assert best_order(mixtral, work, HW) < 1.07


def test_prefill_is_as_fast_as_on_one_memory_and_the_change_takes_less_than_a_second() -> None:
    for prompt in (256.0, 2048.0):
        work = Workload(32.0, prompt, 64.0)
        auto = {"n_attention": "auto", "n_qkv": "auto", "n_fc": "auto"}
        solved = resolve_knobs(find_system("h2m2"), HW, GPT3, work, auto).estimate
        base = resolve_knobs(find_system("lpddr-only"), HW, GPT3, work, {}).estimate
        assert 1 <= solved.prefill.seconds / base.prefill.seconds < 1.03
        assert 0 < solved.prefill.parts["change"].seconds < 1


@pytest.mark.parametrize("kv_heads", [8.0, 4.0, 1.0])
@pytest.mark.parametrize("chip", ["lpddr_chip", "hbm_chip"])
def test_a_faster_chip_never_slows_prefill(kv_heads: float, chip: str) -> None:
    """Attention and qkv are cut between KV groups: few groups must not be rounded against it."""
    llm = replace(CHINCHILLA, kv_heads=kv_heads)
    clock = 1e9 * np.sort(np.append(np.linspace(0.5, 3.0, 51), [0.9999, 1.0001]))
    hw = HW.with_values({f"{chip}.frequency": clock})
    took = (
        resolve_knobs(
            find_system("asymmetric"),
            hw,
            llm,
            Workload(8.0, 8192.0, 64.0),
            {"n_attention": 0.0, "n_qkv": 0.0, "n_fc": 0.0},
        )
        .estimate.prefill.parts["layers"]
        .seconds
    )
    slower = np.diff(np.asarray(took)) / np.asarray(took)[1:]
    assert np.all(slower <= 1e-12)


@pytest.mark.parametrize("name", ["qwen3-235b-a22b", "mixtral-8x7b"])
def test_weights_stay_where_decode_wants_them_for_a_short_prompt(name: str) -> None:
    """Moving them takes longer than such a prompt, so more HBM slows no prefill."""
    more = 1e9 * np.array([96.0, 192.0, 384.0])
    hw = HW.with_values({"hbm.memory": more})
    mapping = {"n_attention": 8.0, "n_qkv": 8.0, "n_fc": 8.0}
    work = Workload(1.0, 1.0, 4.0)
    prefill = resolve_knobs(find_system("oracle"), hw, model(name, HW), work, mapping)
    took = np.asarray(prefill.estimate.prefill.seconds)
    assert np.all(np.diff(took) <= 1e-12 * took[0])


def test_what_lpddr_cannot_hold_is_on_hbm_in_prefill() -> None:
    hw = HW.with_values({"lpddr.memory": 20e9, "hbm.memory": 300e9})
    work = Workload(32.0, 256.0, 64.0)
    two = asymmetric_memory(hw)
    for order in ORDERS:
        a, q, f = (96 - n for n in prompt_heads(two, GPT3, work, order))
        on_lpddr = bytes_of(GPT3, work, (a, q, f))
        assert sum(on_lpddr) <= 20e9
        assert holds(two, GPT3, work, (96 - a, 96 - q, 96 - f))
    assert not holds(two, GPT3, work, (0.0, 0.0, 0.0))


# --- bad input and what does not fit ---


@pytest.mark.parametrize(("knob", "heads"), [("n_fc", 97.0), ("n_qkv", -1.0), ("n_attention", 3.5)])
def test_heads_a_model_does_not_have_are_refused(knob: str, heads: float) -> None:
    with pytest.raises(
        InputError, match=f"knob {knob}: {heads:g} must be a whole number from 0 to 96"
    ):
        resolve("asymmetric", GPT3, 32.0, 1024.0, requested={knob: heads})


def test_stated_heads_stay_and_the_others_are_best_beside_them() -> None:
    solved = resolve("asymmetric", GPT3, 32.0, 1024.0, requested={"n_fc": 20.0})
    assert solved.knobs["n_fc"] == 20
    tables = head_tables(HW, GPT3, step_work(32.0, 1024.0))
    cube = tables.seconds[0][:, None] + tables.seconds[1]
    on_hbm = tables.hbm[0][:, None] + tables.hbm[1] + tables.hbm[2][20]
    best = np.where(on_hbm <= 96e9, cube, np.inf).min() + tables.seconds[2][20]
    np.testing.assert_allclose(solved.estimate.step.seconds, best, rtol=1e-13)


def test_heads_that_do_not_divide_into_kv_groups_are_refused() -> None:
    for name in FAMILY:
        with pytest.raises(InputError, match="96 heads do not divide into 7 KV groups"):
            resolve(name, replace(GPT3, kv_heads=7.0), 32.0, 1024.0)


def test_a_footprint_over_both_memories_is_an_answer() -> None:
    for name in FAMILY:
        estimate = resolve(name, GPT3, 1024.0, 2048.0).estimate
        assert not estimate.fits.ok
        assert np.isfinite(estimate.step.seconds)
    assert resolve("oracle", GPT3, 1024.0, 2048.0).estimate.fits.short_of in ("lpddr", "both")


def test_thousands_of_heads_are_refused_before_tables_of_them_are_made() -> None:
    many = replace(GPT3, heads=100_000.0, kv_heads=100_000.0)
    with pytest.raises(InputError, match="100,000 heads are more than the 1,024"):
        resolve("h2m2", many, 32.0, 1024.0)
    deep = replace(GPT3, layers=100_000.0)
    with pytest.raises(InputError, match="100,000 layers are more than the 1,024"):
        resolve("naive-granularity", deep, 32.0, 1024.0)
    assert np.isfinite(resolve("lpddr-only", many, 32.0, 1024.0).estimate.step.seconds)

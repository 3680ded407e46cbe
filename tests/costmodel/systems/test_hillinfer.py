"""HillInfer against its paper: two formulas of beta, the exact split, placement, baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from support.personal_computer import WORK, machine, solved
from support.systems import model
from support.tiny import (
    ACTIVATIONS,
    ALL_WEIGHTS,
    ATTEND,
    FINAL_KV,
    HEAD_FLOPS,
    KV,
    LINEAR,
    NEW_KV,
    PROMPT_KV,
    STREAMED,
    check,
    estimate,
    needed,
)

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.eviction import place_cache
from nearkv.costmodel.mechanisms.near_storage.scoring import (
    SCORE_BYTES,
    Pools,
    Rates,
    balanced_paths,
    beta_balanced,
    beta_eq4,
    beta_sec54,
    csd_path,
    rates,
)
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.hillinfer import static_split
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.beta import BestBeta, best_beta
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.explore.beta import find_beta as beta_table, why_beta
from nearkv.sweeps.explore.rows import sentences
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, records
from nearkv.sweeps.validation.checks.hillinfer import (
    best_beta_over_bound,
    ranking_overlap,
)
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.prediction import predict
from nearkv.sweeps.validation.questions import arithmetic

RNG = np.random.default_rng(7)


KNOBS: dict[str, Real] = {
    "retention": 0.2,
    "sigma": 0.5,
    "hop": 1.0,
    "score_precision": 1.0,
    "score_source": 0.0,
    "placement": 0.0,
}


STUDY = Study(("hillinfer",), ("qwen-7b",), "8", "12k", "128")


def told(answer: Columns) -> list[str]:
    """Sentences below a split."""
    return sentences(map(why_beta, records(answer)))


def random_rates(points: int) -> tuple[Rates, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    f_c, f_s, b_c, b_s = 10 ** RNG.uniform(8, 12, (4, points))
    return Rates(f_c, f_s, b_c, b_s), RNG.uniform(0.01, 1.0, points)


def random_machines(points: int) -> Machine:
    def spread(low: float, high: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return 10 ** RNG.uniform(np.log10(low), np.log10(high), points)

    return machine(
        host__bandwidth=spread(2e10, 4e11),
        csd__p2p_read=spread(1e9, 2e10),
        csd__read=spread(1e9, 2e10),
        gpu_link__bandwidth=spread(1e10, 6e10),
        csd_link__bandwidth=spread(1e9, 2e10),
        host__kv_memory=spread(1e9, 6e10),
    )


def test_eq4_is_the_balance_without_skew_and_hop() -> None:
    r, alpha = random_rates(20_000)
    np.testing.assert_allclose(beta_balanced(r, alpha, 0.0, 0.0), beta_eq4(r, alpha), rtol=1e-12)


def test_sec54_is_the_balance_with_a_hop() -> None:
    r, alpha = random_rates(20_000)
    np.testing.assert_allclose(beta_balanced(r, alpha, 0.0, 1.0), beta_sec54(r, alpha), rtol=1e-12)
    # they differ by alpha f_c / (B_c + alpha f_c), always below 1
    gap = beta_sec54(r, alpha) - beta_eq4(r, alpha)
    np.testing.assert_allclose(gap, alpha * r.f_c / (r.b_c + alpha * r.f_c), rtol=1e-6, atol=1e-9)


def test_tokens_leave_through_the_host_unless_stated() -> None:
    """As in the paper's prototype (sec. 5.4); straight to the GPU they cross one link less."""
    prototype = estimate("hillinfer", **HILLINFER)
    through_host, direct = (estimate("hillinfer", hop=hop, **HILLINFER) for hop in (1, 0))
    assert prototype.step.seconds == through_host.step.seconds > direct.step.seconds


def test_balance_makes_both_paths_equal() -> None:
    hw, llm = random_machines(500), model("qwen-7b")
    for sigma in (0.0, 0.4):
        for hop in (0.0, 1.0):
            beta = beta_balanced(rates(hw, llm, 1.0, 0.0, hop), 0.2, sigma, hop)
            pools = Pools(beta, np.ones_like(beta), 0.2, sigma, hop)
            paths = balanced_paths(hw, llm, pools, 1.0, 0.0).parts
            inside = beta > 0
            cpu, csd = (np.asarray(paths[name].seconds)[inside] for name in ("cpu", "csd"))
            np.testing.assert_allclose(cpu, csd, rtol=1e-12)


def brute_force(
    hw: Machine, knobs: dict[str, Real], work: Workload
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Fewest seconds over a fine grid of splits that fit."""
    llm, share = model("qwen-7b"), np.linspace(0.0, 1.0, 2001)[:, np.newaxis]
    off = 1 - place_cache(hw, llm, work, knobs["placement"]).gpu
    kv = off * llm.layers * llm.kv_bytes(work.batch, work.context)
    pools = Pools(share * kv, (1 - share) * kv, knobs["retention"], knobs["sigma"], knobs["hop"])
    seconds = balanced_paths(
        hw, llm, pools, knobs["score_precision"], knobs["score_source"]
    ).seconds
    in_dram = share * off * llm.layers * llm.kv_bytes(work.batch, work.final)
    least: np.ndarray[tuple[int], np.dtype[np.float64]] = np.where(
        in_dram <= hw.host.kv_memory, seconds, np.inf
    ).min(0)
    return least


@pytest.mark.parametrize("sigma", [0.0, 0.9])
@pytest.mark.parametrize("hop", [0.0, 1.0])
def test_the_optimum_beats_every_split_that_fits(sigma: float, hop: float) -> None:
    hw, knobs = random_machines(40), KNOBS | {"sigma": sigma, "hop": hop}
    optimum = best_beta(hw, model("qwen-7b"), WORK, knobs)
    assert np.all(optimum.best.seconds <= brute_force(hw, knobs, WORK) * (1 + 1e-9))
    np.testing.assert_allclose(optimum.best.seconds, optimum.bound, rtol=1e-9)
    for rule in (optimum.eq4, optimum.sec54):
        assert np.all(rule.at.seconds >= optimum.best.seconds * (1 - 1e-12))


def test_a_grid_of_machines_equals_its_points() -> None:
    hw, llm = random_machines(5), model("qwen-7b")
    together = best_beta(hw, llm, WORK, KNOBS)
    for i in range(5):
        values = {
            f"{r}.{k}": float(np.ravel(v)[i])
            for r, p in hw.roles.items()
            for k, v in p.values.items()
            if np.ndim(v)
        }
        alone = best_beta(hw.with_values(values), llm, WORK, KNOBS)
        assert np.ravel(together.best.beta)[i] == alone.best.beta
        assert np.ravel(together.bound_by)[i] == alone.bound_by


def at_memory(gigabytes: float) -> BestBeta:
    return best_beta(machine(host__kv_memory=gigabytes * 1e9), model("qwen-7b"), WORK, KNOBS)


def test_host_memory_binds_and_leaves_the_smartssd_behind() -> None:
    # eq. 3; beta <= M0 / M_s is circular, solved it is M0 / (M - M0)
    optimum, llm = at_memory(20), model("qwen-7b")
    off = 1 - place_cache(machine(host__kv_memory=20e9), llm, WORK, 0.0).gpu
    m = off * llm.layers * llm.kv_bytes(WORK.batch, WORK.final)
    assert optimum.bound_by == "host memory M0"
    assert optimum.best.beta == pytest.approx(20e9 / (m - 20e9), rel=1e-9)
    assert optimum.best.cpu < optimum.best.csd
    assert at_memory(60).bound_by == "balance"
    assert at_memory(60).best.cpu == pytest.approx(at_memory(60).best.csd)


def test_accelerator_memory_bounds_a_copy_in_it() -> None:
    # an INT4 copy of M_s / 2 bytes of keys in 4 GiB: M_s <= 8 x 4 GiB
    hw, llm, work = machine(host__kv_memory=66e9), model("qwen-7b"), Workload(8.0, 24576.0, 128.0)
    optimum = best_beta(
        hw, llm, work, KNOBS | {"score_precision": 2.0, "score_source": 2.0, "sigma": 0.9}
    )
    off = (
        (1 - place_cache(hw, llm, work, 0.0).gpu)
        * llm.layers
        * llm.kv_bytes(work.batch, work.final)
    )
    assert (1 - optimum.best.hot_share) * off == pytest.approx(8 * 4 * 2**30)
    assert optimum.bound_by == "SmartSSD capacity"


def test_score_blocks_hide_behind_scoring() -> None:
    # HIE, fig. 7: one chunk is a + t + c; many leave the longest
    hw, llm = machine(csd__launch=0.0), model("qwen-7b")
    pools = Pools(0.0, 1e9, 0.0, 0.0, 1.0)
    whole, few, many = (csd_path(hw, llm, pools, 0.0, 0.0, m, 1.0).seconds for m in (1.0, 4.0, 1e6))
    keys, scores = 0.5e9, 4 * 1e9 / llm.kv_bytes(1, 1)
    a, t, c = keys / 3.0e9, scores / (3.94e9 * 0.94), scores / (93.9e9 * 0.55)
    assert whole == pytest.approx(a + t + c)
    assert few == pytest.approx(a + (t + c) / 4)
    assert many == pytest.approx(a)
    assert whole / many < 1.01  # scores are 0.05 % of keys, so HIE can gain no more


def test_score_sources_and_precision() -> None:
    # sec. 4.4: FP16 keys are cast on the fly, so INT8 arithmetic alone reads as many bytes
    hw, llm = machine(), model("qwen-7b")
    f = {(p, s): rates(hw, llm, float(p), float(s), 1.0).f_s for p in range(3) for s in range(3)}
    assert f[0, 0] == f[1, 0] == f[2, 0] == pytest.approx(2 * 3.0e9)
    assert f[1, 1] == pytest.approx(2 * f[0, 0])
    assert f[2, 1] == pytest.approx(4 * f[0, 0])
    assert f[1, 2] == pytest.approx(4 * 19.2e9 * 0.7)


def test_placement() -> None:
    # sec. 3.2: 20/60/20; 2048 tokens of OPT-6.7B at batch 10 fit everywhere
    work, llm = Workload(10.0, 1920.0, 128.0), model("opt-6.7b")
    static = place_cache(machine(), llm, work, 0.0)
    assert (static.gpu, static.host, static.drive) == pytest.approx((0.2, 0.6, 0.2))
    hot = static_split(machine(), llm, work)
    assert hot == pytest.approx(static.host / (static.host + static.drive))
    filled = place_cache(machine(), llm, work, 1.0)
    assert filled.drive == 0
    assert filled.gpu > 0.9
    # what a tier has no room for goes to the next
    long = place_cache(machine(), model("qwen-7b"), Workload(8.0, 36864.0, 128.0), 0.0)
    assert long.gpu < 0.2
    assert long.host < 0.6
    assert long.gpu + long.host + long.drive == pytest.approx(1)


def test_ablation_orders_as_the_paper_says() -> None:
    # sec. 5.4, fig. 16a: prefetch-based, +HKM, +HKM & APP, each faster
    prefetch = solved("infinigen", machine(), "qwen-7b", WORK).estimate.step.seconds
    hkm = solved("infinigen", machine(), "qwen-7b", WORK, sigma=0.5).estimate.step.seconds
    app = solved("hillinfer", machine(), "qwen-7b", WORK).estimate.step.seconds
    assert app < hkm < prefetch


def test_long_contexts_need_the_score_source_to_shrink() -> None:
    # 16-bit keys at 3 GB/s lose to partial keys at 5.5 GB/s once DRAM is full; a narrow copy of
    # the keys halves the time, though what is demoted is then written by a slower drive
    work = Workload(8.0, 36864.0, 128.0)
    plain = solved("infinigen", machine(), "qwen-7b", work, sigma=0.5).estimate.step.seconds
    keys = solved("hillinfer", machine(), "qwen-7b", work).estimate.step.seconds
    copy = solved(
        "hillinfer", machine(), "qwen-7b", work, score_source=1.0, score_precision=2.0
    ).estimate.step.seconds
    assert plain < keys
    assert copy < 0.6 * keys


def test_weights_that_do_not_fit_are_an_answer() -> None:
    stated = replace(STUDY, models=("llama-13b",), knobs={"weights": ("gpu",)})
    rows = table(replace(stated, systems=("full-cache", "hillinfer")))
    assert list(rows["short_of"]) == ["gpu", "gpu"]
    assert np.all(np.isnan(rows["step_ms"]))
    assert told(beta_table(stated)) == ["llama-13b: infeasible; gpu memory is short."]


def test_the_table_says_what_binds() -> None:
    rows = beta_table(STUDY.but(context="12k,36k"))
    assert {"value", "t_cpu_ms", "t_csd_ms", "rule", "rule_sec54", "bound_by"} <= rows.keys()
    assert list(rows["bound_by"]) == ["balance", "host memory M0"]
    assert "the SmartSSD is the straggler" in told(rows)[1]
    assert rows["t_cpu_ms"][1] < rows["t_csd_ms"][1]


def test_a_cache_that_fits_the_gpu_has_no_beta() -> None:
    rows = beta_table(STUDY.but(batch="1", context="1k,64k", knobs={"placement": "capacity"}))
    assert list(rows["bound_by"] == "none: nothing is off the GPU") == [True, False]
    for name in ("value", "hot_share", "gap", "rule", "rule_loss", "rule_sec54", "rule_sec54_loss"):
        assert list(np.isnan(rows[name].astype(float))) == [True, False]
    assert told(rows)[0] == "qwen-7b: the KV cache fits the GPU, so there is nothing to split."


def test_the_split_of_the_shortest_request_stands_beside_that_of_eq_2() -> None:
    """Eq. 2 has no write-back of promoted tokens, which keeps the drive busy: a scan says so."""
    answer = beta_table(STUDY)
    shares = np.linspace(0.9, 0.97, 701)
    scanned = table(STUDY.but(knobs={"hot_share": listed(shares)}))
    fastest = np.argmin(scanned["total_s"])
    (beta,), (total,) = answer["auto_value"], answer["auto_total_s"]
    assert 0.999 * scanned["total_s"][fastest] < total <= scanned["total_s"][fastest]
    assert beta == pytest.approx(shares[fastest] / (1 - shares[fastest]), rel=5e-3)
    assert answer["total_s"][0] > 1.1 * total
    assert "with 14.8, which auto takes" in told(answer)[0]


def listed(numbers: NDArray[np.float64]) -> str:
    """Numbers as a user writes an axis."""
    return ",".join(f"{number:.4f}" for number in numbers)


def test_the_gpus_link_can_bind() -> None:
    fast = {
        "gpu_link.bandwidth": "2GB/s",
        "host.bandwidth": "900GB/s",
        "csd_link.bandwidth": "100GB/s",
    }
    fast |= {"csd.p2p_read": "100GB/s", "csd.read": "100GB/s"}
    rows = beta_table(STUDY.but(sets=fast, knobs={"retention": "1"}))
    assert list(rows["bound_by"]) == ["GPU link"]
    assert rows["bound_ms"][0] > 1.01 * max(rows["t_cpu_ms"][0], rows["t_csd_ms"][0])
    assert "queue there" in told(rows)[0]
    assert rows["rule_loss"][0] == rows["rule_sec54_loss"][0] == 0.0


def test_the_split_that_is_solved_for_is_not_taken() -> None:
    with pytest.raises(InputError, match="--knob hot_share cannot be set"):
        beta_table(STUDY.but(knobs={"hot_share": "0.5"}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"knobs": {"chunks": "0"}},
            "--knob chunks: '0' does not fit: hillinfer takes a whole number from 1 to 256",
        ),
        (
            {"knobs": {"chunks": "8kB"}},
            "--knob chunks: '8kB' does not fit: hillinfer takes a whole",
        ),
        (
            {"knobs": {"retention": "1.5"}},
            "--knob retention: '1.5' does not fit: hillinfer takes a number from 0 to 1",
        ),
        (
            {"knobs": {"sigma": "1"}},
            "--knob sigma: '1' does not fit: hillinfer takes a number from 0 to 0.99",
        ),
        (
            {"knobs": {"score_precision": "3"}},
            "'3' is none of fp16, int8, int4, auto",
        ),
        (
            {"knobs": {"score_precision": "int3"}},
            "unknown value of score_precision 'int3'; did you mean",
        ),
        ({"sets": {"host.kv_memory": "80GB"}}, r"host.kv_memory \(M0\) is larger than host.memory"),
        (
            {"sets": {"precision.kv": "64bit"}},
            "precision.kv: '64bit' must be at most 32 bit",
        ),
        (
            {"sets": {"precision.kv": "4bit"}, "knobs": {"score_source": "flash-copy"}},
            "a copy of the keys is wider than the cache",
        ),
        ({"knobs": {"sigma": "auto"}}, "which no solver may choose; give it a value"),
        ({"knobs": {"retention": "auto"}}, "which no solver may choose; give it a value"),
        ({"knobs": {"retention": "many"}}, "takes a number from 0 to 1$"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, dict[str, str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        table(replace(STUDY, **change))  # type: ignore[arg-type]


# --- Bytes and FLOPs of KV eviction on one PC, counted by hand for a small model ---


HW = load_platform("aipc-4090").machine()


GPU, HOST, DRIVE = 0.2, 0.6, 0.2
"""Where sec. 3.2 puts the cache."""


def on_gpu(attended: float) -> dict[str, Real]:
    """Weights once, and the attended share of the cache, by a GPU that holds all weights."""
    flops = LINEAR + HEAD_FLOPS + attended * ATTEND
    return {"gpu.hbm read": STREAMED + attended * KV, "gpu.tensor run": flops}


HILLINFER: dict[str, Real] = {
    "hot_share": 0.25,
    "retention": 0.4,
    "sigma": 0.5,
    "chunks": 8,
    "score_precision": 2,
    "placement": 0,
}
"""A quarter of what is off the GPU in DRAM; int4 keys are a quarter of 16-bit ones."""


COLD = 0.75 * (HOST + DRIVE) * KV


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize("source", [0, 1, 2])
def test_hillinfer_scores_beside_the_flash(source: int, hop: int) -> None:
    answer = estimate("hillinfer", score_source=source, hop=hop, **HILLINFER)
    hot = 0.25 * 0.8 * KV
    keys = COLD / 2 * (0.25 if source else 1)
    fetched = 0.5 * 0.4 * COLD
    # 4 bytes a token of 6 KV elements of 2 heads
    scores = 4 * COLD / (2 * 6 * 2)
    in_flash, in_dram = (keys, 0.0) if source < 2 else (0.0, keys)
    csd: dict[str, Real] = {
        "csd.flash read": in_flash + fetched,
        "csd.dram read": in_dram,
        "csd.kernel run": 3 * COLD / 2,
        "csd_link.in move": scores + fetched,
        "host.dram read": hot / 2 + scores,
        "host.driver wait": 3 * HW.csd.launch,
        "gpu_link.in move": 0.4 * (hot + 0.5 * COLD) + fetched,
    }
    new = {
        "gpu_link.out move": 0.8 * NEW_KV,
        "csd_link.out move": 0.6 * NEW_KV + fetched,
        "csd.flash write": 0.6 * NEW_KV + fetched,
    }
    check(answer.step, csd | new | on_gpu(0.2 + 0.4 * 0.8))


@pytest.mark.parametrize("source", [0, 1, 2])
def test_hillinfer_keeps_its_copy_of_the_keys_where_it_scores_them(source: int) -> None:
    answer = estimate("hillinfer", score_source=source, hop=1, **HILLINFER)
    written = answer.prefill.traffic("write")
    assert written == {("csd.flash", "write"): pytest.approx(0.6 * PROMPT_KV)}
    copy = 0.6 * FINAL_KV / 2 / 4
    tiers = {
        "gpu": ALL_WEIGHTS + ACTIVATIONS + GPU * FINAL_KV,
        "host": 0.2 * FINAL_KV,
        "csd": 0.6 * FINAL_KV + (copy if source == 1 else 0),
        "csd_dram": copy if source == 2 else 0,
    }
    assert needed(answer) == pytest.approx(tiers)


# --- HillInfer's inconsistencies, each with its numbers (docs/misses.md) ---


STATED = {claim.id: claim for claim in load("hillinfer")}


NUMBERS = load_platform("aipc-4090").roles


def footprint(batch: int, context: int, bits: int) -> float:
    """Weights at 16 bit and KV at a number of bits of Llama-2-13B [GB]."""
    kv = f"{batch} * {context} * llama2-13b:kv_bytes * {bits} / 16"
    return float(arithmetic(f"( llama2-13b:weight_bytes + {kv} ) / 1e9"))


def test_combined_memory_is_90_gb() -> None:
    # HI-026, sec. 3.1 prints 84: 64 GiB of host memory beside the 24,564 MiB of the card's driver
    assert predict(STATED["HI-026"])[0] == pytest.approx(64 + 24_564 * 2**20 / 1e9)


def test_int2_fits_the_memory_it_is_said_to_exceed() -> None:
    # HI-024, HI-025, HI-028; sec. 3.1: 240 GB natively, 96 GB with INT2, above 88
    whole, int2 = (footprint(8, 32768, bits) for bits in (16, 2))
    assert whole == pytest.approx(240.8, abs=0.1)
    assert int2 == pytest.approx(52.9, abs=0.1)
    # a 16-bit scale and zero for every 32 values are one bit more a value
    assert footprint(8, 32768, 3) == pytest.approx(66.3, abs=0.1)


def test_16k_exceeds_memory_at_batch_8_only() -> None:
    # HI-027
    assert footprint(8, 16384, 16) == pytest.approx(133.4, abs=0.1)
    assert footprint(1, 16384, 16) == pytest.approx(39.5, abs=0.1)


def test_half_of_all_kv_cannot_migrate() -> None:
    # sec. 3.2: 20/60/20, and 20 to 50 % migrate: the drive's tokens up and as many down are 40 %
    tiers = (predict(STATED[name])[0] for name in ("HI-036", "HI-037", "HI-038"))
    on_gpu, in_dram, stored = map(float, tiers)
    assert [on_gpu, in_dram, stored] == pytest.approx([20, 60, 20])
    moved = 2 * min(in_dram, stored)
    assert moved == pytest.approx(40)
    assert moved / (in_dram + stored) == pytest.approx(0.5)


def test_the_smartssd_is_on_pcie_3() -> None:
    # HI-062: sec. 4.3 names Gen4 x4, 7.88 GB/s; its peak of 3.2 GB/s (sec. 5.2) fits Gen3 x4
    link, peak = NUMBERS["csd_link"].numbers["bandwidth"].si, NUMBERS["csd"].numbers["read"].si
    assert peak < link == 3.94e9


def test_the_solved_bound_is_where_eq3_binds() -> None:
    # HI-057: beta = M_0 / (M - M_0) at 36K
    assert best_beta_over_bound() == pytest.approx(1, rel=1e-9)


def test_llama_13b_does_not_fit_the_gpu() -> None:
    # sec. 5.2 runs it on 24 GB at FP16; FlexGen, on which HillInfer is built, offloads weights
    study = Study(("full-cache",), ("llama-13b",), "1", "2k", "1")
    assert table(replace(study, knobs={"weights": ("gpu",)}))["short_of"][0] == "gpu"
    assert table(study)["status"][0] == "ok"


def test_batch_25_needs_no_cold_tier() -> None:
    # HI-020, sec. 5.4: "aggressive memory pressure"
    rows = table(Study(("full-cache",), ("opt-6.7b",), "25", "1920", "128"))
    whole = sum(rows[f"kv_{tier}_gb"][0].item() for tier in ("gpu", "host", "drive"))
    assert whole == pytest.approx(26.8, abs=0.1)
    assert whole * 1e9 < NUMBERS["host"].numbers["kv_memory"].si


def test_half_precision_positions_are_exact_to_2048() -> None:
    # HI-050: position and score in half precision, whose 11 digits hold 2^11 positions
    assert 2 * np.dtype(np.float16).itemsize == SCORE_BYTES
    exact = 2 ** (np.finfo(np.float16).nmant + 1)
    longest = STATED["HI-001"].context
    assert size(longest.split(",")[-1], "context") > exact


def test_raw_scores_do_not_rank_the_sum_over_heads() -> None:
    # HI-066: true of one head, false of the sum of sec. 4.1
    assert ranking_overlap("1") == 1
    assert ranking_overlap("32") < 0.7


def test_exact_attention_keeps_up_with_one_drive() -> None:
    # HI-081; HILOS Table 3: 11.9 GFLOP/s on one KU15P
    assert predict(STATED["HI-081"])[0] == 1

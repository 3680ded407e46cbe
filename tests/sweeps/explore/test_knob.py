"""The best value of a knob beside what the rules of the papers pick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sizes import ROOT
from support.systems import SYSTEMS

import nearkv
from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model import registry
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import with_widths
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.sweeps.api.solve import measured_best
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.explore.knob import find_best_knob, why_knob
from nearkv.sweeps.explore.rows import sentences
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, records


def told(answer: Columns, name: str) -> list[str]:
    """Sentences below a solved knob."""
    return sentences(map(why_knob(name), records(answer)))


def test_a_rule_whose_numbers_the_machine_lacks_is_left_out() -> None:
    """HGX H200 states no `policy.weights_per_gpu`, by which L3 picks the degree."""
    answer = find_best_knob(Study(("gpu",), ("llama3.1-8b",)), "tp")
    assert "rule_node" in answer
    assert "rule_l3" not in answer
    assert answer["gap"][0] == 0
    assert answer["bound_s"][0] == answer["total_s"][0]


def test_a_rule_of_one_system_is_blank_for_another() -> None:
    """HILOS rounds its rule to powers of two as well; INF2 prints one rule."""
    both = find_best_knob(Study(("hilos", "inf2"), ("opt-66b",)), "alpha")
    for row, name in enumerate(("hilos", "inf2")):
        alone = find_best_knob(Study((name,), ("opt-66b",)), "alpha")
        for column in ("value", "rule", "rule_loss"):
            assert both[column][row] == alone[column][0], (name, column)
    assert np.isnan(both["rule_power_of_two"].astype(float)).tolist() == [False, True]


def test_any_share_is_solved_under_its_own_name() -> None:
    """As `solve alpha` solves it, and told with the same reason."""
    row = find_best_knob(Study(("hilos",), ("opt-66b",)), "alpha")
    (own,) = told(row, "alpha")
    assert own.startswith("hilos, opt-66b: alpha = 0.")
    assert "X has 0.5 times the bytes of K and V" in own


def test_what_is_not_proven_is_not_said_to_be() -> None:
    """INF2's placement beside a solved alpha is searched; that of hilos, alone, is exact."""
    (searched,), (exact,) = (
        told(find_best_knob(Study((system,), ("llama3.1-70b",)), "weights"), "weights")
        for system in ("inf2", "hilos")
    )
    assert searched.endswith("no bound is known.")
    assert exact.endswith("no placement takes less.")


def test_of_a_choice_every_value_is_tried() -> None:
    study = Study(("zero-inference",), ("opt-30b",), context="8k")
    row = find_best_knob(study, "cache")
    each = table(study.but(knobs={"cache": ("gpu", "host")}))
    steps = dict(zip(each["cache"].tolist(), each["step_ms"].tolist(), strict=True))
    best = min(steps, key=lambda name: steps[name] if steps[name] > 0 else np.inf)
    assert (row["value"][0], row["step_ms"][0]) == (best, steps[best])
    assert "each tried" in told(row, "cache")[0]


@pytest.mark.parametrize(
    ("system", "knob", "advice"),
    [
        ("hilos", "devices", "solve hardware --vary csd.count"),
        ("asymmetric", "n_fc", "together with other knobs"),
        ("zero-inference", "cache", "has names for values"),
    ],
)
def test_a_knob_of_another_question_is_refused(system: str, knob: str, advice: str) -> None:
    model = "gpt3-175b" if system == "asymmetric" else "opt-66b"
    with pytest.raises(InputError, match=advice):
        find_best_knob(Study((system,), (model,), band=90), knob)


def test_the_ratio_of_x_and_kv_follows_the_widths() -> None:
    """OPT's heads are not grouped: X is half of K and V, and as large as those of 8 bits."""
    for bits, ratio in (("16bit", 0.5), ("8bit", 1.0)):
        answer = find_best_knob(
            Study(("hilos",), ("opt-66b",), sets={"precision.kv": bits}), "alpha"
        )
        assert answer["x_over_kv"][0] == ratio
        assert f"X has {ratio:g} times the bytes of K and V;" in told(answer, "alpha")[0]


def test_where_all_is_x_the_share_is_said_to_be_at_its_largest() -> None:
    """Through one drive half the bytes take half as long, and the GPU keeps up with all of them."""
    study = Study(("hilos",), ("opt-66b",), context="64k", sets={"csd.count": 1})
    (sentence,) = told(find_best_knob(study, "alpha"), "alpha")
    assert sentence.endswith("bound by csd.flash; X has 0.5 times the bytes of K and V; all is X.")


def test_the_ratio_of_x_and_kv_is_that_of_a_system_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A system that keeps 8 bits of K and V whatever the platform says."""
    hilos = registry.find_system("hilos")

    def narrow(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
        return hilos(hw, with_widths(llm, kv_width=1.0), work, knobs)

    monkeypatch.setitem(registry._SYSTEMS, "hilos", replace(hilos, model=narrow))
    answer = find_best_knob(Study(("hilos",), ("opt-66b",)), "alpha")
    assert answer["x_over_kv"][0] == 1.0


# --- all rows of `compare`, no code of the search ----------------------------------------------

VALUES_OF: dict[tuple[str, str], list[Any]] = {
    ("hilos", "interval"): [*range(1, 257)],
    ("hilos", "writeback"): ["naive", "delayed"],
    ("hilos", "alpha"): np.linspace(0, 1, 65).tolist(),
    ("inf2", "buffering"): ["double", "single"],
    ("flexgen-dram", "gpu_batches"): [*range(1, 65)],
    ("gpu", "tp"): [1, 2, 4, 8],
    ("gpu", "dp"): [*range(1, 9)],
    ("gpu", "attention"): ["tp", "dp"],
    ("zero-inference", "prefetch"): [*range(65)],
    ("zero-inference", "ssd_weights"): np.linspace(0, 1, 65).tolist(),
    ("l3", "interleave"): ["off", "on"],
    ("expert-offload", "experts"): ["cpu", "stream"],
    ("expert-offload", "gpu_experts"): np.linspace(0, 1, 65).tolist(),
}
"""System and knob -> values that are all of it, or many."""


def check_knob(random: np.random.Generator, system: str, knob: str) -> None:
    point: dict[str, Any] = {
        "model": str(random.choice(["opt-30b", "llama3.1-8b", "gpt-oss-20b"])),
        "batch": int(2 ** random.uniform(0, 9)),
        "context": int(2 ** random.uniform(5, 15)),
        "output_tokens": int(2 ** random.uniform(0, 8)),
        "systems": system,
    }
    answer = nearkv.solve("knob", name=knob, **point)
    (row,) = answer.to_dict("records")
    known = VALUES_OF[system, knob]
    others: dict[str, Any] = {"attention": "auto"} if knob == "tp" else {}
    table = nearkv.compare(**point, knobs={knob: known, **others})
    ok = table[table["status"] == "ok"]
    assert (row["status"] == "ok") or not len(ok), (point, knob)
    if not len(ok):
        return
    measure = "step_ms" if knob in ("alpha", "interval") else "total_s"
    assert row[measure] <= ok[measure].min() * (1 + 1e-9), (point, knob)
    del point["systems"]
    # a share that a step of one token does not need is chosen by what is minimised
    if knob == "interval":
        others["alpha"] = row["alpha"]
    again = nearkv.estimate(system, **point, knobs={knob: row["value"], **others})
    assert again[measure] == pytest.approx(row[measure], rel=1e-12)


@pytest.mark.filterwarnings("ignore:.*changes nothing")
def test_no_row_of_a_knob_is_better() -> None:
    random = np.random.default_rng(5)
    for system, knob in list(VALUES_OF)[::3]:
        check_knob(random, system, knob)


@pytest.mark.filterwarnings("ignore:.*changes nothing")
@pytest.mark.deep
def test_no_row_of_a_knob_is_better_in_100_cases() -> None:
    random = np.random.default_rng(6)
    for place in range(104):
        check_knob(random, *list(VALUES_OF)[place % len(VALUES_OF)])


# --- what papers measured ----------------------------------------------------------------------


def test_what_a_paper_measured_stands_beside_the_optimum() -> None:
    """HILOS sec. 6.4: 50 % for every model; 175B's step takes as long as `compare` says of it."""
    answer = nearkv.solve("alpha", "opt-175b", context="32k", sets={"csd.count": 16})
    asked = nearkv.compare(
        "hilos", "opt-175b", context="32k", sets={"csd.count": 16}, knobs={"alpha": 0.5}
    )
    (row,) = answer.to_dict("records")
    assert row["measured"] == 0.5
    assert row["measured_step_ms"] == pytest.approx(asked["step_ms"][0], rel=1e-9)
    assert row["measured_loss"] == pytest.approx(row["measured_step_ms"] / row["step_ms"] - 1)
    _, sentence = answer.attrs["conclusion"]
    loss = f"{row['measured_loss']:.2%} longer here (hilos-alpha-opt-meas"
    assert sentence.endswith(f"measured 0.5 to be best, which takes {loss}, docs/misses.md).")


@pytest.mark.parametrize(("question", "value"), [("alpha", 0.5), ("spill", 16)])
def test_what_was_measured_to_be_best_names_its_models(question: str, value: float) -> None:
    answer = nearkv.solve(question, "opt-66b", context="32k", platform="hilos-a100")
    *_, told = answer.attrs["conclusion"]
    assert f"Fig13; opt-30b, opt-66b, opt-175b) measured {value:g} to be best" in told


def test_rows_that_are_bound_alike_share_a_sentence() -> None:
    """Both contexts keep 0.7284 as X; what the measured share costs is said once, as a range."""
    answer = nearkv.solve("alpha", "opt-66b", context="32k,64k", platform="hilos-a100")
    assert answer["value"].round(4).tolist() == [0.7284, 0.7284]
    _, told = answer.attrs["conclusion"]
    high, low = (f"{loss:.2%}" for loss in answer["measured_loss"])
    assert f"measured 0.5 to be best, which takes {low} to {high} longer here" in told


def test_systems_whose_papers_measured_none_say_none() -> None:
    answer = nearkv.solve("alpha", "opt-66b", systems="inf2", context="32k")
    assert "measured" not in answer.columns


def test_every_measurement_of_a_knob_is_a_claim_about_its_range() -> None:
    for system in SYSTEMS.values():
        for name, knob in system.knobs.items():
            if knob.measured:
                told = measured_best([system.name], name)[system.name]
                assert knob.low <= told.value <= knob.high
                assert told.claim in (ROOT / "docs" / "misses.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_value_chosen_at_the_stated_numbers_loses_elsewhere() -> None:
    row = nearkv.solve("alpha", "opt-66b", context="64k", band=80, samples=256).iloc[0]
    assert row["value_p10"] < row["value"] < row["value_p90"]
    assert 0 <= row["regret_p10"] <= row["regret_p50"] <= row["regret_p90"]
    assert 0 < row["regret_mean"] < row["regret_p90"]

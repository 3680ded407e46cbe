"""Every `solve` ends in a sentence, keeps limits, and answers what does not fit with a status."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from support.command_line import printed

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.evaluate.provenance import provenance
from nearkv.sweeps.explore.batch import best_batches
from nearkv.sweeps.explore.crossover import crossovers
from nearkv.sweeps.explore.hardware import least_hardware
from nearkv.sweeps.explore.knob import best_knob
from nearkv.sweeps.explore.mapping import best_mapping
from nearkv.sweeps.explore.sensitivity import sensitivity
from nearkv.sweeps.study.study import Study, blocks

L3 = Study(("l3",), ("gpt-89b",), context="6000")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("alpha --model opt-66b", "a faster gpu.tensor would raise it, a faster csd.flash"),
        ("spill --model opt-30b --context 16k", "a larger csd.page would raise both"),
        ("beta --model qwen-7b --batch 8 --context 12k", "a faster CPU would raise it"),
        ("mapping --model gpt3-175b", "bound by hbm.memory: no further head fits"),
        ("mapping-trace --model gpt3-175b --iterations 4", "a faster c2c would lower that"),
        ("subbatch --model gpt-175b --requests 2k,3k", "would make two pay"),
        ("placement --model opt-30b --gpu-batch 8 --num-batches 2", "bound by"),
        ("batch --system flexgen-ssd --model opt-66b --knob weights=paper", "bound by host; more"),
        (
            "hardware --model opt-66b --vary csd.count=1:16 --slo throughput_tok_s=0.1",
            "csd.flash binds there: were it faster, less would do",
        ),
        ("crossover --model opt-66b --along context=1k:64k", "hilos leads from"),
    ],
    ids=lambda words: words.split()[0],
)
@pytest.mark.slow
def test_every_solve_says_what_binds(words: str, sentence: str) -> None:
    text = " ".join(printed("solve", *words.split()).split())
    assert sentence in text
    assert text.endswith(".")


@pytest.mark.slow
def test_the_largest_batch_keeps_its_limits() -> None:
    """One sequence more breaks the limit that is named; a column of the system's own counts too."""
    (row,) = best_batches(L3, ["tpot_ms=40,prefill_s=2"])
    assert row["tpot_ms"] <= 40
    assert row["prefill_s"] <= 2
    assert row["short_of"] == "the limit of prefill_s"
    (free,) = best_batches(L3)
    assert free["largest_batch"] > row["largest_batch"] >= row["value"] >= 1
    (tight,) = best_batches(L3, ["prefill_s=0.001"])
    assert tight["largest_batch"] == 0
    with pytest.raises(InputError, match="no upper limit"):
        best_batches(L3, ["throughput_tok_s=1"])
    with pytest.raises(InputError, match="did you mean 'tpot_ms'"):
        best_batches(L3, ["tbt_m=50"])


@pytest.mark.slow
def test_a_larger_batch_may_keep_a_limit_that_a_smaller_one_breaks() -> None:
    """The greedy mapping takes less time for 302 sequences than for 300; all are tried."""
    study = Study(("h2m2",), ("opt-66b",), context="512", output_tokens="1")
    every = table(replace(study, batch="1:400:+1"))
    seconds = every["step_ms"].astype(float)
    limit = float(seconds[298])
    keeps = seconds <= limit
    last = 1 + int(np.flatnonzero(keeps)[-1])
    assert not np.all(keeps[:last]), "otherwise bisection would do"
    (row,) = best_batches(study, [f"step_ms<={limit!r}"])
    assert row["largest_batch"] == last
    assert keeps[row["value"] - 1]
    rates = every["throughput_tok_s"].astype(float)
    assert row["throughput_tok_s"] == np.max(rates[keeps])


def test_a_mapping_that_does_not_fit_is_a_row_with_a_status() -> None:
    answer = best_mapping(
        Study((), ("gpt3-175b",), batch="32", context="64k", output_tokens="1"), "exact"
    )
    assert list(answer["status"]) == ["infeasible"]
    assert answer["short_gb"].astype(float)[0] > 0
    assert np.isnan(answer["step_ms"].astype(float)).all()
    words = "mapping-trace --model gpt3-175b --requests 4000 --iterations 2 --format json"
    rows = json.loads(printed("solve", *words.split()))
    assert {row["status"] for row in rows} == {"infeasible"}


def test_the_best_of_designs_that_do_not_fit_is_a_row_with_a_status() -> None:
    words = "sweep --system accelerate --model opt-175b --context 1M --top 3 --format json --quiet"
    (row,) = json.loads(printed(*words.split()))
    assert row["status"] == "infeasible"
    assert row["short_gb"] > 0


@pytest.mark.slow
def test_paired_axes_go_together() -> None:
    study = Study(
        ("flexgen-ssd", "hilos"),
        ("opt-66b",),
        zipped={"context": "256,1k,8k", "output_tokens": "9,8,7"},
    )
    points = [
        (block.system.name, *(int(axis.values[0]) for axis in block.grid.axes[2:4]))
        for block in blocks(study)
    ]
    lengths = [(256, 9), (1024, 8), (8192, 7)]
    assert points == [(name, *pair) for name in ("flexgen-ssd", "hilos") for pair in lengths]
    words = "compare flexgen-ssd hilos --model opt-66b --zip context=1k,8k --zip output_tokens=9,8"
    text = printed(*words.split())
    assert "context_tok  output_tokens" in text
    for wrong in ({"context": "1k,2k", "output_tokens": "9"}, {"batch": "1,2"}):
        with pytest.raises(InputError, match="--zip"):
            blocks(Study(("hilos",), ("opt-66b",), batch="4", zipped=wrong))


@pytest.mark.slow
def test_a_pivot_has_a_column_for_each_value() -> None:
    words = "compare flexgen-ssd hilos --model opt-66b --context 8k,16k --pivot context_tok"
    lines = printed(*words.split(), "--columns", "step_ms").splitlines()
    assert lines[0].startswith("step_ms by context_tok, ")
    assert lines[2].split() == ["system", "8192", "16384"]
    assert len(lines) == 7
    text = printed(*words.split(), "--format", "latex", "--caption", "T", "--label", "tab:t")
    assert r"\multicolumn{2}{c}{throughput [\unit{tok/\second}] by context [\unit{tok}]}" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\label{tab:t}" in text


def test_provenance_names_the_choices_that_were_made() -> None:
    study = Study(("hilos",), ("opt-66b",), knobs={"writeback": "naive"})
    axes = provenance(blocks(study))["axes"]
    assert axes["writeback"] == ["naive"]
    assert axes["model"] == ["opt-66b"]


@pytest.mark.slow
def test_hardware_keeps_limits_on_any_column() -> None:
    """One CSD fewer breaks the limit; a limit that no count keeps beside a target is said."""
    study = Study(("hilos",), ("opt-66b",), context="64k")
    (row,) = least_hardware(study, "csd.count", ["step_ms=40000,prefill_s=2000"])
    assert row["step_ms"] <= 40000
    fewer = table(replace(study, sets={"csd.count": str(row["value"] - 1)}))
    assert float(fewer["step_ms"][0]) > 40000
    wanted = ["throughput_tok_s=0.3"]
    (never,) = least_hardware(study, "csd.count", [*wanted, "cost_usd=60000"])
    assert never["limit"] == "never"
    (own,) = least_hardware(L3, "dimm.ranksets", ["tpot_ms=60"])
    assert own["tpot_ms"] <= 60
    with pytest.raises(InputError, match="--slo: step_ms cannot be"):
        least_hardware(study, "csd.count", ["step_ms>=20", "step_ms=10"])


@pytest.mark.slow
def test_a_column_of_the_system_itself_can_be_looked_at() -> None:
    """Without a queue, the time between tokens is a step, so both depend on the same numbers."""
    steps, _ = sensitivity(replace(L3, batch="1"), "step_ms")
    pauses, _ = sensitivity(replace(L3, batch="1"), "tpot_ms")
    assert [row["number"] for row in pauses] == [row["number"] for row in steps]
    pair = Study(("gpu-only", "l3"), ("gpt-89b",))
    assert all(row["from"] for row in crossovers(pair, "batch=1:4", "tpot_ms"))
    with pytest.raises(InputError, match="--of: unknown column 'tpot_ms'"):
        crossovers(Study(("hilos", "l3"), ("opt-66b",)), "batch=1:4", "tpot_ms")


@pytest.mark.parametrize("words", ["sweep --top 1", "sweep --best-per batch", "pareto"])
def test_columns_on_request_are_printed_of_the_best(words: str) -> None:
    names = "batch,bottleneck,footprint_gb:kv"
    study = ("--system", "hilos", "--model", "opt-66b", "--columns", names, "--format", "csv")
    assert names in printed(*words.split(), *study).splitlines()


def test_one_design_is_counted_in_the_singular() -> None:
    text = " ".join(printed("pareto", "--system", "hilos", "--model", "opt-66b").split())
    assert "1 design that no other of the same workload beats" in text
    words = ("pareto", "--system", "hilos", "--model", "opt-66b", "--per", "modell")
    assert "--per: unknown column 'modell'" in printed(*words, code=2)


def test_a_rule_of_one_system_is_blank_for_another() -> None:
    """HILOS rounds its rule to powers of two as well; INF2 prints one rule."""
    both = best_knob(Study(("hilos", "inf2"), ("opt-66b",)), "alpha")
    for row, name in enumerate(("hilos", "inf2")):
        alone = best_knob(Study((name,), ("opt-66b",)), "alpha")
        for column in ("value", "rule", "rule_loss"):
            assert both[column][row] == alone[column][0], (name, column)
    assert np.isnan(both["rule_power_of_two"].astype(float)).tolist() == [False, True]

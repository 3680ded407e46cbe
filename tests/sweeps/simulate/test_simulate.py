"""What a queue has no number for is said, and nobody is called behind for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study

A100 = "dgx-a100-pim"
L3_SPLIT = {"tp": "l3", "dp": "remaining", "pp": "1", "ep": "1", "attention": "tp"}
"""GPUs as L3 splits its models over them."""


@pytest.mark.parametrize("method", ["fluid", "simulate"])
def test_a_cpu_that_attends_to_nothing_holds_nothing(method: str) -> None:
    """The longest request fits no GPU: with no share in the host, neither does anything."""
    without = Study(
        ("cpu-offload",), ("opt-66b",), traces=("openr1",), knobs={"cpu_share": "0"}, method=method
    )
    offload = table(without.but(knobs={}))
    gpus = table(without.but(systems=("gpu",), platforms=A100, knobs=L3_SPLIT))
    none = table(without)
    assert (offload["status"][0], gpus["status"][0]) == ("ok", "infeasible")
    assert (none["status"][0], none["short_of"][0]) == ("infeasible", "gpu")
    assert none["short_gb"][0] == pytest.approx(gpus["short_gb"][0])


@pytest.mark.filterwarnings("ignore:--set")  # no host is as slow
def test_what_exceeds_the_gpus_has_a_share_in_the_host() -> None:
    """All else fits, and attends faster there: the rule leaves no more to the CPU."""
    slow = {"host.bandwidth": "1MB/s"}
    study = Study(("cpu-offload",), ("opt-66b",), traces=("openr1",), sets=slow)
    answer = table(study)
    share = float(answer["cpu_share"][0])
    assert answer["status"][0] == "ok"
    assert share == pytest.approx(0.0703, rel=1e-3)
    less = table(study.but(knobs={"cpu_share": repr(0.999 * share)}))
    assert (less["status"][0], less["short_of"][0]) == ("infeasible", "gpu")


def test_experts_and_windows_are_simulated_as_the_averages_say() -> None:
    """Half of what waits is in memory at once: not only the end of the run counts."""
    models = ("mixtral-8x7b", "gpt-oss-120b")
    fluid = Study(("gpu",), models, traces=("openthoughts",))
    simulated = table(replace(fluid, method="simulate"))["throughput_tok_s"].astype(float)
    assert simulated == pytest.approx(table(fluid)["throughput_tok_s"].astype(float), rel=0.15)


@pytest.mark.parametrize("system", ["gpu", "hbm-pim"])
def test_more_memory_never_makes_a_queue_of_uneven_answers_slower(system: str) -> None:
    """Half of LongBench's answers are one token: near the end most tokens are in the drain.

    Whose law and mean are those of the requests that begin it, which costs up to 0.2 %.
    """
    memory = {"gpu.memory": "80GiB,110GiB,130GiB,138GiB,140GiB,200GiB"}
    study = Study((system,), ("llama3.1-8b",), platforms=A100, traces=("longbench",), sets=memory)
    if system == "gpu":
        study = study.but(knobs=L3_SPLIT)
    throughput = table(study)["throughput_tok_s"].astype(float)
    assert np.all(np.diff(throughput) >= -2e-3 * throughput[:-1])
    assert throughput[-1] < 1.05 * throughput[0]


def test_replicas_take_prompts_as_they_are_free(tmp_path: Path) -> None:
    """Every second answer is one token long, which its prompt gives; no replica takes them all."""
    trace = tmp_path / "mix.csv"
    rows = ["8000,180", "8000,1"] * 100
    trace.write_text("\n".join(["input_tokens,output_tokens", *rows]))
    sets = {"gpu.memory": "40GiB,140GiB"}
    study = Study(
        ("gpu",), ("llama3.1-8b",), platforms=A100, traces=(str(trace),), sets=sets, knobs=L3_SPLIT
    )
    fluid = table(study)["total_s"].astype(float)
    simulated = table(replace(study, method="simulate"))["total_s"].astype(float)
    # the fluid has no end: the last answers of 25 requests a replica take a quarter of the run
    assert simulated == pytest.approx(fluid, rel=0.25)
    assert simulated[1] <= simulated[0]

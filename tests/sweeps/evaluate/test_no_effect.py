"""A number, part or knob that is stated and changes nothing is told, and only such."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import invoke

import nearkv
from nearkv.costmodel.model.registry import System
from nearkv.hardware.errors import NearkvWarning
from nearkv.sweeps.evaluate import no_effect
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Mesh, Slices

MODEL = "opt-30b"
UNREAD = {"csd.count": 4}


@pytest.mark.parametrize(
    ("systems", "number"),
    [
        ("flexgen-ssd", "csd.count=4"),
        ("flexgen-dram", "csd.price=4USD"),
        ("gpu", "host.memory=1TB"),
    ],
)
def test_a_number_that_no_system_reads_is_told(systems: str, number: str) -> None:
    key, _, value = number.partition("=")
    with pytest.warns(NearkvWarning, match=f"--set {key} changes nothing: no system here reads"):
        nearkv.compare(systems, MODEL, context="1k", sets={key: value})


@pytest.mark.parametrize(
    ("systems", "number"),
    [
        ("flexgen-ssd,hilos", "csd.count=4,8"),  # the second reads it
        ("flexgen-ssd", "ssd.price=400USD"),  # for the cost alone
        ("hilos", "csd.idle_power=4W"),  # for the energy alone
        ("hilos", "csd.endurance=5PB"),  # for the endurance alone
        ("gpu", "precision.kv=8bit"),  # of the model, before a system sees it
        ("l3", "dimm.capacity=32GB"),  # of a copy of the machine
        ("gpu", "gpu.flops_8bit=600TFLOP/s"),  # where the part states one
    ],
)
def test_a_number_that_some_column_reads_is_not(systems: str, number: str) -> None:
    key, _, value = number.partition("=")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NearkvWarning)
        nearkv.compare(systems, MODEL, context="1k", sets={key: value})
    assert not [one for one in told if "no system here reads" in str(one.message)]


@pytest.mark.parametrize(
    ("system", "model", "number"),
    [
        ("gpu", "llama3.1-8b", "router.skew=1"),  # a dense model has no router
        ("expert-offload", "llama3.1-8b", "router.hit=0.1"),
        ("gpu", "llama3.1-8b", "fabric.count=3"),  # one node has no fabric to cross
    ],
)
def test_a_number_that_is_read_without_effect_is_told(system: str, model: str, number: str) -> None:
    key, _, value = number.partition("=")
    with pytest.warns(NearkvWarning, match=f"--set {key} changes nothing here"):
        nearkv.compare(system, model, context="1k", batch=1, sets={key: value})


@pytest.mark.parametrize(
    ("system", "model", "number"),
    [
        ("gpu", "gpt-oss-120b", "router.skew=1"),
        ("gpu", "llama3.1-8b", "gpu.memory=200GB"),  # of which a 1,024th is too little
        ("hilos", "opt-30b", "csd.p2p_read=6GB/s"),
    ],
)
def test_a_number_on_which_an_answer_depends_is_no_warning(
    system: str, model: str, number: str, recwarn: pytest.WarningsRecorder
) -> None:
    key, _, value = number.partition("=")
    nearkv.compare(system, model, context="1k", batch=1, sets={key: value})
    assert not [one for one in recwarn if "changes nothing" in str(one.message)]


def test_a_knob_whose_default_gives_another_answer_is_no_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Each value above the batch gives the same; the engine's own limit is below it."""
    llama: Any = {"platform": "rtx-4090-box", "parts": {"engine": "llama.cpp"}, "context": "4k"}
    nearkv.compare("gpu", "llama3.1-8b", batch=8, knobs={"sequences": 16}, **llama)
    assert not [one for one in recwarn if "changes nothing" in str(one.message)]
    with pytest.warns(NearkvWarning, match="--knob sequences changes nothing here"):
        nearkv.compare("gpu", "llama3.1-8b", batch=2, knobs={"sequences": 16}, context="4k")


def test_a_role_of_ones_own_that_no_system_reads_is_told(tmp_path: Path) -> None:
    platform = tmp_path / "mine.toml"
    platform.write_text('base = "hilos-a100"\n[expander]\npart = "pm9a3"\ncount = 1\n')
    with pytest.warns(NearkvWarning, match=r"mine\.toml: expander changes nothing: no system"):
        nearkv.compare("hilos", MODEL, context="1k", platform=str(platform))


@pytest.mark.parametrize("question", [nearkv.sweep, nearkv.pareto])
def test_sweep_and_pareto_tell_too(question: Callable[..., object]) -> None:
    with pytest.warns(NearkvWarning, match="csd.count changes nothing"):
        question(systems="flexgen-ssd", model=MODEL, context="1k", sets=UNREAD)


def test_estimate_tells_as_a_command_and_costs_its_evaluation_from_python(
    recwarn: pytest.WarningsRecorder,
) -> None:
    nearkv.estimate("flexgen-ssd", MODEL, context="1k", sets=UNREAD)
    assert not recwarn
    point = ["--model", MODEL, "--context", "1k", "--set", "csd.count=4"]
    assert "csd.count changes nothing" in invoke("estimate", "flexgen-ssd", *point).stderr


@pytest.mark.parametrize(
    "command",
    [
        "solve alpha",
        "solve crossover --system hilos,inf2 --knob weights=host --along context=16k:32k",
        "solve batch --system flexgen-ssd --knob weights=paper",
        "solve hardware --vary csd.count --slo throughput_tok_s=0.1",
        "solve subbatch --requests 2k,3k",
        "sensitivity hilos --band 90 --samples 20",
    ],
)
@pytest.mark.slow
def test_commands_that_solve_tell_too(command: str) -> None:
    done = invoke(*command.split(), "--model", MODEL, "--set", "gpu.pim_bandwidth=900GB/s")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("--set gpu.pim_bandwidth changes nothing") == 1


def test_a_column_of_a_trace_that_is_not_read_is_told_once(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("session,input_tokens,output_tokens\n0,1000,20\n1,3000,50\n", "utf-8")
    done = invoke("compare", "l3", "gpu", "--model", MODEL, "--trace", str(trace))
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("arrival_s are read, 'session' not") == 1


@pytest.mark.parametrize(
    ("question", "systems", "options", "said"),
    [
        ("hardware", "hilos", {"vary": "csd.read", "slo": "throughput_tok_s=1"}, "--vary"),
        ("crossover", "hilos,flexgen-ssd", {"along": "csd.read=1GB/s:9GB/s"}, "--along"),
    ],
)
def test_a_number_that_is_searched_and_not_read_is_told(
    question: str, systems: str, options: Any, said: str
) -> None:
    """hilos reads its drives through their accelerators, never csd.read."""
    with pytest.warns(NearkvWarning, match=f"{said} csd.read changes nothing"):
        nearkv.solve(question, MODEL, systems=systems, context="1k", **options)


def test_a_number_that_is_searched_and_read_is_not_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NearkvWarning)
        options: Any = {"vary": "csd.count", "slo": "throughput_tok_s=0.1"}
        nearkv.solve("hardware", MODEL, systems="hilos", context="1k", **options)


def test_a_part_that_no_system_reads_is_told() -> None:
    with pytest.warns(NearkvWarning, match="--part ssd=pm9a3 changes nothing"):
        nearkv.compare(["hilos"], "opt-66b", parts={"ssd": "pm9a3"})


def test_a_knob_on_which_no_answer_depends_is_told() -> None:
    """Naive writeback buffers no rows, so after how many they are written is idle."""
    idle: dict[str, str | float] = {"writeback": "naive", "interval": 4}
    with pytest.warns(NearkvWarning, match="--knob interval changes nothing here.* 4, 1, 128, 256"):
        nearkv.compare(["hilos"], "opt-66b", knobs=idle)


@pytest.mark.parametrize(
    ("systems", "knobs", "batch"),
    [
        (["hilos"], {"writeback": "delayed", "interval": 4}, 16),
        (["l3"], {"interleave": "on"}, 16),
        (["hilos", "flexgen-dram"], {"alpha": "0.5", "weights": "paper"}, 16),
        (["hilos"], {"interval": 4, "writeback": "naive"}, 10**9),
        (["gpu"], {"chunk": 64}, 1),  # all that is above the prompt is the same
    ],
    ids=["read", "as the default picks", "of one system each", "nothing runs", "of a few values"],
)
def test_a_knob_that_matters_is_no_warning(
    systems: list[str], knobs: dict[str, str | float], batch: int, recwarn: pytest.WarningsRecorder
) -> None:
    nearkv.compare(systems, "opt-66b", knobs=knobs, batch=batch)
    assert not [one for one in recwarn if "changes nothing" in str(one.message)]


def test_a_chunk_below_the_prompt_matters_however_long_it_may_be() -> None:
    """Whole prompts of 1,024 tokens and chunks of 512k are alike; chunks of 32 are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        knobs = {"chunk": "auto"}
        nearkv.compare("cpu-only", "gpt-oss-120b", context="1k", batch=1, knobs=knobs)


def test_the_knob_that_is_solved_for_is_not_looked_at() -> None:
    """`solve` evaluates a share at its ends, at its best, by each rule, as measured, as `auto`.

    Each time with the chunk that fits, and `auto` at every place of weights.
    """
    calls = 0
    evaluate = System.__call__

    def counted(*inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        return evaluate(*inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(System, "__call__", counted)
        nearkv.solve("alpha", "opt-66b", context="64k")
    assert calls <= 28


def test_a_count_is_tried_eight_times_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand GPUs have so many splits that a solved share among them takes minutes."""
    counts: set[float] = set()
    metrics = no_effect._metrics

    def seen(block: Block, box: Slices, numbers: Mesh = NO_NUMBERS, **options: Any) -> Any:
        counts.update(np.ravel(numbers.get("gpu.count", [])))
        return metrics(block, box, numbers, **options)

    monkeypatch.setattr(no_effect, "_metrics", seen)
    nearkv.compare("gpu", MODEL, context="1k", sets={"gpu.count": 1})
    assert counts == {1.0, 8.0}

"""Every system on models of several types of layer: statuses, sums and limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.systems import SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.chosen import Windowed
from nearkv.costmodel.model.layers import Mixed, attention_of
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import names
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study

SUMMING = sorted(name for name, system in SYSTEMS.items() if system.attends)


WINDOWED = ["gemma3-27b", "gpt-oss-120b", "mistral-7b"]


@cache
def one_of_each_structure() -> tuple[str, ...]:
    """Models of the catalogue that differ in types of layers, experts or heads that share K, V."""
    chosen: dict[tuple[object, ...], str] = {}
    for name in names("model"):
        llm = model(name)
        types = llm.layer_types.values() or [llm]
        is_grouped = bool(llm.kv_heads < llm.heads)
        chosen[frozenset(map(attention_of, types)), bool(llm.experts > 1), is_grouped] = name
    return tuple(chosen.values())


@pytest.mark.parametrize(
    "models_of",
    [one_of_each_structure, pytest.param(lambda: names("model"), marks=pytest.mark.deep)],
    ids=["structures", "all"],
)
@pytest.mark.slow
def test_every_point_has_a_finite_answer_or_a_reason(
    system: System, models_of: Callable[[], Sequence[str]]
) -> None:
    """Models of the catalogue at three contexts, in one study."""
    models = tuple(models_of())
    study = Study((system.name,), models, batch="4", context="8k,64k,1M")
    rows = table(study)
    answered = rows["status"] == "ok"
    seconds = rows["total_s"].astype(float)
    assert len(answered) == 3 * len(models)
    assert np.isfinite(seconds[answered]).all()
    assert np.isnan(seconds[~answered]).all()
    assert (rows["reason"][~answered] != "").all()
    assert set(rows["status"]) <= {"ok", "infeasible", "not-modelled"}


@pytest.mark.parametrize("name", SUMMING)
@pytest.mark.slow
def test_a_study_of_many_models_answers_as_for_each_alone(name: str) -> None:
    chosen = ("llama2-7b", "gpt-oss-20b", "deepseek-v3")
    together = table(Study((name,), chosen, batch="2", context="32k"))
    for place, model_name in enumerate(chosen):
        alone = table(Study((name,), (model_name,), batch="2", context="32k"))
        assert together["status"][place] == alone["status"][0]
        for column in ("total_s", "step_ms", "energy_j_tok"):
            assert together[column][place] == pytest.approx(alone[column][0], nan_ok=True)


def test_a_reason_does_not_depend_on_the_models_beside_it() -> None:
    reasons = []
    for models in (("gemma3-27b",), ("opt-66b", "gemma3-27b"), ("gemma3-27b", "opt-66b")):
        answer = table(Study(("h2m2",), models))
        reasons += answer["reason"][answer["model"] == "gemma3-27b"].tolist()
    assert len(reasons) == 3
    assert len(set(reasons)) == 1


def test_a_system_without_the_physics_of_a_kind_says_why() -> None:
    rows = table(Study(tuple(SYSTEMS), ("deepseek-v3",), batch="1", context="8k"))
    reasons = dict(zip(rows["system"], rows["reason"], strict=True))
    for name in ("h2m2", "hillinfer", "l3", "cpu-offload"):
        assert reasons[name].startswith("multi-head latent attention is not modelled: ")
    for name in ("hilos", "inf2", "flexgen-ssd", "zero-inference", "accelerate", "gpu"):
        assert "not modelled" not in reasons[name]
    assert not reasons["gpu"]


@pytest.mark.parametrize("name", ["hilos", "inf2", "gpu", "accelerate"])
def test_a_state_costs_what_does_not_grow_with_context(name: str) -> None:
    """28 of 32 layers keep a state: K and V of the other four are all that a context adds."""
    llm = model("jamba-v0.1")
    only = Mixed(**{**vars(llm), "types_by_name": {"state": llm.layer_types["state_dense"]}})
    short = evaluate(name, only, Workload(4.0, 1024.0, 64.0))
    assert evaluate(name, only, Workload(4.0, 65536.0, 64.0))[1] == pytest.approx(short[1])
    assert short[1] > 0


def evaluate(name: str, llm: LLM, work: Workload, **knobs: Real) -> tuple[Real, Real]:
    system = SYSTEMS[name]
    estimate = system(machine_of(system), llm, work, {**middle(system), **knobs})
    return estimate.prefill.seconds, estimate.step.seconds


@pytest.mark.parametrize("name", SUMMING)
def test_one_kind_of_all_layers_costs_what_layers_that_are_alike_cost(name: str) -> None:
    plain, work = model("llama2-70b"), Workload(8.0, 16384.0, 64.0)
    half = replace(plain, layers=plain.layers / 2)
    split = Mixed(**vars(plain), types_by_name={"full_dense": half, "full_moe": half})
    assert evaluate(name, split, work) == pytest.approx(evaluate(name, plain, work))


@pytest.mark.parametrize("name", SUMMING)
@pytest.mark.parametrize("model_name", WINDOWED)
@pytest.mark.slow
def test_a_window_beyond_the_context_is_full_attention(name: str, model_name: str) -> None:
    llm = model(model_name)
    wide = {label: widened(kind) for label, kind in llm.layer_types.items()}
    full = {label: plain(kind) for label, kind in llm.layer_types.items()}
    work = Workload(4.0, 8192.0, 64.0)
    unlimited = Mixed(**{**vars(llm), "types_by_name": wide})
    alike = Mixed(**{**vars(llm), "types_by_name": full})
    assert evaluate(name, unlimited, work) == pytest.approx(evaluate(name, alike, work))
    longer = evaluate(name, llm, Workload(4.0, 65536.0, 64.0))
    assert longer[1] < evaluate(name, unlimited, Workload(4.0, 65536.0, 64.0))[1]


def widened(kind: LLM) -> LLM:
    return replace(kind, window=1e9) if isinstance(kind, Windowed) else kind


def plain(kind: LLM) -> LLM:
    sizes = {name: value for name, value in vars(kind).items() if name != "window"}
    return LLM(**{name: value for name, value in sizes.items() if name in LLM.__annotations__})


@pytest.mark.parametrize("name", ["gpt-oss-120b", "deepseek-v3", "gemma3-27b"])
def test_a_solved_share_beats_a_fine_grid_on_several_kinds(name: str) -> None:
    system, llm, work = SYSTEMS["hilos"], model(name), Workload(16.0, 65536.0, 64.0)
    hw = machine_of(system)
    requested: dict[str, Real | str] = {**middle(system), "alpha": "auto"}
    solved = resolve_knobs(system, hw, llm, work, requested).estimate
    grid = system(hw, llm, work, {**middle(system), "alpha": np.linspace(0.0, 1.0, 1001)})
    feasible = np.where(grid.fits.ok, grid.step.seconds, np.inf)
    assert np.all(solved.step.seconds <= feasible * (1 + 1e-9))

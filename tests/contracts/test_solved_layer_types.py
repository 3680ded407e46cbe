"""Solvers on models of two and three layer types: no point of a fine grid is better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.cpu_share import balanced_share
from nearkv.costmodel.model.chosen import Windowed
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Mixed, Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.solvers.beta import best_beta
from nearkv.solvers.knobs import resolve_knobs

GRID = np.linspace(0.0, 1.0, 4001)
ROOMY: dict[str, dict[str, Real]] = {"hillinfer": {"gpu.memory": 1e12}}
"""A 4090 holds the weights of no large model, whatever the split."""
LOSS = 1e-9
"""Relative distance that rounding leaves."""


def mixed(rng: np.random.Generator, *names: str) -> LLM:
    """A model of these kinds, in random numbers of layers."""
    plain = model(str(rng.choice(["llama2-7b", "llama2-70b", "mixtral-8x7b"])))
    counts = rng.integers(1, 40, len(names)).astype(float)
    kinds = {
        name: kind_of(name, replace(plain, layers=count), rng)
        for name, count in zip(names, counts, strict=True)
    }
    whole = replace(plain, layers=float(counts.sum()))
    return Mixed(**vars(whole), types_by_name=kinds)


def kind_of(name: str, plain: LLM, rng: np.random.Generator) -> LLM:
    sizes = vars(plain)
    if name == "window":
        return Windowed(**sizes, window=float(rng.choice([128, 1024, 4096])))
    if name == "state":
        size = float(rng.integers(10_000, 1_000_000))
        return Recurrent(**sizes, mixer_parameters=1e8, state_size=size, state_flops=5 * size)
    if name == "latent":
        row = {**sizes, "kv_heads": 0.5, "head_size": 576}
        ranks = {"kv_rank": 512.0, "rope_size": 64.0, "key_size": 128.0, "value_size": 128.0}
        return Latent(**row, **ranks)
    if name == "full_moe":
        return replace(plain, experts=8.0, active_experts=2.0)
    return replace(plain, kv_heads=plain.heads / float(rng.choice([1, 2, 4])))


KINDS = [
    ("full", "window"),
    ("full", "full_moe"),
    ("full", "window", "state"),
    ("full", "full_moe", "window"),
]
LATENT = [("full", "latent"), ("full", "window", "latent")]


def random_work(rng: np.random.Generator) -> Workload:
    batch, prompt = float(rng.integers(1, 33)), float(rng.integers(500, 60_000))
    return Workload(batch, prompt, 64.0)


def check_share(name: str, knob: str, names: tuple[str, ...], seed: int) -> None:
    """Solve a share on a random model and compare it with every point of a fine grid."""
    rng = np.random.default_rng(seed)
    system, llm, work = SYSTEMS[name], mixed(rng, *names), random_work(rng)
    hw, others = machine_of(system).with_values(ROOMY.get(name, {})), middle(system)
    requested: dict[str, Real | str] = {**others, knob: "auto"}
    resolved = resolve_knobs(system, hw, llm, work, requested)
    solved = resolved.estimate
    grid = system(hw, llm, work, {**others, knob: GRID})
    fitting = np.broadcast_to(grid.fits.ok, GRID.shape)
    assert bool(np.all(solved.fits.ok)) == bool(fitting.any())
    if not fitting.any():
        return
    seconds = np.broadcast_to(grid.step.seconds, GRID.shape)
    best = float(seconds[fitting].min())
    assert np.all(np.asarray(solved.step.seconds) <= best * (1 + LOSS))
    # the step at the share is what the solver says it is
    again = system(hw, llm, work, {**others, knob: resolved.knobs[knob]})
    assert np.asarray(again.step.seconds) == pytest.approx(np.asarray(solved.step.seconds))


@pytest.mark.parametrize("names", KINDS + LATENT)
@pytest.mark.parametrize("seed", range(4))
def test_the_share_of_x_on_flash(names: tuple[str, ...], seed: int) -> None:
    check_share("hilos", "alpha", names, seed)


@pytest.mark.parametrize("names", KINDS + LATENT)
@pytest.mark.parametrize("seed", range(4))
def test_the_share_of_x_in_host_memory(names: tuple[str, ...], seed: int) -> None:
    check_share("inf2", "alpha", names, seed)


@pytest.mark.parametrize("names", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_the_share_of_k_and_v_in_dram(names: tuple[str, ...], seed: int) -> None:
    check_share("hillinfer", "hot_share", names, seed)


@pytest.mark.parametrize("names", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_the_split_of_k_and_v_meets_its_bound(names: tuple[str, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    system, llm = SYSTEMS["hillinfer"], mixed(rng, *names)
    work, knobs = Workload(4.0, float(rng.integers(500, 8000)), 64.0), middle(system)
    hw = machine_of(system).with_values(ROOMY["hillinfer"])
    answer = best_beta(hw, llm, work, knobs)
    assert np.all(np.asarray(answer.best.seconds) <= np.asarray(answer.bound) * (1 + LOSS))
    for rule in (answer.eq4, answer.sec54):
        assert np.all(np.asarray(answer.best.seconds) <= np.asarray(rule.at.seconds) * (1 + LOSS))


@pytest.mark.parametrize("names", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_share_of_requests_with_the_cpu(names: tuple[str, ...], seed: int) -> None:
    """Host memory and bandwidth are drawn, so that either memory binds, or neither."""
    rng = np.random.default_rng(seed)
    system, llm = SYSTEMS["cpu-offload"], mixed(rng, *names)
    work = Workload(float(rng.integers(1, 2000)), float(rng.integers(100, 100_000)), 512.0)
    drawn = {
        "host.memory": 10 ** rng.uniform(10, 13),
        "host.bandwidth": 10 ** rng.uniform(10, 12.7),
        "gpu.attention_launch": float(rng.choice([0.0, 1e-5, 1e-3])),
    }
    hw = machine_of(system).with_values(drawn)
    best = system(hw, llm, work, {"cpu_share": balanced_share(hw, llm, work)})
    grid = system(hw, llm, work, {"cpu_share": GRID})
    fitting = np.broadcast_to(grid.fits.ok, GRID.shape)
    assert bool(best.fits.ok) == bool(fitting.any())
    if fitting.any():
        fastest = np.broadcast_to(grid.step.seconds, GRID.shape)[fitting].min()
        assert best.step.seconds <= fastest * (1 + LOSS)

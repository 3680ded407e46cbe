"""Every design point has a status and, where there is no answer, the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.command_line import succeed
from support.systems import machine_of, model

from nearkv.costmodel.model.capacity import STATUSES, Fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import Mixed, Windowed, not_modelled
from nearkv.costmodel.model.registry import System, find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError, NearkvError, NearkvWarning, warn
from nearkv.sweeps.evaluate import evaluate
from nearkv.sweeps.study.study import Study, blocks


def test_memory_that_misses_most_is_the_reason() -> None:
    need = np.array([1.0, 5.0, 5.0])
    fits = Fits({"gpu": (need, 2.0), "host": (np.array([1.0, 1.0, 9.0]), 3.0)})
    assert [STATUSES[place] for place in fits.status] == ["ok", "infeasible", "infeasible"]
    reasons = [fits.reasons[place] for place in fits.reason]
    assert reasons == ["", "gpu memory is short", "host memory is short"]  # 3 B and 6 B are missing


@pytest.mark.parametrize("name", ["accelerate", "deepspeed-uvm"])
def test_layers_that_a_system_lacks_have_no_answer(name: str) -> None:
    system = find_system(name)
    estimate = system(machine_of(system), model("deepseek-v3.2"), Workload(1.0, 100.0, 8.0), {})
    assert not estimate.fits.ok
    assert "an indexer chooses is not modelled" in estimate.fits.reasons[int(estimate.fits.reason)]


def test_two_memories_that_hold_something_together_are_short_together() -> None:
    fits = Fits({"hbm": (1.0, 2.0), "both": (9.0, 5.0)})
    assert fits.reasons[int(fits.reason)] == "both memories together are short"


def test_what_is_not_modelled_has_no_answer_even_where_it_would_fit() -> None:
    fits = Fits({"gpu": (np.array([1.0, 9.0]), 2.0)}).without(
        {"no experts": np.array([True, True])}
    )
    assert not fits.ok.any()
    assert [STATUSES[place] for place in fits.status] == ["not-modelled", "not-modelled"]
    assert [fits.reasons[place] for place in fits.reason] == ["no experts", "no experts"]
    assert np.all(fits.short_bytes == 0)


def test_columns_say_what_is_not_modelled_and_what_differs() -> None:
    """A system without long contexts, which rounds batches: at two contexts and two batches."""
    study = Study(("hilos",), ("opt-66b",), batch="1,2", context="1k,1600")
    (block,) = blocks(study)

    def limited(*inputs: Any, **knobs: Any) -> Estimate:
        estimate = block.system.model(*inputs, **knobs)
        long, even = np.greater(estimate.work.prompt, 1500), np.greater(estimate.work.batch, 1)
        fits = estimate.fits.without({"long context": long})
        return replace(estimate, fits=fits, notes={"rounded": even, "cut": long})

    system = replace(block.system, model=limited)
    assert isinstance(system, System)
    found = evaluate.columns(replace(block, system=system), block.grid.whole)
    assert found["status"].tolist() == ["ok", "not-modelled", "ok", "not-modelled"]
    assert found["reason"].tolist() == ["", "long context", "", "long context"]
    assert found["note"].tolist() == ["", "cut", "rounded", "rounded; cut"]
    assert np.isnan(found["step_ms"].astype(float)).tolist() == [False, True, False, True]


def test_bad_input_is_one_of_our_errors_and_a_warning_reaches_the_caller() -> None:
    with pytest.raises(NearkvError) as problem:
        find_system("hylos")
    assert isinstance(problem.value, InputError)
    with pytest.warns(NearkvWarning, match="12 of 16"):
        warn("12 of 16 sequences run at once")


def test_a_system_answers_not_modelled_for_layers_it_does_not_sum_over() -> None:
    """Full layers beside windowed ones, in one study with a model of full layers alone."""
    plain, mixed = model("llama2-7b"), model("llama2-7b")
    kinds = {
        "full": replace(plain, layers=np.array([32.0, 16.0])),
        "window": Windowed(**{**vars(plain), "layers": np.array([0.0, 16.0])}, window=4096.0),
    }
    llm = Mixed(**vars(mixed), layer_kinds=kinds)
    no_kinds = not_modelled(llm, ())
    assert {sentence: where.tolist() for sentence, where in no_kinds.items()} == {
        "layers of several kinds are not modelled": [False, True],
        "sliding-window attention is not modelled": [False, True],
    }
    assert list(not_modelled(llm, ("full",))) == ["sliding-window attention is not modelled"]
    assert not_modelled(llm, ("full", "window")) == {}
    assert not_modelled(plain, ()) == {}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("hilos --model opt-175b --context 1M --batch 4096", "memory is short by"),
        ("accelerate --model deepseek-v3.2", "an indexer chooses is not modelled"),
    ],
)
def test_a_tree_of_no_time_says_why(words: str, why: str) -> None:
    shown = succeed("estimate", *words.split(), "--explain")
    assert "has no time to explain" in shown
    assert why in " ".join(shown.split())
    asked = succeed("estimate", *words.split(), "--explain", "--format", "json")
    assert json.loads(asked)[0]["status"] != "ok"

"""Columns of a table: what is on request, notes on what differs from what was asked."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest

from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.registry import System
from nearkv.sweeps.evaluate import columns
from nearkv.sweeps.evaluate.columns import on_request, spread, table
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Categories, Columns


def test_weights_and_cache_are_those_of_the_model() -> None:
    """OPT-66B: 64 layers of 72 heads of 128, K and V of 2 bytes, at the last token."""
    study = Study(("hilos", "gpu"), ("opt-66b",), batch="1,16", context="1k", output_tokens="24")
    rows = table(study, on_request(["system", "footprint_gb:kv"]))
    per_token = 2 * 64 * 72 * 128 * 2
    held = [batch * (1024 + 24) * per_token / 1e9 for batch in (1, 16)]
    assert rows["footprint_gb:kv"].tolist() == pytest.approx([*held, *held])
    assert rows["footprint_gb:weights"] == pytest.approx([2 * 65.7] * 4, rel=0.01)


def test_a_table_has_them_only_where_they_are_named() -> None:
    assert not [name for name in table(Study(("hilos",), ("opt-66b",))) if "footprint" in name]
    assert on_request(["step_ms", "bottleneck"]) == ("bottleneck",)


ON_A100: dict[str, Any] = {
    "platforms": "dgx-a100-pim",
    "knobs": {"tp": "l3", "dp": "remaining", "pp": "1", "ep": "1", "attention": "tp"},
}


def answer(system: str, model: str, **options: Any) -> Columns:
    return table(Study((system,), (model,), **options))


def test_a_batch_that_runs_in_parts_is_noted() -> None:
    """A100s hold 22.8 of 32 such requests beside the weights of a model of 89 x 10^9 parameters."""
    parts = answer("gpu", "gpt-89b", **ON_A100, batch="32", context="6000", output_tokens="1")
    assert 1 < parts["batch_run"][0] < 32
    assert "batch_run sequences at a time on average, times count all rounds" in parts["note"][0]
    whole = answer("gpu", "gpt-89b", **ON_A100, batch="4", context="6000", output_tokens="1")
    assert whole["batch_run"][0] == 4
    assert "batch_run" not in whole["note"][0]


def test_one_token_has_no_time_to_another() -> None:
    """The prompt gives it, and no other follows; a step is that of a batch nonetheless."""
    row = answer("gpu", "gpt-89b", **ON_A100, batch="32", context="6000", output_tokens="1")
    assert np.isnan(row["tpot_ms"]).all()
    assert row["step_ms"][0] > 0


@pytest.mark.parametrize(("context", "noted"), [("1k", False), ("4k", True)])
def test_a_mapping_made_for_less_than_the_context_is_noted(context: str, noted: bool) -> None:
    row = answer("flexgen-mapping", "gpt3-175b", context=context, output_tokens="1")
    assert ("mapped for the context, which is beyond `longest`" in row["note"][0]) is noted


@pytest.mark.parametrize(("batch", "noted"), [("4", True), ("64", False)])
def test_more_gpu_batches_than_sequences_are_noted(batch: str, noted: bool) -> None:
    knobs = {"gpu_batches": "64"}
    row = table(Study(("flexgen-ssd",), ("opt-30b",), batch=batch, knobs=knobs))
    assert ("gpu_batches beyond the batch" in row["note"][0]) is noted


@pytest.mark.parametrize("system", ["flexgen-ssd", "flexgen-dram", "flexgen-percent"])
def test_a_gpu_batch_without_a_sequence_hides_nothing(system: str) -> None:
    knobs = {"gpu_batches": "8,9,64,auto"}
    row = table(Study((system,), ("gpt-oss-120b",), batch="8", context="64k", knobs=knobs))
    assert row["step_ms"][1] == row["step_ms"][2] == row["step_ms"][0]
    assert row["gpu_batches"][3] <= 8


def test_one_text_at_every_point_takes_no_room_for_each() -> None:
    places = np.ones((1, 3), int)
    rows = spread(Categories(places, ("", "beyond the positions")), (2, 3))
    assert rows.tolist() == ["beyond the positions"] * 6
    assert rows.strides == (0,)


def test_texts_that_differ_stand_in_row_major_order() -> None:
    rows = spread(Categories(np.array([[0, 1, 0]]), ("a", "bc")), (2, 3))
    assert rows.tolist() == ["a", "bc", "a", "a", "bc", "a"]


def test_columns_say_what_is_not_modelled_and_what_differs() -> None:
    """A system without long contexts, which rounds batches: at two contexts and two batches."""
    study = Study(("hilos",), ("opt-66b",), batch="1,2", context="1k,1600")
    (block,) = blocks(study)

    @wraps(block.system.model)
    def limited(*inputs: Any, **knobs: Any) -> Estimate:
        estimate = block.system.model(*inputs, **knobs)
        long, even = np.greater(estimate.work.prompt, 1500), np.greater(estimate.work.batch, 1)
        fits = estimate.fits.without({"long context": long})
        return replace(estimate, fits=fits, notes={"rounded": even, "cut": long})

    system = replace(block.system, model=limited)
    assert isinstance(system, System)
    found = columns.columns(replace(block, system=system), block.grid.whole)
    assert found["status"].tolist() == ["ok", "not-modelled", "ok", "not-modelled"]
    assert found["reason"].tolist() == ["", "long context", "", "long context"]
    chips = found["note"][0]
    assert chips.startswith("a100-40gb: rates as on ")
    notes = [chips, f"cut; {chips}", f"rounded; {chips}", f"rounded; cut; {chips}"]
    assert found["note"].tolist() == notes
    assert np.isnan(found["step_ms"].astype(float)).tolist() == [False, True, False, True]


def test_a_width_that_the_user_sets_is_noted_where_the_model_states_its_own() -> None:
    sets = {"precision.weight": "8bit"}
    rows = table(Study(("hilos",), ("gpt-oss-20b", "llama2-7b"), context="2k", sets=sets))
    chips = rows["note"][1]
    assert chips.startswith("a100-40gb: rates as on ")
    assert rows["note"][0].endswith(f"precision.weight as set, not the model's own; {chips}")

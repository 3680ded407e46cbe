"""The time tree of one design point."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.command_line import refusal, succeed

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import columns
from nearkv.sweeps.explore.explain import time_tree
from nearkv.sweeps.study.study import Study, one_block

POINT = ("--model", "opt-30b", "--context", "8k", "--band", "90", "--samples", "20")


def test_an_answer_of_one_token_explains_one_step() -> None:
    """Prefill makes the only token; the tree of a step stands behind, its shares sum to 1."""
    study = Study(("full-cache",), ("qwen-7b",), batch="1", context="4k", output_tokens="1")
    block = one_block(study)
    resolved = block.resolved(block.grid.whole)
    answer = columns(block, block.grid.whole, resolved=resolved)
    rows = time_tree(resolved.estimate)
    step = [row for row in rows if str(row["span"]).startswith("one decode step")]
    leaves = [float(str(row["share"])) for row in step if row["word"] == "leaf"]
    assert sum(leaves) == pytest.approx(1)
    milliseconds = float(answer["step_ms"].astype(float)[0])
    assert 1e3 * float(str(step[0]["seconds"])) == pytest.approx(milliseconds)
    longer = nearkv.estimate(study.but(output_tokens="2"))
    assert not [row for row in longer.tree if "one decode" in str(row["span"])]


@pytest.mark.parametrize("ask", ["explain", "breakdown", "busy", "traffic"])
def test_a_simulated_queue_has_no_time_tree(ask: str) -> None:
    point = nearkv.estimate("l3", "opt-66b", trace="openr1", method="simulate")
    answer: Callable[[], object] = getattr(point, ask)
    with pytest.raises(InputError, match="a simulated queue has no time tree"):
        answer()
    with pytest.raises(InputError, match="explain --method fluid"):
        _ = point.tree


def test_a_tree_with_a_band_says_what_the_band_is_made_of() -> None:
    shown = succeed("estimate", "hilos", *POINT, "--explain")
    assert "drawn 20 times for the 90 % band" in shown
    assert "error of the models" in shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("hilos --model opt-175b --context 1M --batch 4096", "memory is short by"),
        ("accelerate --model deepseek-v3.2", "an indexer chooses is not modelled"),
    ],
)
def test_a_tree_of_no_time_says_why(words: str, why: str) -> None:
    shown = succeed("estimate", *words.split(), "--explain", code=3)
    assert "has no time to explain" in shown
    assert "needed_gb" in shown
    assert why in " ".join(shown.split())
    asked = succeed("estimate", *words.split(), "--explain", "--format", "json", code=3)
    assert json.loads(asked)[0]["status"] != "ok"


def test_a_footprint_is_what_decides_whether_a_design_fits() -> None:
    words = ("estimate", "hilos", "--model", "llama3.1-70b", "--context", "128k", "--batch", "1k")
    shown = succeed(*words, "--footprint", "--format", "json", code=3)
    (row,) = json.loads(succeed(*words, "--format", "json", code=3))
    everything = json.loads(shown)
    memories = {memory["memory"]: memory for memory in everything if memory["content"] == "all"}
    assert memories[row["short_of"]]["missing_gb"] == pytest.approx(row["short_gb"])
    for memory in memories.values():
        over = memory["needed_gb"] - memory["available_gb"]
        assert memory["missing_gb"] == pytest.approx(max(over, 0))
        within = [part for part in everything if part["memory"] == memory["memory"]][1:]
        assert sum(part["needed_gb"] for part in within) == pytest.approx(memory["needed_gb"])
    said = " ".join(succeed(*words, "--footprint", code=3).split())
    # 1,024 sequences of 131,072 + 64 tokens, 327,680 bytes each, in 8 drives of 3.84 TB
    assert "csd memory is short by 13,280 GB; most of what it must hold is KV cache" in said
    assert "KV cache, 44,000 GB" in said
    assert "nearkv estimate hilos ... --footprint" in succeed(*words, code=3)
    assert "ask for one" in refusal(*words, "--footprint", "--explain")


def test_a_memory_that_is_filled_to_the_last_byte_is_not_short() -> None:
    """The share of experts is solved for all of the GPU, which rounding exceeds by some bytes."""
    answer = nearkv.estimate(
        "expert-offload", "gpt-oss-120b-gguf", batch=1, context=4096, output_tokens=32
    )
    gpu = answer.footprint[0]
    assert gpu["needed_gb"] == pytest.approx(gpu["available_gb"], rel=1e-12)
    assert gpu["missing_gb"] == 0

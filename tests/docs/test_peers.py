"""The point other tools publish: its arithmetic, its command and its page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from bench.measured import ROW, median_error
from support.systems import model
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.sweeps.validation.validate import judge_claims

PAGE = (Path(__file__).parents[2] / "docs" / "peers.md").read_text()
COMMANDS = re.findall(r"^\$ nearkv (.+)", PAGE, re.M)


def test_the_sum_is_weights_and_kv() -> None:
    llm = model("llama2-7b")
    weights = llm.layers * llm.layer_weight_bytes(16.0)
    kv = llm.layers * llm.kv_bytes(16.0, 2048.0)
    assert weights == 32 * 2 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert kv == 32 * 2 * 4096 * 16 * 2048 * 2
    attention = llm.layers * llm.attention_parameters * 2
    head = llm.head_parameters * 2
    for shown in (attention, weights - attention, kv, head, weights + kv + head):
        assert f"{shown / 1e9:.3f} GB" in PAGE
    assert f"it would be {(weights + kv) / 2039e6:.2f} ms (`--set" in PAGE
    assert (
        f"{(llm.weight_bytes + kv) / 2039e6:.1f} ms is the same sum with input embeddings" in PAGE
    )
    flops = llm.layers * llm.linear_flops(16.0) + 2 * 16 * llm.head_parameters
    assert f"{flops / 1e9:.0f} GFLOP at 312 TFLOP/s, take {flops / 312e9:.2f} ms" in PAGE


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split()[1])
def test_the_command_gives_the_step(command: str) -> None:
    words = [word for word in shlex.split(command) if word != "--explain"]
    step = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).stdout)[0]["step_ms"]
    assert step == pytest.approx(30.394 / 2039 * 1e3, rel=1e-4)
    assert f"**{step:.2f} ms**" in PAGE
    # the published spread of other tools
    assert 13.9 < step < 23.3


def test_defaults_are_slower() -> None:
    words = (
        "estimate gpu --model llama2-7b --batch 16 --context 2047 --output-tokens 2 "
        "--platform dgx-a100-pim --set gpu.count=1 --format json"
    )
    step = json.loads(CliRunner().invoke(app, words.split()).stdout)[0]["step_ms"]
    assert f"gives {step:.1f} ms" in PAGE


def test_the_table_has_our_predictions_of_all_its_rows() -> None:
    lines = re.findall(r"^\| (\w+), (\d), (\d+) \| ([\d.]+) \| ([\d.]+) ", PAGE, re.M)
    ids = [f"aic-llama-3.1-70b-h200_sxm-{e}-tp{tp}-b{batch}-fp8" for e, tp, batch, *_ in lines]
    assert len(ids) == 22
    assert all(map(ROW.fullmatch, ids))
    rows = {row["id"]: row for row in judge_claims(ids=ids)}
    stated = [float(rows[row]["stated"]) for row in ids]
    predicted = [float(rows[row]["predicted"]) for row in ids]
    values = [
        (f"{truth:.1f}", f"{ours:.1f}") for truth, ours in zip(stated, predicted, strict=True)
    ]
    assert values == [line[3:] for line in lines]
    error = median_error(predicted, stated)
    assert f"| median error | | {error:.0%} |".replace("%", " %") in PAGE

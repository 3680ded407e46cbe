"""The digest of a sweep: whatever changes a row or a byte changes it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.studies import MIXED

from nearkv.sweeps.evaluate.provenance import package_digest
from nearkv.sweeps.jobs.plan import digest_of, plan
from nearkv.sweeps.study.study import Study

CONFIG: dict[str, Any] = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 12,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
    "sliding_window": 1024,
    "layer_types": ["sliding_attention", "full_attention"] * 6,
}
"""A model of which every key decides an answer."""


def of(study: Study) -> str:
    rows = plan(study)
    return digest_of([rows.blocks, rows.kinds])


@pytest.mark.slow
def test_whatever_changes_a_row_changes_the_digest() -> None:
    here = of(MIXED)
    changes: list[dict[str, Any]] = [
        {"batch": "1,8"},
        {"models": ("llama3.1-8b",)},
        {"sets": {"gpu.bandwidth": "1000GB/s"}},
        {"knobs": {"hot_share": "0.25,auto", "chunks": "1,16"}},
        {"band": 90.0},
    ]
    others = {of(replace(MIXED, **change)) for change in changes}
    assert len(others) == len(changes)
    assert here not in others
    assert here == of(MIXED)


def test_other_packages_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of("study")
    monkeypatch.setattr("nearkv.sweeps.jobs.plan.version", lambda package: "0")
    assert digest_of("study") != before


def test_each_edit_of_a_models_layers_is_noticed(tmp_path: Path) -> None:
    """20 edits, one key or one layer each; a window that was edited went unnoticed before."""
    file = tmp_path / "config.json"
    study = Study(("gpu",), (str(file),), context="64k")
    drawn = random.Random(1)

    def edited(config: dict[str, Any]) -> str:
        file.write_text(json.dumps(config))
        return of(study)

    before = edited(CONFIG)
    assert edited(dict(CONFIG)) == before
    for place in range(20):
        config = {**CONFIG, "layer_types": list(CONFIG["layer_types"])}
        key = list(CONFIG)[1 + place % (len(CONFIG) - 1)]
        if key == "layer_types":
            chosen = drawn.randrange(12)
            full = config[key][chosen] == "full_attention"
            config[key][chosen] = "sliding_attention" if full else "full_attention"
        elif key == "num_hidden_layers":
            config[key] = 12 + 2 * drawn.randrange(1, 20)
            config["layer_types"] = CONFIG["layer_types"][:2] * (config[key] // 2)
        elif key == "num_key_value_heads":
            config[key] = drawn.choice([1, 2, 4, 16])
        elif key == "num_attention_heads":
            config[key] = drawn.choice([8, 24, 32, 40])
        else:
            config[key] += drawn.randrange(1, 500)
        assert edited(config) != before, key


def test_another_source_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "costmodel").mkdir()
    formula = tmp_path / "costmodel" / "span.py"
    formula.write_text("seconds = 1")
    digest = package_digest.__wrapped__
    assert digest() == package_digest()
    monkeypatch.setattr("nearkv.sweeps.evaluate.provenance._PACKAGE_FOLDER", tmp_path)
    before = digest()
    assert digest() == before
    formula.write_text("seconds = 2")
    assert digest() != before

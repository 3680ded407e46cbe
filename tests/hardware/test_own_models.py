"""A model file of one's own: written from another model, checked as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import printed, refusal, succeed

from nearkv.hardware.catalog import load_llm, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.own import model_problems, new_model

ALIKE = [name for name in names("model") if not load_llm(name).layer_types]
"""Models whose layers are all alike, which a file of numbers can state."""


def test_a_new_model_is_the_one_it_starts_from(tmp_path: Path) -> None:
    assert len(ALIKE) > 20
    for name in ALIKE:
        path = tmp_path / "mine.toml"
        path.write_text(new_model("mine", name))
        assert model_problems(path) == []
        own, base = load_llm(str(path)), load_llm(name)
        for key in base.numbers.keys() - {"published", "published_active"}:
            assert own.numbers[key].si == pytest.approx(base.numbers[key].si), (name, key)


def test_a_model_whose_layers_differ_is_no_file_of_numbers() -> None:
    with pytest.raises(InputError, match=r"its layers differ, .* config\.json"):
        new_model("mine", "deepseek-v3")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = new_model("mine", "llama2-7b")
    path.write_text(text.replace("layers = 32", "layers = -3").replace("= 4096  # mo", "= [1] # "))
    layers, hidden = model_problems(path)
    assert layers.startswith(f"{path}: layers: '-3' must be")
    assert hidden.startswith(f"{path}: hidden")
    path.write_text(text.replace("kv_heads = 32", ""))
    (missing,) = model_problems(path)
    assert "kv_heads" in missing


def test_the_commands_write_and_check_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert succeed("models", "new", "my-model", "--from", "opt-30b").startswith("wrote my-model")
    assert succeed("models", "check", "my-model.toml") == "my-model.toml: nothing is wrong\n"
    assert "cannot be written (File exists)" in refusal("models", "new", "my-model")
    Path("my-model.toml").write_text('kind = "llm"\n')
    assert "my-model.toml: " in printed("models", "check", "my-model.toml", code=1)

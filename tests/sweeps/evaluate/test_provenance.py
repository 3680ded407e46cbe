"""Record that a table keeps of its question."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from nearkv.sweeps.evaluate.provenance import commit, package_digest, provenance, replacing
from nearkv.sweeps.explore.placement import find_placements
from nearkv.sweeps.study.study import Study, blocks


def test_provenance_names_the_choices_that_were_made() -> None:
    study = Study(("hilos",), ("opt-66b",), knobs={"writeback": "naive"})
    axes = provenance(blocks(study))["axes"]
    assert axes["writeback"] == ["naive"]
    assert axes["model"] == ["opt-66b"]


def test_the_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["nearkv", "sweep", "--model", "my model/it's.json"])
    assert shlex.split(provenance([])["command"]) == sys.argv


def test_two_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = []
    for folder, layers in (("first", 8), ("second", 16)):
        file = tmp_path / folder / "mine" / "config.json"
        file.parent.mkdir(parents=True)
        config = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": layers}
        config |= {"num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 1000}
        config |= {"torch_dtype": "float16", "max_position_embeddings": 4096}
        file.write_text(json.dumps(config))
        files.append(str(file))
    study = Study("hilos", files, 1, "1k", 2, platforms="t4-flexgen")
    models = provenance(blocks(study.but(platforms=())))["models"]
    assert [row["model"] for row in find_placements(study)] == files
    layers_of = {}
    for name, rows in models.items():
        layers_of[name] = [row["value"] for row in rows if row["key"] == "layers"]
    assert layers_of == {files[0]: [8], files[1]: [16]}


def test_a_file_takes_its_name_once_it_is_complete(tmp_path: Path) -> None:
    with replacing(tmp_path / "table.csv") as file:
        file.write("a\n")
        (being_written,) = tmp_path.iterdir()
        assert being_written.name.startswith(".table.csv.")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "a\n"


def test_a_table_names_the_code_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = provenance([])
    assert origin["digest"] == package_digest()
    (tmp_path / "hilos.toml").write_text("gemm = 0.7")
    monkeypatch.setattr("nearkv.sweeps.evaluate.provenance._PACKAGE_FOLDER", tmp_path)
    before = package_digest.__wrapped__()
    (tmp_path / "hilos.toml").write_text("gemm = 0.8")
    assert package_digest.__wrapped__() != before  # numbers count as formulas do
    monkeypatch.setenv("PATH", str(tmp_path))  # no git, as in most environments of a cluster
    assert commit() == ""

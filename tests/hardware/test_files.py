"""Every key of a file is read, one too many is refused; pipes and devices are not opened."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fuzz.judge import Outcome, run
from support.command_line import refusal

from nearkv.hardware.catalog import load_part, load_platform
from nearkv.hardware.errors import InputError

PLATFORM = """\
title = "my bed"
cite = "hilos"
base = "hilos-h100"
without = ["raid"]

[csd]
count = 4
price = "1500 USD"

[gpu_link]
part = "pcie-5.0-x16"
count = 2

[gpu]
part = "a100-80gb"
count = { value = 2, unit = "1", kind = "assumed", source = "user", at = "x", note = "y", \
range = [1, 3] }

[derate]
pcie = 0.6
"""
PART = """\
kind = "gpu"
title = "my GPU"
flops = "300 TFLOP/s"
memory = "96 GB"
bandwidth = "3 TB/s"
power = "300 W"
idle_power = "30 W"
price = "9000 USD"
"""
STUDY = """\
title = "my study"
cite = "hilos"
systems = ["hilos", "flexgen-ssd"]
model = ["opt-30b"]
batch = "3,5"
context = "9k"
output_tokens = 33
platform = "hilos-h100"

[set]
"host.memory" = "700GB"

[knob]
alpha = "0.3,0.4"
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 96,
    "num_hidden_layers": 12,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
MODEL = """\
kind = "llm"
title = "my model"
hub = "me/mine"
layers = 12
hidden = 1024
ffn = 4096
heads = 16
kv_heads = 4
head_size = 96
vocab = 32000
positions = 4096
longest = 4096
gated = 1
tied = 1
experts = 4
active_experts = 2
published = 688e6
"""
PIPES = (
    "validate --claims pipe.csv",
    "calibrate --measurements pipe.csv",
    "compare gpu --model gpt-175b --trace pipe.csv",
    "solve subbatch --model gpt-175b --requests pipe.csv",
    "estimate hilos --model pipe.json",
    "estimate hilos --model opt-30b --platform pipe.toml",
    "sweep pipe.toml",
    "report pipe.toml -o page.html",
    "pareto pipe.toml",
    "plot lines pipe.csv -o lines.svg",
)
LABELS = {"title", "cite", "hub"}
"""Keys for readers: catalogue pages and reports print them, nothing is computed from them."""
ASKED = "--batch 4 --context 8k --format json"
LINES = {
    "bed.toml": (
        f"compare hilos --model opt-30b --platform bed.toml {ASKED}",
        "hardware show bed.toml",
    ),
    "gpu.toml": (
        f"compare hilos --model opt-30b --part gpu=gpu.toml {ASKED}",
        "hardware show gpu.toml",
    ),
    "model.toml": (
        f"compare hilos --model model.toml {ASKED}",
        "models show model.toml",
    ),
    "study.toml": ("sweep study.toml -o rows.csv",),
    "config.json": (f"compare hilos --model config.json {ASKED}", "models show config.json"),
}


def answers(folder: Path, name: str, text: str) -> list[Outcome]:
    """Output of the lines of a file, printed and written, the file itself apart."""
    (folder / name).write_text(text)
    outcomes = []
    for line in LINES[name]:
        outcome = run(line.split(), seconds=60)
        outcome.files.pop(name)
        outcomes.append(outcome)
    return outcomes


def is_same(one: list[Outcome], other: list[Outcome]) -> bool:
    return all(mine.same_as(theirs) for mine, theirs in zip(one, other, strict=True))


def entries(text: str) -> list[str]:
    """Lines of a TOML file that state a key."""
    return [line for line in text.splitlines() if " = " in line]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bed.toml", PLATFORM),
        ("gpu.toml", PART),
        ("model.toml", MODEL),
        ("study.toml", STUDY),
    ],
)
@pytest.mark.slow
def test_no_key_of_a_file_is_unread(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = answers(tmp_path, name, text)
    assert [outcome.code for outcome in whole] == [0] * len(whole), whole
    unread = []
    for line in entries(text):
        fewer = text.replace(line + "\n", "", 1)
        if is_same(whole, answers(tmp_path, name, fewer)):
            unread.append(line.partition(" = ")[0])
    assert set(unread) <= LABELS
    for place in ("", *[line for line in text.splitlines() if line.startswith("[")]):
        more = text.replace(place, f"{place}\nbogus = 1\n", 1)
        for refused in answers(tmp_path, name, more):
            # a system of one's own may read a factor that the base lacks
            assert refused.code == (0 if place == "[derate]" else 2), place
            assert "bogus" in refused.err


@pytest.mark.slow
def test_no_key_of_a_config_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of no known meaning is a warning."""
    monkeypatch.chdir(tmp_path)
    whole = answers(tmp_path, "config.json", json.dumps(CONFIG))
    assert [outcome.code for outcome in whole] == [0] * len(whole), whole
    unread = []
    for key in CONFIG:
        fewer = {name: value for name, value in CONFIG.items() if name != key}
        if is_same(whole, answers(tmp_path, "config.json", json.dumps(fewer))):
            unread.append(key)
    assert unread == []
    for answer in answers(tmp_path, "config.json", json.dumps({**CONFIG, "bogus_heads": 3})):
        assert "bogus_heads" in answer.err


def test_no_pipe_is_waited_for_and_no_device_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is not a regular file"):
        load_part(str(pipe))
    link = tmp_path / "zero.toml"
    link.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is not a regular file"):
        load_platform(str(link))


@pytest.mark.parametrize("line", PIPES)
def test_no_option_waits_for_a_pipe(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("csv", "json", "toml"):
        os.mkfifo(f"pipe.{kind}")
    sentence = refusal(*line.split()).replace("not an ordinary", "not a regular")
    assert "is not a regular file" in sentence


@pytest.mark.parametrize("line", PIPES)
def test_no_option_reads_a_device_without_end(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("csv", "json", "toml"):
        Path(f"pipe.{kind}").symlink_to("/dev/zero")
    sentence = refusal(*line.split()).replace("not an ordinary", "not a regular")
    assert "is not a regular file" in sentence

"""Files of the user's that are wrong in many ways: each gets one sentence that says where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import nearkv
from nearkv.hardware.catalog import load_llm, load_part, load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.study_files import load_study

PART = 'kind = "gpu"\ntitle = "Mine"\nflops = "1 TFLOP/s"\nmemory = "80 GB"\n'
BASE = 'base = "hilos-a100"\n'
QUOTED = 'unit = "GB/s", kind = "datasheet", source = "user", at = "page 1"'

PARTS = {
    "": "states no part type",
    "kind = ": "not a valid TOML file",
    "kind = 'gpu'\nkind = 'gpu'": "not a valid TOML file",
    "\x00": "not a valid TOML file",
    "[" * 4000: "not a valid TOML file",
    "a = " + "9" * 6000: "not a valid TOML file",
    'kind = "gup"': "did you mean 'gpu'",
    'kind = ["gpu"]': "unknown part type",
    PART: "a gpu needs bandwidth",
    f'{PART}bandwidth = "10 GB"': "does not measure this",
    f'{PART}bandwidth = "fast"': "bandwidth",
    f"{PART}bandwidth = 10": "has no unit",
    f"{PART}bandwidth = true": "must be { value",
    f"{PART}bandwidth = []": "must be { value",
    f'{PART}bandwidth = "-1 GB/s"': "bandwidth",
    f'{PART}bandwidth = "0 GB/s"': "bandwidth",
    f'{PART}bandwidth = "nan GB/s"': "bandwidth",
    f'{PART}bandwidth = "inf GB/s"': "bandwidth",
    f'{PART}bandwidth = "1e99 GB/s"': "bandwidth",
    f'{PART}bandwidth = ""': "bandwidth",
    f"{PART}bandwidth = {{ value = 1 }}": "has no at, kind, source, unit",
    f'{PART}bandwidth = {{ value = "1", {QUOTED} }}': "value must be",
    f"{PART}bandwidth = {{ value = nan, {QUOTED} }}": "value must be",
    f"{PART}bandwidth = {{ value = {'9' * 400}, {QUOTED} }}": "an integer of 400 digits",
    f"{PART}bandwidth = {{ value = 1, range = [0, {'9' * 400}], {QUOTED} }}": "of 400 digits",
    f"{PART}bandwidth = {{ value = -1, {QUOTED} }}": "value must be",
    f"{PART}bandwidth = {{ value = 1, extra = 2, {QUOTED} }}": "unknown field 'extra'",
    f"{PART}bandwidth = {{ value = 1, {QUOTED} }}".replace("datasheet", "guess"): "kind 'guess'",
    f"{PART}bandwidth = {{ value = 1, {QUOTED} }}".replace('"user"', '"web"'): "source 'web'",
    f"{PART}bandwidth = {{ value = 1, {QUOTED} }}".replace("page 1", ""): "at must say where",
    f"{PART}bandwidth = {{ value = 1, {QUOTED} }}".replace("datasheet", "assumed"): "note and a",
    f'{PART}bandwidth = "1 TB/s"\nbandwith = "1 TB/s"': "did you mean 'bandwidth'",
    f'{PART}bandwidth = "1 TB/s"\npower = "1 W"\nidle_power = "2 W"': "idle_power",
    f'{PART}bandwidth = "1 TB/s"\ncount = 1.5': "whole number",
}

PLATFORMS = {
    'base = "nowhere"': "unknown platform 'nowhere'",
    'base = "mine.toml"': "is its own base",
    f"{BASE}colour = 1": "unknown key 'colour'",
    f'{BASE}cite = "web"': "unknown source 'web'",
    f'{BASE}without = "gpu"': "must list roles of the base",
    f'{BASE}without = ["tpu"]': "must list roles of the base",
    f'{BASE}[gpu]\npart = "h300"\ncount = 1': "unknown part 'h300'",
    f'{BASE}[gpu]\npart = "smartssd"\ncount = 1': "a part of type csd; this role takes gpu",
    f'{BASE}[gpu]\npart = "h200-sxm"': "needs a count",
    f'{BASE}[gpu]\npart = "./none.toml"\ncount = 1': "does not exist",
    f"{BASE}[gpu]\ncount = -1": "zero or more",
    f"{BASE}[gpu]\ncount = 0.5": "whole number",
    f"{BASE}[gpu]\ncuont = 1": "did you mean 'count'",
    f"{BASE}[csd]\ncount = nan": "count",
    f'{BASE}[csd]\np2p_read = "12 GHz"': "does not measure this",
    f"{BASE}[derate]\ngemm = 2": "at most 1",
    f'{BASE}[precision]\nkv = "3 bit"': "kv",
    '[tpu]\nflops = "1 TFLOP/s"': "names no part",
}

STUDIES = {
    'systems = ["hilos"]': "needs systems",
    'systems = ["hilos"]\nmodel = ["opt-66b"]\nplugins = ["x.py"]': "did you mean 'plugin'",
    'systems = ["hilos"]\nmodel = ["opt-66b"]\nset = 3': "must be a table",
    'systems = ["hilos"]\nmodel = ["opt-66b"]\npart = "gpu"': "must be a table",
}

LLMS = Path(__file__).parents[2] / "costmodel" / "llms"
MODEL = (LLMS / "llama-13b.toml").read_text()

MODELS = {
    PART: "is not a model",
    'kind = "llm"\nconfig = {}': "quotes a config; name its source",
    MODEL.replace("layers", "layer"): "did you mean 'layers'",
    f"{MODEL}layers = 3": "not a valid TOML file",
    f"{MODEL}[layers]\nvalue = 1": "not a valid TOML file",
    re.sub("(?m)^heads.*", "heads = 7", MODEL): "must be a multiple of kv_heads",
    re.sub("(?m)^experts.*", "experts = 0", MODEL): "must be more than zero",
    re.sub("(?m)^vocab.*", "vocab = '32 GB'", MODEL): "does not measure this",
}

ALL: list[tuple[Callable[[str], object], str, str]] = [
    *((load_part, text, words) for text, words in PARTS.items()),
    *((load_platform, text, words) for text, words in PLATFORMS.items()),
    *((load_llm, text, words) for text, words in MODELS.items()),
    *((load_study, text, words) for text, words in STUDIES.items()),
]


@pytest.mark.parametrize("case", range(len(ALL)))
def test_a_hostile_file_gets_one_sentence_with_its_name(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, text, words = ALL[case]
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load("mine.toml")
    sentence = str(caught.value)
    assert words in sentence, sentence
    assert re.match(r"mine\.toml: ", sentence), sentence
    assert "\n" not in sentence


def test_the_file_at_fault_is_named(tmp_path: Path) -> None:
    """Of a platform and its base, and of a model's config."""
    base = tmp_path / "base.toml"
    base.write_text('base = "hilos-a100"\n\n[gpu]\ncount = -1\n')
    own = tmp_path / "own.toml"
    own.write_text(f'title = "Own"\nbase = "{base}"\n')
    with pytest.raises(InputError, match=r"base\.toml: gpu: count: "):
        load_platform(str(own))
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": "two"}')
    with pytest.raises(InputError, match=r"config\.json: num_hidden_layers must be"):
        load_llm(str(config))


def test_what_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    """A sparse gigabyte is not read; neither is a folder, a device or a file of bytes."""
    large, folder, bytes_ = (tmp_path / f"{name}.toml" for name in ("large", "folder", "bytes"))
    with large.open("wb") as file:
        file.truncate(1 << 30)
    folder.mkdir()
    bytes_.write_bytes(b"\xff\xfe")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name, words in (
        ("large", "larger than 1 MiB"),
        ("folder", "not a regular file"),
        ("zero", "not a regular file"),
        ("bytes", "not a valid TOML file"),
    ):
        with pytest.raises(InputError, match=words):
            load_part(str(tmp_path / f"{name}.toml"))


def test_a_part_without_idle_power_leaves_energy_blank(tmp_path: Path) -> None:
    """A missing number is not taken as another: no energy, and the note says why."""
    file = tmp_path / "mine.toml"
    file.write_text(f'{PART}bandwidth = "1 TB/s"\npower = "300 W"\n')
    point = nearkv.compare("hilos", "opt-66b", parts={"gpu": str(file)}).iloc[0]
    assert point["energy_j_tok"] != point["energy_j_tok"]
    assert "no energy: gpu states no idle_power" in point["note"]

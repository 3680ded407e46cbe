"""Specifications: every number sourced, every source used, every fault one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import nearkv
import nearkv.sweeps  # owner of the traces
from nearkv.hardware.catalog import Part, load_llm, load_part, load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.formats import formats
from nearkv.hardware.schema import sources
from nearkv.hardware.server import load_server
from nearkv.hardware.units import parse, unit_of
from nearkv.sweeps.study.study_files import load_study

GOOD = '{ value = 1, unit = "W", kind = "paper", source = "hilos", at = "Table 1" }'
CHASSIS = f'kind = "chassis"\ntitle = "Test"\nprice = {GOOD.replace("W", "USD")}\n'


def everything() -> list[Part]:
    parts = [load_part(name) for name in names("part")] + [
        load_llm(name) for name in names("model")
    ]
    parts += [load_part(name, "trace") for name in names("trace")]
    return parts + [
        part for name in names("platform") for part in load_platform(name).roles.values()
    ]


def test_every_number_has_a_source_and_an_address() -> None:
    for part in everything():
        for key, number in part.numbers.items():
            assert number.source in sources(), (part.name, key)
            assert number.at, (part.name, key)
            assert number.kind not in ("assumed", "fitted") or (number.note and number.range_si), (
                part.name,
                key,
            )


def test_every_source_is_used() -> None:
    used = {number.source for part in everything() for number in part.numbers.values()}
    cited = {load_platform(name).cite for name in names("platform")}
    papers = {"hilos", "inf2", "hillinfer", "l3", "h2m2", "flexgen"}
    by_hand = {"user"}  # what a user sets or fits
    widths = {number.source for numbers in formats().values() for number in numbers.values()}
    slots = {slot.source for name in names("server") for slot in load_server(name).slots.values()}
    assert set(sources()) - used - cited - papers - by_hand - widths - slots == set()


def test_every_part_is_of_a_kind_that_some_role_takes() -> None:
    """A part that no platform names is reached by `--part ROLE=PART`."""
    taken = {part.type for name in names("platform") for part in load_platform(name).roles.values()}
    assert {load_part(name).type for name in names("part")} <= {*taken, "server"}


def test_a_device_states_its_idle_and_full_power_or_neither() -> None:
    """With one of them alone the energy of a run would count the other as nothing."""
    for part in map(load_part, names("part")):
        if part.type in ("gpu", "host", "drive", "csd", "memory"):
            assert ("power" in part.numbers) == ("idle_power" in part.numbers), part.name


def test_peak_rates_are_dense_at_every_width() -> None:
    """Tensor cores double their rate where operands halve; a sparse figure would double it again.

    Two exceptions at 4 bits are of the makers: Blackwell Ultra (3.1 times its 8-bit rate), and the
    GeForce, which halves 16 and 8 bits alone where sums are kept in 32 bits.
    """
    for part in map(load_part, names("part")):
        rates = [part.si[key] for key in ("flops", "flops_8bit", "flops_4bit") if key in part.si]
        if part.type != "gpu" or len(rates) < 2:
            continue
        assert rates[1] / rates[0] == pytest.approx(2, rel=0.03), part.name
        for narrow, wide in zip(rates[2:], rates[1:], strict=False):
            assert 1.9 < narrow / wide < 4.1, part.name


def test_a_paper_fits_at_most_six_numbers() -> None:
    for name in names("platform"):
        fitted = [
            n
            for part in load_platform(name).roles.values()
            for n in part.numbers.values()
            if n.kind == "fitted"
        ]
        assert len(fitted) <= 6, name


@pytest.mark.parametrize(
    ("text", "dimension", "size"),
    [
        ("GB/s", "B/s", 1e9),
        ("GiB", "B", 2.0**30),
        ("TFLOP/s", "FLOP/s", 1e12),
        ("us", "s", 1e-6),
        ("Gb/s", "B/s", 1.25e8),
        ("bit", "B", 0.125),
        ("mm2", "m2", 1e-6),
        ("USD/GB", "USD/B", 1e-9),
        ("MHz", "1/s", 1e6),
        ("Gb/s", "B/s", 1e9 / 8),
        ("Gbps", "B/s", 1e9 / 8),
        ("GBps", "B/s", 1e9),
        ("1", "1", 1.0),
        ("PB", "B", 1e15),
        ("ms", "s", 1e-3),
        ("GMAC/s", "FLOP/s", 2e9),
        ("%", "1", 0.01),
    ],
)
def test_units(text: str, dimension: str, size: float) -> None:
    found, scale = unit_of(text)
    assert found == dimension
    assert scale == pytest.approx(size)


@pytest.mark.parametrize("text", ["parsecs", "", "GB/", "kGB", "m%", "B/s/s"])
def test_what_is_no_unit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="unknown unit"):
        unit_of(text)


@pytest.mark.parametrize(
    ("text", "unit", "problem"),
    [
        ("3 GB", "FLOP/s", "does not measure"),
        ("3", "B/s", "no unit"),
        ("nan", "1", "finite"),
        ("-1", "1", "zero or more"),
        ("1e400", "1", "finite"),
        ("inf", "1", "finite"),
        ("three", "1", "not a number"),
        ("3 elephants", "B", "unknown unit"),
    ],
)
def test_what_a_user_writes_wrong_is_one_sentence(text: str, unit: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        parse(text, unit, "--set gpu.flops")
    assert "\n" not in str(caught.value)
    assert "--set gpu.flops" in str(caught.value) or "unknown unit" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (CHASSIS.replace(', source = "hilos"', ""), "has no source"),
        (CHASSIS.replace('"hilos"', '"nobody"'), "unknown source 'nobody'"),
        (CHASSIS + f"price = {GOOD}\n", "not a valid TOML file"),
        (CHASSIS.replace('"USD"', '"W"'), "needs 'USD'"),
        (CHASSIS.replace('"paper"', '"guess"'), "unknown kind 'guess'"),
        (CHASSIS.replace('"paper"', '"assumed"'), "needs a note and a range"),
        (CHASSIS.replace("value = 1", "value = nan"), "finite"),
        (CHASSIS.replace("value = 1", "value = -1"), "zero or a finite number"),
        (CHASSIS.replace("value = 1", "value = true"), "finite number"),
        (CHASSIS.replace("price", "prize"), "did you mean 'price'"),
        (CHASSIS.replace('at = "Table 1"', 'at = "Table 1", colour = 3'), "unknown field 'colour'"),
        (CHASSIS.replace('"chassis"', '"casis"'), "did you mean 'chassis'"),
        ('kind = "link"\n', "needs bandwidth"),
        ("a" * (2 << 20), "larger than 1 MiB"),
        ("a = [" * 5000, "not a valid TOML file"),
    ],
)
def test_a_broken_part_is_one_sentence_that_names_the_file(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "part.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem) as caught:
        load_part(str(file))
    assert str(file) in str(caught.value)


def test_a_part_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "part.toml"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not a valid TOML"):
        load_part(str(file))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[gpu]\npart = "a100-40gb"\n', "needs a count"),
        (f"[gpu]\ncount = {GOOD.replace('W', '1')}\n", "names no part"),
        (f'[gpu]\npart = "a100"\ncount = {GOOD.replace("W", "1")}\n', "unknown part 'a100'"),
        ('colour = "red"\n', "unknown key 'colour'"),
        (
            '[gpu]\npart = "a100-40gb"\n'
            f"count = {GOOD.replace('W', '1').replace('= 1,', '= 1.5,')}\n",
            "whole number",
        ),
        (
            f"[precision]\nkv = {GOOD.replace('W', 'bit').replace('value = 1', 'value = 16')}\n",
            "needs weight, activation",
        ),
    ],
)
def test_a_broken_platform_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "bed.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem):
        load_platform(str(file))


def test_a_platform_may_not_be_its_own_base(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(f'base = "{two}"\n')
    two.write_text(f'base = "{one}"\n')
    with pytest.raises(InputError, match="its own base"):
        load_platform(str(one))


def test_a_platform_builds_on_its_base() -> None:
    a100, h100 = load_platform("hilos-a100"), load_platform("hilos-h100")
    assert h100.roles["csd"] == a100.roles["csd"]
    assert h100.roles["gpu"].name == "h100-80gb"
    assert "chassis" not in load_platform("hilos-isp").roles


def test_an_override_replaces_one_number_and_says_so() -> None:
    changed = load_platform("hilos-a100").override("csd.count", 16.0)
    assert changed.machine()["csd"].count == 16.0
    assert changed.roles["csd"].numbers["count"].source == "user"
    assert (
        changed.machine()["csd"].p2p_read == load_platform("hilos-a100").machine()["csd"].p2p_read
    )


def test_catalogue_names_are_kebab_case() -> None:
    for what in ("part", "platform", "model", "trace", "study"):
        for name in names(what):
            assert name == name.lower()
            assert "_" not in name


def test_a_platform_without_a_number_points_to_the_papers_own() -> None:
    with pytest.raises(
        InputError,
        match=r"'inf2-a100' has no host.kv_memory, which this system needs; use the plat",
    ):
        _ = load_platform("inf2-a100").machine().host.kv_memory


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
    "": "is empty; name a base",
    f"{BASE}colour = 1": "unknown key 'colour'",
    f'{BASE}cite = "web"': "unknown source 'web'",
    f'{BASE}without = "gpu"': "must list roles of the base",
    f'{BASE}without = ["tpu"]': "must list roles of the base",
    f'{BASE}[gpu]\npart = "h300"\ncount = 1': "unknown part 'h300'",
    f'{BASE}[gpu]\npart = "smartssd"\ncount = 1': "a part of type csd; this role takes gpu",
    '[gpu]\npart = "h200-sxm"': "needs a count",
    f'{BASE}[gpus]\npart = "h200-sxm"\ncount = 1': "unknown role 'gpus'; did you mean 'gpu'",
    f'{BASE}[gppu]\npart = "h200-sxm"': "unknown role 'gppu'; did you mean 'gpu'",
    f'{BASE}without = ["csd"]\n[csd]\ncount = 3': "csd: names no part",
    f"{BASE}[nvlink]\ncount = 4": "one of nvlink3, nvlink4, nvlink5, nvlink-c2c, nvlink4-h800, inf",
    f'{BASE}[gpu]\nbandwidth = "400 gbps"': "Gb/s and Gbps count bits",
    f"kind = 'gpu'\n{'.'.join('a' * 3000)} = 1": "not a valid TOML file",
    f'{BASE}[gpu]\npart = "./none.toml"\ncount = 1': "does not exist",
    f"{BASE}[gpu]\ncount = -1": "zero or more",
    f"{BASE}[gpu]\ncount = 0.5": "whole number",
    f"{BASE}[gpu]\ncuont = 1": "did you mean 'count'",
    f"{BASE}[csd]\ncount = nan": "count",
    f'{BASE}[csd]\np2p_read = "12 GHz"': "does not measure this",
    f"{BASE}[derate]\npcie = 2": "at most 1",
    f'{BASE}[precision]\nkv = "64 bit"': "kv",
    '[tpu]\nflops = "1 TFLOP/s"': "names no part",
}

STUDIES = {
    'systems = ["hilos"]': "needs systems",
    'systems = ["hilos"]\nmodel = ["opt-66b"]\nplugins = ["x.py"]': "did you mean 'plugin'",
    'systems = ["hilos"]\nmodel = ["opt-66b"]\nset = 3': "set: give names and their values",
    'systems = ["hilos"]\nmodel = ["opt-66b"]\npart = "gpu"': "part: give names and their values",
}

LLMS = Path(__file__).parents[2] / "costmodel" / "llms"
MODEL = (LLMS / "llama-13b.toml").read_text()

MODELS = {
    PART: "is not a model",
    'kind = "llm"\nconfig = {}': "quotes a config; name its source",
    'kind = "llm"\ncite = "hilos"\nconfig = 5': "config = 5 must be a table",
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
    assert re.match(r"mine\.toml(:| states) ", sentence), sentence
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
    point = nearkv.compare("hilos", "opt-66b", parts={"gpu": str(file)}, empty=True).iloc[0]
    assert point["energy_j_tok"] != point["energy_j_tok"]
    assert "no energy: gpu states no idle_power" in point["note"]


def test_a_hub_name_finds_the_catalogues_model_or_says_where_to_save_its_config() -> None:
    assert load_llm("meta-llama/Llama-3.1-8B").name == "llama3.1-8b"
    assert load_llm("deepseek-ai/deepseek-v3").name == "deepseek-v3"
    with pytest.raises(InputError, match=r"save its config\.json as Qwen4-1T/config\.json"):
        load_llm("Qwen/Qwen4-1T")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3-31b", ""),
        ("qwen-72b", "qwen2.5-72b"),
        ("opt-7b", ""),  # 6.7 is not 7
        ("llama3-70b", "llama3.1-70b"),
        ("qwen3-32", "qwen3-32b"),
        ("opt-65b", ""),
        ("gptoss-120b", "gpt-oss-120b"),
        # of the size of longchat-7b and mistral-7b, and of no family of the catalogue
        ("falcon-11b", ""),
        ("vicuna-7b", ""),
        ("lama3.1-8b", "llama3.1-8b"),
        ("Gemma-3-27B", "gemma3-27b"),
    ],
)
def test_hints_never_cross_sizes_or_families(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"unknown model '{name}'") as problem:
        load_llm(name)
    assert (f"did you mean {hint!r}" in str(problem.value)) == bool(hint)

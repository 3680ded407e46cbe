"""A user's own parts, platforms and models: short forms, parts beside the file, new files."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import numpy as np
import pytest
from support.command_line import printed, refusal, succeed

from nearkv.hardware.catalog import load_llm, load_part, load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.own import key_rows, model_problems, new_model, new_platform, problems
from nearkv.hardware.schema import STATED_FACTORS, keys_of
from nearkv.hardware.units import parse
from nearkv.sweeps.commands.files import write_new
from nearkv.sweeps.evaluate.catalogue import readers
from nearkv.sweeps.study.bands import draws_of
from nearkv.sweeps.study.own_systems import new_system

DOCS = Path(__file__).parents[2] / "docs"
MINE = """\
base = "hilos-h100"

[csd]
count = 4
p2p_read = "12 GB/s"
price = "1500 USD"

[gpu_link]
part = "pcie-5.0-x16"
count = 1

[derate]
pcie = 0.6
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def test_a_role_of_the_base_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    mine, base = load_platform(write(tmp_path, MINE)), load_platform("hilos-h100")
    csd = mine.roles["csd"].si
    assert (csd["count"], csd["p2p_read"], csd["price"]) == (4, 12e9, 1500)
    changed = {"count", "p2p_read", "price"}
    for key, value in base.roles["csd"].si.items():
        assert key in changed or csd[key] == value
    assert mine.roles["derate"].si == {**base.roles["derate"].si, "pcie": 0.6}
    assert mine.roles["gpu_link"].si["bandwidth"] == 63e9
    assert mine.roles["host"] == base.roles["host"]


def test_a_short_form_names_the_file_as_its_source(tmp_path: Path) -> None:
    number = load_platform(write(tmp_path, MINE)).roles["csd"].numbers["p2p_read"]
    assert (number.source, number.kind) == ("user", "assumed")
    assert number.at.endswith("mine.toml: csd: p2p_read = 12 GB/s")
    assert (number.value, number.unit) == (12.0, "GB/s")  # as people read it, not 12000000000 B/s


def test_what_is_stated_alone_has_the_range_of_its_kind(tmp_path: Path) -> None:
    """Peaks, counts and memory are exact; a share ends at 1, and a range of one's own is kept."""
    text = MINE.replace("pcie = 0.6", "pcie = 0.9").replace(
        "count = 4", 'count = 4\nmemory_bandwidth = "77 GB/s"\nmemory = "8 GB"'
    )
    own = 'unit = "GB/s", source = "user", at = "fio"'
    ranged = f"""
file_read = {{ value = 8, {own}, kind = "measured", range = [7.8, 8.1] }}
read = {{ value = 9, {own}, kind = "datasheet" }}
"""
    platform = load_platform(write(tmp_path, text.replace("\n\n[gpu_link]", f"{ranged}[gpu_link]")))
    csd = platform.roles["csd"].numbers
    assert csd["p2p_read"].range_si == pytest.approx((0.7 * 12e9, 1.4 * 12e9))
    assert csd["price"].range_si == pytest.approx((0.55 * 1500, 1.35 * 1500))
    assert csd["file_read"].range_si == (7.8e9, 8.1e9)
    assert platform.roles["derate"].numbers["pcie"].range_si == pytest.approx((0.63, 1.0))
    for exact in ("count", "memory", "memory_bandwidth", "read"):
        assert csd[exact].range_si is None, exact
    drawn = draws_of(platform, stated=["csd.p2p_read"])
    assert {"csd.file_read", "derate.pcie"} <= drawn.keys()
    assert drawn.keys().isdisjoint({"csd.p2p_read", "csd.read", "csd.count"})


@pytest.mark.parametrize("kind", STATED_FACTORS)
def test_the_range_of_a_kind_is_usual_in_the_catalogue(kind: str) -> None:
    """Each end lies between the quartiles of the factors of that kind, and `own.md` prints it."""
    factors = set()
    for name in names("platform"):
        for part in load_platform(name).roles.values():
            for key, number in part.numbers.items():
                is_kind = keys_of(part.type, [key])[key].factors == STATED_FACTORS[kind]
                if is_kind and number.range and number.value:
                    factors.add(tuple(bound / number.value for bound in number.range))
    ends = np.array(sorted(factors))
    first, third = np.quantile(ends, [0.25, 0.75], axis=0)
    low, high = STATED_FACTORS[kind]
    assert (first <= (low, high)).all()
    assert ((low, high) <= third).all()
    row = rf"\| {kind},.* \| {low:g} to {high:g} \|"
    assert re.search(row, (DOCS / "own.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('p2p_read = "12"', "'12' has no unit"),
        ("p2p_read = 12", "'12' has no unit"),
        ('p2p_read = "12 GB"', "does not measure this"),
        ("count = 2.5", "must be a whole number"),
        ("count = -1", "zero or more"),
        ("count = true", "must be { value"),
        ("cuont = 4", "did you mean 'count'"),
    ],
)
def test_a_wrong_short_form_gets_a_sentence(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"mine\.toml: csd") as caught:
        load_platform(write(tmp_path, f'base = "hilos-a100"\n[csd]\n{line}\n'))
    assert problem in str(caught.value)


def test_a_part_of_a_file_stands_where_one_of_the_command_line_does(tmp_path: Path) -> None:
    """The place keeps its latencies, whoever fills it; launches come with the chip."""
    text = 'base = "hgx-h200"\n[gpu]\npart = "b200-sxm"\n[nvlink]\npart = "nvlink5"\n'
    swapped = load_platform("hgx-h200")
    for role, name in (("gpu", "b200-sxm"), ("nvlink", "nvlink5")):
        swapped = swapped.with_part(role, load_part(name), name)
    assert load_platform(write(tmp_path, text)).roles == swapped.roles
    assert "latency" in swapped.roles["nvlink"].si
    assert swapped.roles["gpu"].si["launch"] == load_part("b200-sxm").si["launch"]


def test_a_rate_of_the_base_does_not_survive_a_stated_one(tmp_path: Path) -> None:
    """A machine of 57 TFLOP/s runs no 8-bit products at the 250 of the machine it starts from."""
    slower = 'base = "dgx-spark"\n[gpu]\nflops = "57 TFLOP/s"\n'
    with pytest.warns(match="gpu: flops is stated, flops_8bit and flops_4bit is not"):
        gpu = load_platform(write(tmp_path, slower)).roles["gpu"].si
    assert gpu["flops"] == 57e12
    assert not {"flops_8bit", "flops_4bit"} & gpu.keys()
    with pytest.warns(match="flops_4bit is not"):
        both = load_platform(write(tmp_path, f'{slower}flops_8bit = "114 TFLOP/s"\n'))
    assert both.roles["gpu"].si["flops_8bit"] == 114e12


def test_a_role_of_ones_own_is_free_and_a_misspelt_one_is_not(tmp_path: Path) -> None:
    def with_role(role: str) -> str:
        return write(tmp_path, f'base = "hilos-a100"\n[{role}]\npart = "pm9a3"\ncount = 1\n')

    for free in ("expander", "ssd2"):
        assert free in load_platform(with_role(free)).roles
    for typed, role in (("ssds", "ssd"), ("raids", "raid")):
        (sentence,) = problems(Path(with_role(typed)))
        assert f"unknown role '{typed}'; did you mean '{role}'?" in sentence


def test_a_file_in_place_of_the_catalogues_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts").mkdir()
    slow = 'kind = "link"\ntitle = "Link"\nbandwidth = "1 GB/s"\n'
    write(tmp_path / "parts", slow, "pcie-4.0-x16.toml")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(match=r"parts/pcie-4\.0-x16\.toml stands in for the part 'pcie-4\.0-x16'"):
        assert load_platform("hilos-a100").roles["gpu_link"].si["bandwidth"] == 1e9


def test_a_check_names_the_key_of_all_that_is_wrong(tmp_path: Path) -> None:
    text = 'base = "hilos-a100"\n[gpu]\ncount = -1\n[csd]\ncount = 0.5\nread = "1 GHz"\n'
    sentences = problems(Path(write(tmp_path, text)))
    keys = [sentence.split(": ")[1:3] for sentence in sentences]
    assert keys == [["gpu", "count"], ["csd", "count"], ["csd", "read"]]


@pytest.mark.parametrize("folder", [".", "parts"])
def test_a_part_is_found_beside_its_platform(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    link = 'kind = "link"\ntitle = "My link"\nbandwidth = "100 GB/s"\n'
    write(tmp_path / folder, link, "fast.toml")
    text = 'base = "hilos-a100"\n[gpu_link]\npart = "fast"\ncount = 1\n'
    assert load_platform(write(tmp_path, text)).roles["gpu_link"].si["bandwidth"] == 100e9


def test_parts_are_found_by_name_in_folders_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, rate in (("shared", 100), ("here", 50)):
        (tmp_path / folder / "parts").mkdir(parents=True)
        text = f'kind = "link"\ntitle = "Link"\nbandwidth = "{rate} GB/s"\n'
        write(tmp_path / folder / "parts", text, f"{folder}-link.toml")
        write(tmp_path / folder / "parts", text, "both.toml")
    monkeypatch.chdir(tmp_path / "here")
    assert load_part("here-link").si["bandwidth"] == 50e9
    with pytest.raises(InputError, match="unknown part 'shared-link'"):
        load_part("shared-link")
    monkeypatch.setenv("NEARKV_PATH", str(tmp_path / "shared"))
    assert load_part("shared-link").si["bandwidth"] == 100e9
    assert load_part("both").si["bandwidth"] == 100e9
    assert load_part("pcie-5.0-x16").si["bandwidth"] == 63e9


def test_every_key_of_a_kind_is_told_with_its_unit() -> None:
    rows = {row["key"]: row for row in key_rows("gpu")}
    assert (rows["bandwidth"]["unit"], rows["bandwidth"]["needed"]) == ("B/s", "yes")
    assert (rows["price"]["needed"], rows["price"]["usual"]) == ("no", "1 USD to 1e+06 USD")
    with pytest.raises(InputError, match="did you mean 'gpu'"):
        key_rows("gpus")
    factors = {row["key"] for row in key_rows("derate")}
    for platform in map(load_platform, names("platform")):
        if "derate" in platform.roles:
            assert platform.roles["derate"].numbers.keys() <= factors, platform.name


def test_a_new_platform_works_as_it_is_and_uncommented(tmp_path: Path) -> None:
    base = load_platform("hilos-a100")
    text = new_platform("mine", "hilos-a100")
    assert load_platform(write(tmp_path, text)).roles == base.roles
    whole = "\n".join(line.removeprefix("# ") for line in text.splitlines()[3:])
    roles = load_platform(write(tmp_path, whole, "whole.toml")).roles
    for role, part in base.roles.items():
        assert roles[role].si == pytest.approx(part.si), role


def test_a_part_is_not_a_platform_to_start_from() -> None:
    with pytest.raises(InputError, match=r'rtx-4090: is a part.*write part = "rtx-4090" below its'):
        new_platform("mine", "rtx-4090")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    csd = '[csd]\npart = "smartssd"\ncount = 2.5\nread = "3"\n'
    text = f'base = "hilos-a100"\n{csd}[derate]\npcie = 2\n'
    sentences = problems(Path(write(tmp_path, text)))
    assert len(sentences) == 3
    for words in ("csd: count: '2.5' must be a whole", "'3' has no unit", "must be at most 1"):
        assert any(words in sentence for sentence in sentences)
    assert problems(Path(write(tmp_path, MINE))) == []


@pytest.mark.slow
def test_a_number_names_the_systems_that_read_it() -> None:
    """INF²'s kernel attends in tiles, HillInfer's scores; FLEX(DRAM) has plain drives alone.

    `endurance_requests` of hilos divides what the drives may write by what a request writes.
    """
    by_key = readers("csd")
    assert by_key["kernel_tiled"] == ["inf2"]
    assert by_key["kernel_scores"] == ["hillinfer"]
    assert {"hillinfer", "hilos", "inf2"} <= set(by_key["p2p_read"])
    assert not any("flexgen-dram" in names for names in by_key.values())
    assert "hilos" in by_key["endurance"]
    assert "flexgen-dram" in readers("gpu")["memory"]


def test_a_new_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """Where it does not fit, no empty one is left; one that exists stays as it is."""
    file = tmp_path / "mine.toml"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            write_new(file, "a = 1\n" * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
    write_new(file, "a = 1\n")
    with pytest.raises(InputError, match="File exists"):
        write_new(file, "a = 2\n")
    assert file.read_text() == "a = 1\n"


def test_a_new_system_has_a_name_of_its_own() -> None:
    with pytest.raises(InputError, match="'hilos': exists already; choose another name"):
        new_system("hilos")


def test_an_example_of_a_number_has_the_unit_it_is_stated_in() -> None:
    with pytest.raises(InputError, match="'8' has no unit; write it like 16bit"):
        parse("8", "bit", "precision.kv")


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


def test_all_that_is_wrong_with_a_model_is_said_at_once(tmp_path: Path) -> None:
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
    assert succeed("models", "check", "my-model.toml") == "my-model.toml: no errors\n"
    assert "cannot be written (File exists)" in refusal("models", "new", "my-model")
    Path("my-model.toml").write_text('kind = "llm"\n')
    assert "my-model.toml: " in printed("models", "check", "my-model.toml", code=1)

"""Impossible numbers are refused and odd ones warned of, wherever they come from."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import nearkv.sweeps  # noqa: F401  # owner of the traces
from nearkv.hardware.catalog import load_llm, load_part, load_platform
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.hardware.files import names
from nearkv.hardware.schema import PART_TYPES, RELATIONS, ROLES
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.explore.hardware import find_hardware
from nearkv.sweeps.study.study import Study

PIM = Study(("rank-pim",), ("gpt-175b",), "64", "4k", "512")


def number(value: float, unit: str) -> str:
    return f'{{ value = {value}, unit = "{unit}", kind = "paper", source = "l3", at = "Table 2" }}'


def with_sets(**sets: str) -> Study:
    named = {address.replace("__", "."): text for address, text in sets.items()}
    return Study(PIM.systems, PIM.models, PIM.batch, PIM.context, PIM.output_tokens, sets=named)


# A refresh of 8 us in an interval of 7.86 us left the banks less than no time: total_s was -23,331.
@pytest.mark.parametrize("refresh", ["8us", "350us", "350ns,8us"])
def test_a_refresh_is_shorter_than_its_interval(refresh: str) -> None:
    with pytest.raises(InputError, match=r"refresh, .* us, must be below dimm\.refresh_interval"):
        table(with_sets(dimm__refresh=refresh))


def test_a_relation_holds_at_each_combination_of_two_axes() -> None:
    with pytest.raises(InputError, match="must be below"):
        table(with_sets(dimm__refresh="350ns,900ns", dimm__refresh_interval="1us,800ns"))
    assert len(table(with_sets(dimm__refresh="350ns,400ns", dimm__refresh_interval="3us,4us"))) > 0


def test_no_idle_part_draws_more_than_a_working_one() -> None:
    with pytest.raises(
        InputError, match=r"dimm\.idle_power, 3 W, must be at most dimm\.power, 0 W"
    ):
        table(with_sets(dimm__power="0W"))


@pytest.mark.parametrize(
    ("address", "text", "problem"),
    [
        ("dimm__refresh_interval", "0s", "must be more than zero"),
        ("gpu__memory", "1e10PB", "must be at most 1e.10 GB"),
        ("gpu__bandwidth", "1e20GB/s", "must be at most"),
        ("gpu__count", "2.5", "must be a whole number"),
        ("gpu__gemm", "1.5", "must be at most 1"),
    ],
)
def test_what_no_machine_has_is_refused(address: str, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        table(with_sets(**{address: text}))


def test_what_is_odd_is_warned_of_and_answered() -> None:
    with pytest.warns(NearkvWarning, match=r"dimm\.refresh = 3 us is outside .* 0\.05 us to 1 us"):
        assert table(with_sets(dimm__refresh="3us"))["status"][0] == "ok"


def test_a_platform_object_is_checked_as_an_option_is() -> None:
    machine = load_platform("dgx-a100-pim")
    with pytest.raises(InputError, match="must be below"):
        machine.override("dimm.refresh", 8e-6)
    with pytest.raises(InputError, match="must be a whole number"):
        machine.override("gpu.count", 2.5)


def test_a_search_stays_within_what_can_be() -> None:
    with pytest.raises(InputError, match="must be below"):
        find_hardware(PIM, "dimm.refresh=100ns:10us", ["step_ms<=1000"])


def test_a_file_of_ones_own_is_checked_as_ours_are(tmp_path: Path) -> None:
    text = Path("hardware/parts/ddr4-dimm-pim.toml").read_text()
    own = tmp_path / "mine.toml"
    own.write_text(text.replace("value = 0.3528", "value = 8"))
    with pytest.raises(InputError, match=r"refresh, 8 us, must be below refresh_interval, 7\.8624"):
        load_part(str(own))
    own.write_text(text.replace("value = 0.3528", "value = 3"))
    with pytest.warns(NearkvWarning, match="refresh = 3 us is outside the usual range"):
        load_part(str(own))


def test_a_role_takes_a_part_of_its_kind(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    count = number(1, "1")
    own.write_text(f'base = "hilos-a100"\n[gpu_link]\npart = "a100-40gb"\ncount = {count}\n')
    with pytest.raises(InputError, match="a100-40gb is a part of type gpu; this role takes link"):
        load_platform(str(own))


def test_our_own_numbers_are_neither_impossible_nor_odd() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in names("platform"):
            platform = load_platform(name)
            for role, part in platform.roles.items():
                values = {f"{role}.{key}": (number,) for key, number in part.si.items()}
                platform.check(values)
        for name in names("model"):
            for key, value in load_llm(name).si.items():
                assert not PART_TYPES["llm"][key].fault(value), (name, key)


def test_relations_and_roles_name_what_exists() -> None:
    for kind, relations in RELATIONS.items():
        for smaller, word, larger in relations:
            assert {smaller, larger} <= PART_TYPES[kind].keys()
            assert word in ("<", "<=")
    for kinds in ROLES.values():
        assert set(kinds) <= PART_TYPES.keys()


@pytest.mark.parametrize("line", ['kind = ["x"]', 'kind = "gpu"\nflops = 3', "kind = 1"])
def test_hostile_parts_get_a_sentence(tmp_path: Path, line: str) -> None:
    file = tmp_path / "part.toml"
    file.write_text(line)
    with pytest.raises(InputError, match=r"part\.toml"):
        load_part(str(file))


@pytest.mark.parametrize(
    "text",
    [
        'base = "hilos-a100"\nwithout = [["a"]]\n',
        'base = "hilos-a100"\nwithout = 3\n',
        'cite = ["x"]\n',
        'base = ["x"]\n',
        'base = "mine.toml"\n',
        f'base = "hilos-a100"\n[derate]\npcie = {{ value = 1{"0" * 400} }}\n',
        "[gpu]\npart = 3\n",
        "x = [",
    ],
)
def test_hostile_platforms_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    with pytest.raises(InputError):
        load_platform("mine.toml")


def test_a_long_chain_of_bases_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(1500):
        Path(f"p{i}.toml").write_text(f'base = "p{i + 1}.toml"\n')
    Path("p1500.toml").write_text('base = "hilos-a100"\n')
    with pytest.raises(InputError, match="bases"):
        load_platform("p0.toml")

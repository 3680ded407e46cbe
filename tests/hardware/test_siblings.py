"""Efficiencies belong to chips; one that is not measured is the sibling's, and says so."""

from dataclasses import replace
from pathlib import Path

import pytest

from nearkv.hardware.catalog import load_part, load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.own import of_siblings
from nearkv.hardware.platform import Part, with_siblings
from nearkv.hardware.schema import PART_TYPES, Quantity

BEDS = ("hgx-h200", "workstation-5090", "t4-box")
FIVE_LINES = """\
kind = "gpu"
title = "V100"
maker = "nvidia"
flops = "125 TFLOP/s"
memory = "32 GB"
bandwidth = "900 GB/s"
"""


def chip(name: str, generation: str, bandwidth: float, **shares: float) -> Part:
    """A GPU of a maker, with some shares that were measured."""
    stated = {"bandwidth": (bandwidth, "GB/s"), **{key: (v, "1") for key, v in shares.items()}}
    numbers = {
        key: Quantity(value, unit, "measured", "user", "here")
        for key, (value, unit) in stated.items()
    }
    return Part(name, "gpu", name, numbers, maker="one", generation=generation)


def taken(part: Part, others: list[Part], key: str = "gemm") -> tuple[float, str]:
    number = with_siblings(part, lambda _: others).numbers[key]
    assert number.kind == "assumed"
    assert number.note
    return number.value, number.sibling


def test_the_nearest_in_bandwidth_of_its_generation_lends() -> None:
    every = {key: 0.5 for key, schema in PART_TYPES["gpu"].items() if schema.sibling}
    low, high = chip("low", "b", 100, **every), chip("high", "b", 1000, **{**every, "gemm": 0.7})
    older = chip("older", "a", 300, **{**every, "gemm": 0.6})
    foreign = Part("foreign", "gpu", "", older.numbers, maker="two", generation="b")
    catalogue = [low, high, older, foreign]
    assert taken(chip("mine", "b", 310), catalogue) == (0.5, "low")
    assert taken(chip("mine", "b", 320), catalogue) == (0.7, "high")  # 316 is between in logarithm
    assert taken(chip("mine", "c", 320), catalogue) == (0.6, "older")
    number = with_siblings(chip("mine", "b", 310), lambda _: catalogue).numbers["gemm"]
    assert number.range == (0.5, 0.7)
    nobodys = Part("mine", "gpu", "", chip("mine", "", 310).numbers)
    assert taken(nobodys, [low, high, older]) == (0.6, "older")  # the one in the middle


def test_a_number_of_a_whole_run_is_lent_only_where_there_is_no_other() -> None:
    """The nearest holds its number alone: the next lends its own, or none but the nearest does."""
    every = {key: 0.5 for key, schema in PART_TYPES["gpu"].items() if schema.sibling}
    near, far = chip("near", "b", 300, **every), chip("far", "a", 900, **{**every, "gemm": 0.7})
    alone = {**near.numbers, "gemm": replace(near.numbers["gemm"], alone=True)}
    near = replace(near, numbers=alone)
    assert taken(chip("mine", "b", 310), [near, far]) == (0.7, "far")
    assert taken(chip("mine", "b", 310), [near]) == (0.5, "near")
    number = with_siblings(chip("mine", "b", 310), lambda _: [near]).numbers["gemm"]
    assert "derived from a whole run" in number.note
    assert not number.alone


def test_a_stated_number_is_kept() -> None:
    part = load_part("t4")
    assert part.numbers["gemm"].sibling == ""
    assert part.numbers["hbm"].sibling


@pytest.mark.parametrize("bed", BEDS)
@pytest.mark.parametrize("role", ["gpu", "host"])
def test_no_number_of_another_chip_survives_a_swap_in_silence(bed: str, role: str) -> None:
    """Every GPU and host of the catalogue, on three machines."""
    platform = load_platform(bed)
    for name in names("part"):
        part = load_part(name)
        if part.type != role:
            continue
        placed = platform.with_part(role, part, name).roles[role].numbers
        for key, schema in PART_TYPES[role].items():
            if schema.sibling:
                assert placed[key] == part.numbers[key], (name, key)
                assert_is_said(placed[key], name)


def assert_is_said(number: Quantity, name: str) -> None:
    """A number of another chip is assumed, has a range around it, and a note that names both."""
    if not number.sibling:
        return
    assert number.kind == "assumed"
    assert number.range is not None
    assert number.range[0] <= number.value <= number.range[1]
    assert number.sibling in number.note
    assert name in number.note


def test_a_part_of_five_lines_is_complete_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "v100.toml"
    file.write_text(FIVE_LINES)
    part = load_platform("t4-box").with_part("gpu", load_part(str(file)), "v100").roles["gpu"]
    assert part.numbers["gemm"].sibling not in ("", "t4")
    for key, schema in PART_TYPES["gpu"].items():
        if schema.sibling:
            assert_is_said(part.numbers[key], "v100")
    assert any("gemm" in sentence for sentence in of_siblings(file))


def test_a_part_called_like_one_of_the_catalogue_has_it_as_sibling(tmp_path: Path) -> None:
    file = tmp_path / "rtx-4080.toml"
    file.write_text(FIVE_LINES)
    assert load_part(str(file)).numbers["launch_alone"].sibling == "rtx-4080"


def test_an_old_name_is_refused_with_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'derate\.gemm'; it is 'gpu\.gemm' now"):
        load_platform("hgx-h100").override("derate.gemm", 0.5)
    file = tmp_path / "mine.toml"
    file.write_text('base = "hgx-h100"\n[derate]\ndram_read = 0.5\n')
    with pytest.raises(InputError, match=r"it is 'host\.dram_read' now"):
        load_platform(str(file))

"""A study is blocks of design points, or a sentence on why it is none."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.command_line import printed, refusal

import nearkv
from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.study import Study, blocks


@pytest.mark.slow
def test_paired_axes_go_together() -> None:
    study = Study(
        ("flexgen-ssd", "hilos"),
        ("opt-66b",),
        zipped={"context": "256,1k,8k", "output_tokens": "9,8,7"},
    )
    points = [
        (block.system.name, *(int(axis.values[0]) for axis in block.grid.axes[2:4]))
        for block in blocks(study)
    ]
    lengths = [(256, 9), (1024, 8), (8192, 7)]
    assert points == [(name, *pair) for name in ("flexgen-ssd", "hilos") for pair in lengths]
    words = "compare flexgen-ssd hilos --model opt-66b --zip context=1k,8k --zip output_tokens=9,8"
    text = printed(*words.split())
    assert "context_tok  output_tokens" in text
    for wrong in ({"context": "1k,2k", "output_tokens": "9"}, {"batch": "1,2"}):
        with pytest.raises(InputError, match="--zip"):
            blocks(Study(("hilos",), ("opt-66b",), batch="4", zipped=wrong))


def test_a_name_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match="has no value; give one"):
        nearkv.compare("hilos", "opt-66b", knobs={"alpha": []})
    for empty in ("", ()):
        with pytest.raises(InputError, match="--part gpu has no value; give one"):
            Study("hilos", "opt-66b", parts={"gpu": empty})


@pytest.mark.parametrize(
    ("field", "given", "problem"),
    [
        ("sets", None, "--set: give names and their values, .*, not None"),
        ("knobs", "alpha=1", "--knob: give names and their values, .*, not 'alpha=1'"),
        ("parts", [("gpu", "h200-sxm")], r"--part: give names and their values, .*, not \["),
        ("zipped", np.array([1, 2]), r"--zip: give names and their values, .*, not array"),
        ("knobs", {1: 2}, "--knob 1 is no name; give text"),
        ("sets", {"csd.count": np.ma.masked}, "--set csd.count=masked: give text, a number"),
        ("models", np.ma.masked, "--model=masked: give a name"),
        ("batch", np.ma.masked, "--batch=masked: give text, a number"),
        ("context", np.ma.masked_equal([1024, 2048], 2048), "--context=masked: give text"),
        ("band", "auto", "--band 'auto': give a number of percent"),
        ("band", np.array([90, 95]), r"--band array\(.*\): give a number of percent"),
        ("band", 1j, "--band 1j: give a number of percent"),
        ("band", float("nan"), "--band nan: give the share inside in percent, from 1 to 99"),
        ("band", 10**400, "--band 10*: give the share inside in percent, from 1 to 99"),
        ("batch", 10**400, "--batch=10*: is too large"),
        ("knobs", {"alpha": Fraction(10**400)}, r"--knob alpha=.*: is too large"),
        ("seed", "x", "--seed 'x': give a whole number"),
        ("samples", None, "--samples None: give a whole number"),
    ],
)
def test_values_of_odd_types_are_refused_when_a_study_is_made(
    field: str, given: Any, problem: str
) -> None:
    """Each once ended in an error of Python's, some only once the study was evaluated."""
    with pytest.raises(InputError, match=f"^{problem}"):
        Study(**{"systems": "hilos", "models": "opt-66b", field: given})


def test_a_band_may_be_any_number_or_none() -> None:
    for given, level in [(None, 0.0), (90, 90.0), (np.float32(90), 90.0), (Fraction(181, 2), 90.5)]:
        study = Study("hilos", "opt-66b", band=given)
        assert (study.band, type(study.band)) == (level, float)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("8k:4k:x2", "ends below its start"),
        ("8k:4k:+1k", "ends below its start"),
        ("1k:4k:x1", "use a factor above 1"),
        ("1k:4k:+0", "use a step above 0"),
    ],
)
def test_a_range_that_never_ends_says_why(values: str, why: str) -> None:
    assert why in refusal("compare", "hilos", "--model", "opt-66b", "--context", values)


def test_auto_is_solved_and_a_choice_is_an_axis() -> None:
    (solved,) = blocks(Study(("flexgen-dram",), ("opt-66b",), knobs={"weights": "auto"}))
    assert solved.open_knobs["weights"] == "auto"
    (stated,) = blocks(Study(("flexgen-dram",), ("opt-66b",), knobs={"weights": "filled"}))
    (axis,) = [axis for axis in stated.grid.axes if axis.name == "weights"]
    assert axis.labels[int(axis.values[0])] == "filled"
    assert "weights" not in stated.open_knobs


def test_limits_are_text_or_a_dictionary() -> None:
    limits = {"ttft_s": 10.0, "tpot_ms": 66.0}
    for slo in ("ttft_s=10,tpot_ms=66", ["ttft_s=10", "tpot_ms=66"], limits):
        assert Study(("gpu",), ("opt-66b",), rate=1, slo=slo).slo == limits
    with pytest.raises(InputError, match=r"--slo: give limits, as 'ttft_s=10,tpot_ms=66' or"):
        Study(("gpu",), ("opt-66b",), rate=1, slo=5)

"""The table of axes, and names of formats: the answer of a config, and sentences about others."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from support.configs import quantised_llama

import nearkv
from nearkv.costmodel.model.models import llm_from_part
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.formats import formats
from nearkv.hardware.machine import Role
from nearkv.sweeps.api.arguments import LoadAxes
from nearkv.sweeps.commands.options import of_load, of_study
from nearkv.sweeps.study.axes import AXES, FIELD_OF, read_axes
from nearkv.sweeps.study.study import Study

COLUMNS = ["prefill_s", "step_ms", "energy_j_tok"]
SCHEMES: dict[str, dict[str, Any]] = {
    "fp8": {"quant_algo": "FP8"},
    "nvfp4": {"quant_algo": "NVFP4"},
    "mxfp4": {"quant_method": "mxfp4"},
    "int4": {"quant_method": "gptq", "bits": 4, "group_size": 128, "zero_point": False},
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
}


def answers(model: str, **sets: Any) -> dict[str, list[float]]:
    """Columns on eight B200, which have rates for 8 and 4 bits."""
    table = nearkv.compare(
        "gpu",
        model,
        context=8192,
        batch=[1, 64],
        platform="hgx-h200",
        parts={"gpu": "b200-sxm", "nvlink": "nvlink5"},
        sets={f"precision.{key}": value for key, value in sets.items()},
    )
    return {name: table[name].tolist() for name in COLUMNS}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_format_of_weights_answers_as_a_config_of_it(tmp_path: Path, name: str) -> None:
    quantised_llama(tmp_path, SCHEMES[name])
    quantised = answers(str(tmp_path / "config.json"))
    (tmp_path / "plain").mkdir()
    quantised_llama(tmp_path / "plain")
    plain = str(tmp_path / "plain" / "config.json")
    by_name = answers(plain, weight=name)
    for column in COLUMNS:
        assert by_name[column] == pytest.approx(quantised[column], rel=1e-12)
    # and it replaces what another config states
    replaced = answers(str(tmp_path / "config.json"), weight="bf16")
    assert replaced == answers(plain)


def test_a_cache_in_a_format_answers_as_a_config_of_it(tmp_path: Path) -> None:
    quantised_llama(tmp_path, {**SCHEMES["nvfp4"], "kv_cache_quant_algo": "NVFP4"})
    model = str(tmp_path / "config.json")
    assert answers(model) == answers(model, kv="nvfp4")
    assert answers(model, kv="fp8") == answers(model, kv="8bit")


def test_activations_of_four_bits_run_at_the_rate_of_four() -> None:
    """4.5 bits with their scales once fell into the rate of 8."""
    four = answers("llama3.1-70b", weight="nvfp4")
    assert answers("llama3.1-70b", weight="nvfp4", activation="nvfp4") == four
    eight = answers("llama3.1-70b", weight="nvfp4", activation="fp8")
    sixteen = answers("llama3.1-70b", weight="nvfp4", activation="bf16")
    assert four["prefill_s"][1] < eight["prefill_s"][1] < sixteen["prefill_s"][1]
    role = Role("", "precision", {"weight": 4.5 / 8, "kv": 2.0, "activation": 4.5 / 8})
    assert llm_from_part(nearkv.load_model("opt-30b"), role).operands == (0.5, 0.5)


def test_several_formats_are_rows_of_one_table() -> None:
    several = nearkv.compare(
        "gpu",
        "llama3.1-8b",
        platform="hgx-h200",
        sets={"precision.weight": ["bf16", "nvfp4", "int4"], "precision.kv": ["fp8", "bf16"]},
    )
    assert several["precision.weight_bit"].tolist() == [16, 16, 4.5, 4.5, 4.125, 4.125]
    assert several["precision.operand_bit"].tolist() == [16, 16, 4, 4, 16, 16]
    assert several["precision.kv_bit"].tolist() == [8, 16] * 3


@pytest.mark.parametrize(
    ("sets", "zipped", "words"),
    [
        ({"weight": "nvfp5"}, {}, "unknown format 'nvfp5'; did you mean 'nvfp4'"),
        ({"kv": "fp8,8bit"}, {}, "give formats, as in fp8, or bits, as in 8bit, not both"),
        ({"weight": "fp8,bf16"}, {"batch": [1, 2]}, "name several formats in --zip"),
    ],
)
def test_formats_that_cannot_be_read_are_one_sentence(
    sets: dict[str, str], zipped: dict[str, list[int]], words: str
) -> None:
    numbers = {f"precision.{key}": value for key, value in sets.items()}
    with pytest.raises(InputError, match=words):
        nearkv.compare("hilos", "opt-30b", sets=numbers, zip=zipped)


def test_every_format_is_a_width_that_a_platform_may_state() -> None:
    platform = load_platform("hgx-h200")
    for numbers in formats().values():
        for address in ("precision.weight", "precision.kv", "precision.activation"):
            platform.check({address: (numbers["bits"].si,)})
        platform.check({"precision.operand": (numbers["operand"].si,)})


def test_a_study_has_the_fields_and_defaults_of_the_table() -> None:
    read = read_axes({})
    assert {field.name for field in fields(Study)} == {"systems", *read}
    for field in fields(Study):
        if field.default is not MISSING:
            assert read[field.name] == field.default, field.name
        elif field.default_factory is not MISSING:
            assert read[field.name] == field.default_factory(), field.name


def test_functions_and_commands_take_the_axes_of_the_table() -> None:
    """The models of a study are an argument beside its axes."""
    arguments = {FIELD_OF.get(name, name) for name in LoadAxes.__annotations__}
    assert arguments == {axis.field for axis in AXES} - {"models"}
    taken = {**signature(of_study).parameters, **signature(of_load).parameters}
    defaults = {axis.parameter: [] if axis.is_repeated else axis.default for axis in AXES}
    assert {name: option.default for name, option in taken.items()} == defaults

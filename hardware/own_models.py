"""A user's own models: a file to start from, and all that is wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_toml
from nearkv.hardware.own import refusal, wrong_numbers
from nearkv.hardware.part import Part
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.schema import KINDS

_KEYS = KINDS["llm"]
_HEADER = """\
# {title}
# It starts as {base}: change what differs. A number alone counts something; others take their
# unit, as in "8 bit". A model with a config.json needs no such file: --model path/config.json.

kind = "llm"
title = "{title}"
"""
_OF_ITS_BASE = ("published", "published_active")
"""Numbers that hold of the model it starts from alone."""


def new_model(name: str, base: str) -> str:
    """Text of a model file that equals another model, each number with its meaning.

    Raises:
        InputError: no such model, or one whose layers differ.
    """
    part = load_llm(base)
    if part.layer_kinds:
        raise InputError(
            f"--from {base}: its layers differ, which a file of numbers cannot state; save a "
            "config.json like its own and use it as --model path/config.json"
        )
    header = _HEADER.format(title=name, base=base)
    return "\n".join([header, *_stated(part), ""])


def _stated(part: Part) -> Iterator[str]:
    """Each number of a model in its short form, what is left out as a comment."""
    for key, meaning in _KEYS.items():
        number = part.numbers.get(key)
        if number is None or key in _OF_ITS_BASE:
            yield f"# {key} = ...  # {meaning.what}"
        else:
            yield f"{key} = {_short(number)}  # {meaning.what}"


def _short(number: Quantity) -> str:
    """A number without its source: alone, or with its unit in quotes."""
    if number.unit == "1":
        return f"{number.value:.15g}"
    return f'"{number.value:.15g} {number.unit}"'


def model_problems(path: Path) -> list[str]:
    """All that is wrong with a model file or config.json, a sentence each; none where it loads.

    Raises:
        InputError: the file cannot be read as TOML.
    """
    faults: list[str] = []
    if path.suffix != ".json":
        table = read_toml(path, "model")
        faults += wrong_numbers(table, _KEYS, path)
    return faults or refusal(load_llm, path)

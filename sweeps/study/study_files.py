"""Read a study from a file, in place of axes of the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearkv.costmodel.model.registry import systems
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.files import read_toml
from nearkv.hardware.folders import path_of
from nearkv.sweeps.study.bands import check_draws
from nearkv.sweeps.study.study import Study, blocks

_LISTS = {
    "systems": "systems",
    "model": "models",
    "platform": "platforms",
    "trace": "traces",
    "plugin": "plugins",
}
"""Key of a file that lists names -> field of `Study`."""
_LENGTHS = ("batch", "context", "output_tokens", "rate", "users")
_TABLES = {"set": "sets", "knob": "knobs", "part": "parts", "zip": "zipped"}
_NUMBERS = ("band", "samples", "seed")
_OPTION = re.compile(r"--(\w+)[\w-]*(?: ([\w.-]+))?(?:=[^:]*)?: ")
"""How a sentence about an option begins: the option, and the name that it sets."""
_UNKNOWN = re.compile(r"unknown (system|model|platform|trace|part) ")
TABLE_FILES = (".csv", ".jsonl", ".ndjson", ".parquet")
"""Endings of files that hold answers, and no study."""
_KEYS = {
    "title",
    "cite",
    "figure",
    *_LISTS,
    *_LENGTHS,
    "slo",
    "method",
    *_TABLES,
    *_NUMBERS,
}


def load_study(path: str, trusted: Collection[str] = ()) -> Study:
    """Read a study from a TOML file, or one of the catalogue by name: `inf2-fig10`.

    Args:
        path: file or name.
        trusted: plugins that may run; a file of data runs none that its reader does not name.

    Raises:
        InputError: unknown, unreadable, an unknown key, no systems or models, or a plugin that is
            not trusted.
    """
    is_file = path.endswith(".toml") or Path(path).exists()
    place = Path(path) if is_file else path_of("study", path)
    study = _read_study(place)
    for plugin in study.plugins:
        if plugin not in trusted:
            runs = f"names {plugin}, which runs as a program"
            raise InputError(f"{place}: plugin: {runs}; allow it by --plugin {plugin}")
    return study


def _read_study(path: Path) -> Study:
    table = read_toml(path, "study")
    for key in table:
        if key not in _KEYS:
            raise unknown("key", key, _KEYS, str(path))
    if not table.get("systems") or not table.get("model"):
        raise InputError(f"{path}: a study needs systems = [...] and model = [...]")
    entries: dict[str, Any] = {}
    for key in (*_LENGTHS, "method"):
        entries[key] = table.get(key, getattr(Study, key))
    entries["slo"] = table.get("slo", "")
    for key, name in _LISTS.items():
        entries[name] = table.get(key, ())
    for key, name in _TABLES.items():
        entries[name] = _table(table.get(key, {}), f"{path}: {key}")
    for key in _NUMBERS:
        entries[key] = _number(table.get(key, getattr(Study, key)), f"{path}: {key}")
    try:
        band = table.get("band")
        study = Study(**entries)
        check_draws(study.seed, study.samples, band, study.traces)
    except InputError as refusal:
        raise InputError(f"{path}: {_about_key(str(refusal))}") from None
    return study


def either(path: str, axes: Study, given: Collection[str] = ()) -> Study:
    """The study of a file, or the axes of the command line where no file is named.

    Args:
        path: the file, or a study of the catalogue.
        axes: of the command line.
        given: their fields that go before those of the file; entries of tables are added to its.

    Raises:
        InputError: the file is no study or cannot be evaluated, or a value has no option before it.
    """
    if "=" in path and not Path(path).exists():
        advice = "repeat --set, --knob or --zip in front of each NAME=VALUE"
        raise InputError(f"{path}: is no study file; {advice}")
    if Path(path).suffix in TABLE_FILES:
        advice = "draw it with `nearkv plot`, or name the study that it was made of"
        raise InputError(f"{path}: is a table, no study; {advice}")
    if path in systems():
        raise InputError(f"{path}: is a system, no study; write --system {path}")
    if not path:
        return axes
    study = replace(load_study(path, axes.plugins), plugins=axes.plugins)
    study = varied(study, {name: getattr(axes, name) for name in given})
    _check(study, Path(path))
    return study


def varied(study: Study, given: Mapping[str, Any]) -> Study:
    """A study with other fields; entries of tables are added to its own, or replace them."""
    changed: dict[str, Any] = {}
    for name, value in given.items():
        is_table = isinstance(value, Mapping)
        changed[name] = {**getattr(study, name), **value} if is_table else value
    return replace(study, **changed)


def _check(study: Study, path: Path) -> None:
    """Refuse a study that cannot be evaluated, and name its file.

    Its warnings come when it is evaluated.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            blocks(study)
        except InputError as refusal:
            sentence = _about_key(str(refusal))
            raise InputError(f"{path}: {sentence}") from None


def _about_key(sentence: str) -> str:
    """A sentence about an option or a name as one about the key of a study file."""
    if option := _OPTION.match(sentence):
        keys = "".join(f"{key}: " for key in option.groups() if key)
        return keys + sentence[option.end() :]
    if named := _UNKNOWN.match(sentence):
        key = "systems" if named[1] == "system" else named[1]
        return f"{key}: {sentence}"
    return sentence


def _table(entry: object, where: str) -> dict[str, Any]:
    """A table of a study file; every name in it has a value."""
    if not isinstance(entry, dict):
        raise InputError(f"{where} must be a table, with one line for each name")
    for key, value in entry.items():
        if value in ([], ""):
            raise InputError(
                f"{where}: {key} has no value; give one, or leave out its line"
            )
    return entry


def _number(value: object, where: str) -> float | int:
    """A number of a study file.

    Raises:
        InputError: text, a list, or a truth value.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} must be a number, not {value!r}")
    return value

"""Read a study from a file, in place of axes of the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearkv.costmodel.model.registry import systems
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.files import path_of, read_toml
from nearkv.sweeps.study.axes import FIELD_OF
from nearkv.sweeps.study.study import Study, blocks, stated_study

_OPTION = re.compile(r"--(\w+)[\w-]*")
"""Beginning of a sentence about an option, whose first word is a key of a study."""
_UNKNOWN = re.compile(r"unknown (system|model|platform|trace|part) ")
TABLE_FILES = (".csv", ".jsonl", ".ndjson", ".parquet")
"""Endings of files that hold answers, and no study."""
_ABOUT = ("title", "cite", "figure")
"""Keys that say what a study is of, and how it is drawn."""


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
    table = read_toml(place, "study")
    check_known("key", table, [*_ABOUT, "systems", *FIELD_OF], str(place))
    if not table.get("systems") or not table.get("model"):
        raise InputError(f"{place}: a study needs systems = [...] and model = [...]")
    fields = {FIELD_OF[key]: table[key] for key in table if key in FIELD_OF}
    with _naming(place):
        study = stated_study(systems=table["systems"], **fields)
    for plugin in study.plugins:
        if plugin not in trusted:
            runs = f"names {plugin}, which runs as a program"
            raise InputError(f"{place}: plugin: {runs}; allow it by --plugin {plugin}")
    return study


def either(path: str, axes: Study, fields: Collection[str] = ()) -> Study:
    """The study of a file, or the axes of the command line where no file is named.

    Args:
        path: the file, or a study of the catalogue.
        axes: of the command line.
        fields: their fields that go before those of the file; entries of tables are added to its.

    Raises:
        InputError: the file is no study or cannot be evaluated, or a value has no option before it.
    """
    if "=" in path and not Path(path).exists():
        advice = "repeat --set, --knob or --zip in front of each NAME=VALUE"
        raise InputError(f"{path} is no study file; {advice}")
    if Path(path).suffix in TABLE_FILES:
        advice = "draw it with `nearkv plot`, or name the study that it was made of"
        raise InputError(f"{path} is a table, no study; {advice}")
    if path in systems():
        raise InputError(f"{path} is a system, no study; write --system {path}")
    if not path:
        return axes
    study = replace(load_study(path, axes.plugins), plugins=axes.plugins)
    study = varied(study, {name: getattr(axes, name) for name in fields})
    # divided to name its file where it cannot be; its warnings come when it is evaluated
    with warnings.catch_warnings(), _naming(Path(path)):
        warnings.simplefilter("ignore")
        blocks(study)
    return study


def varied(study: Study, fields: Mapping[str, Any]) -> Study:
    """A study with other fields; entries of tables are added to its own, or replace them."""
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        is_table = isinstance(value, Mapping)
        changed[name] = {**getattr(study, name), **value} if is_table else value
    return replace(study, **changed)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file of a study, and its key, in what is refused of it.

    Raises:
        InputError: it is refused.
    """
    try:
        yield
    except InputError as refusal:
        raise InputError(f"{path}: {_about_key(str(refusal))}") from None


def _about_key(sentence: str) -> str:
    """A sentence about an option or a name as one about the key of a study file."""
    if option := _OPTION.match(sentence):
        return option[1] + sentence[option.end() :]
    if named := _UNKNOWN.match(sentence):
        key = "systems" if named[1] == "system" else named[1]
        return f"{key}: {sentence}"
    return sentence

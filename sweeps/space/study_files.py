"""Read a study from a file, in place of axes of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.reading import read_toml
from nearkv.sweeps.space.study import Study, comma_list

_KEYS = {
    "title", "cite", "systems", "model", "batch", "context", "output", "platform", "set", "knob", "trace", "method",
}  # fmt: skip


def load_study(path: str) -> Study:
    """Read a study from a TOML file.

    Raises:
        InputError: unreadable, an unknown key, or no systems or models.
    """
    table = read_toml(Path(path), "study")
    for key, value in table.items():
        if key not in _KEYS:
            raise unknown("key", key, _KEYS, path)
        if key in ("set", "knob") and not isinstance(value, dict):
            raise InputError(f"{path}: {key} must be a table, as in [{key}] with one line a name")
    if not table.get("systems") or not table.get("model"):
        raise InputError(f"{path}: a study needs systems = [...] and model = [...]")
    return Study(
        systems=comma_list(_text(table["systems"])),
        models=comma_list(_text(table["model"])),
        platforms=comma_list(_text(table.get("platform", ""))),
        sets={key: _text(value) for key, value in table.get("set", {}).items()},
        knobs={key: _text(value) for key, value in table.get("knob", {}).items()},
        traces=comma_list(_text(table.get("trace", ""))),
        method=str(table.get("method", "fluid")),
        batch=_text(table.get("batch", Study.batch)),
        context=_text(table.get("context", Study.context)),
        output=_text(table.get("output", Study.output)),
    )


def either(path: str, axes: Study) -> Study:
    """The study of a file, or the axes of the command line where no file is named.

    Raises:
        InputError: both are given, the file is no study, or a value has no option before it.
    """
    if "=" in path and not Path(path).exists():
        raise InputError(
            f"{path}: is no study file; repeat --set or --knob in front of each NAME=VALUE"
        )
    if path and axes != Study((), ()):
        raise InputError(f"{path} holds the axes; give them there or on the command line, not both")
    return load_study(path) if path else axes


def _text(value: Any) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)

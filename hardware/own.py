"""A user's own parts, platforms and models: a file to start from, and all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nearkv.hardware.catalog import load_llm, load_part, load_platform
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.files import FileTable, is_known, read_toml
from nearkv.hardware.schema import PART_TYPES, ROLES, Key, Quantity, keys_of, quantity
from nearkv.hardware.server import load_server

_PLATFORM_HEADER = """\
# {title}
# It starts as {base}: uncomment and change what differs. A number alone counts something;
# others take their unit, as in "12 GB/s". `nearkv hardware keys KIND` explains each key.

title = "{title}"
base = "{base}"
"""
_MODEL_HEADER = """\
# {title}
# It starts as {base}: change what differs. A number alone counts something; others take their
# unit, as in "8 bit". A model with a config.json needs no such file: --model path/config.json.

kind = "llm"
title = "{title}"
"""
_OF_ITS_BASE = ("published", "published_active")
"""Numbers that are true only of the model it starts from."""


def type_of(name: str) -> str:
    """The type of part of this name, or that fills a role of this name.

    Raises:
        InputError: neither a type nor a role.
    """
    check_known("kind or role", [name], [*PART_TYPES, *ROLES])
    return name if name in PART_TYPES else ROLES[name][0]


def key_rows(part_type: str) -> list[dict[str, object]]:
    """A row per key of a type of part: unit, meaning, whether it is needed, usual range.

    Raises:
        InputError: no such type.
    """
    check_known("part type", [part_type], PART_TYPES)
    rows = []
    for name, key in PART_TYPES[part_type].items():
        row: dict[str, object] = {
            "key": name,
            "unit": key.unit,
            "needed": "no" if key.optional else "yes",
            "usual": " to ".join(key.text(bound * key.size) for bound in key.usual),
            "what": key.what,
        }
        rows.append(row)
    return rows


def new_platform(name: str, base: str) -> str:
    """Text of a platform file that equals another platform, its numbers as comments.

    Raises:
        InputError: no such platform, or a part's name.
    """
    if is_known("part", base) and not is_known("platform", base):
        raise InputError(
            f"--from {base}: is a part, and a platform starts from another one (nearkv hardware); "
            f'leave --from out, and write part = "{base}" below its role in the file'
        )
    lines = [_PLATFORM_HEADER.format(title=name, base=base)]
    for role, part in load_platform(base).roles.items():
        numbers = [
            f"# {key} = {without_source(number)}" for key, number in part.numbers.items()
        ]
        lines += [f"# [{role}]  # {part.title}", *numbers, ""]
    return "\n".join(lines)


def new_model(name: str, base: str) -> str:
    """Text of a model file that equals another model, each number with its meaning.

    Raises:
        InputError: no such model, or one whose layers differ.
    """
    part = load_llm(base)
    if part.layer_types:
        raise InputError(
            f"--from {base}: its layers differ, which a file of numbers cannot state; save a "
            "config.json like its own and use it as --model path/config.json"
        )
    lines = [_MODEL_HEADER.format(title=name, base=base)]
    for key, schema in PART_TYPES["llm"].items():
        number = part.numbers.get(key)
        if number is None or key in _OF_ITS_BASE:
            lines.append(f"# {key} = ...  # {schema.what}")
        else:
            lines.append(f"{key} = {without_source(number)}  # {schema.what}")
    return "\n".join([*lines, ""])


def without_source(number: Quantity) -> str:
    """A number as TOML, with all its digits: alone, or with its unit in quotes."""
    text = repr(number.value).removesuffix(".0")
    return text if number.unit == "1" else f'"{text} {number.unit}"'


def problems(path: Path) -> list[str]:
    """All that is wrong with a part, server or platform file, a sentence each; none if it loads.

    Raises:
        InputError: the file cannot be read as TOML.
    """
    table = read_toml(path, "part or platform")
    if "kind" in table:
        keys = PART_TYPES.get(str(table["kind"]), {})
        load = load_server if table["kind"] == "server" else load_part
        return _wrong_numbers(table, keys, str(path)) or _refusal(load, path)
    faults = []
    for role, entry in table.items():
        if isinstance(entry, dict):
            faults += _wrong_numbers(entry, _keys_of_role(role, entry), f"{path}: {role}")
    return faults or _refusal(load_platform, path)


def of_siblings(path: Path) -> list[str]:
    """A sentence for each chip of a part or platform file on which numbers were not measured.

    Raises:
        InputError: the file does not load.
    """
    name = str(path)
    is_part = "kind" in read_toml(path, "part or platform")
    parts = [load_part(name)] if is_part else load_platform(name).roles.values()
    sentences = []
    for part in parts:
        for sibling in part.siblings:
            keys = [
                key for key, number in part.numbers.items() if number.sibling == sibling
            ]
            sentences.append(
                f"{part.name}: measured on {sibling}, not on it: {', '.join(keys)}"
            )
    return sentences


def model_problems(path: Path) -> list[str]:
    """All that is wrong with a model file or config.json, a sentence each; none where it loads.

    Raises:
        InputError: the file cannot be read as TOML.
    """
    faults = []
    if path.suffix != ".json":
        faults = _wrong_numbers(read_toml(path, "model"), PART_TYPES["llm"], str(path))
    return faults or _refusal(load_llm, path)


def _keys_of_role(role: str, entry: FileTable) -> Mapping[str, Key]:
    """Keys that a role may hold; none where its part is not known."""
    if role in PART_TYPES:
        return keys_of(role, entry)
    try:
        return PART_TYPES[load_part(str(entry["part"])).type]
    except (InputError, KeyError):
        return {}


def _wrong_numbers(table: FileTable, keys: Mapping[str, Key], where: str) -> list[str]:
    """A sentence for each number of a table that cannot be read.

    Args:
        table: of the file; entries that are not among the keys are skipped.
        keys: numbers that the part may have.
        where: the file, and the role in a platform.
    """
    faults = []
    for name in [name for name in table if name in keys]:
        try:
            quantity(table[name], keys[name], f"{where}: {name}")
        except InputError as problem:
            faults.append(str(problem))
    return faults


def _refusal(load: Callable[[str], object], path: Path) -> list[str]:
    """Why a file does not load; empty where it does."""
    try:
        load(str(path))
    except InputError as problem:
        return [str(problem)]
    return []

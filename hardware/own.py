"""A user's own parts and platforms: the keys there are, a file to start from, all its faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nearkv.hardware.catalog import load_part, load_platform
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.files import read_toml
from nearkv.hardware.part import Part
from nearkv.hardware.quantity import unit_of
from nearkv.hardware.reading import quantity
from nearkv.hardware.schema import DERATE, KINDS, Key

_HEADER = """\
# {title}
# It starts as {base}: uncomment and change what differs. A number alone counts something;
# others take their unit, as in "12 GB/s". `nearkv hardware keys KIND` explains each key.

title = "{title}"
base = "{base}"
"""


def key_rows(kind: str) -> list[dict[str, object]]:
    """A row per key of a kind of part: unit, meaning, whether it is needed, usual range.

    Raises:
        InputError: no such kind.
    """
    if kind not in KINDS:
        raise unknown("kind of part", kind, KINDS)
    return [_key_row(name, key) for name, key in KINDS[kind].items()]


def _key_row(name: str, key: Key) -> dict[str, object]:
    size = unit_of(key.unit)[1]
    usual = " to ".join(key.text(bound * size) for bound in key.usual)
    return {
        "key": name,
        "unit": key.unit,
        "needed": "no" if key.optional else "yes",
        "usual": usual,
        "what": key.what,
    }


def new_platform(name: str, base: str) -> str:
    """Text of a platform file that equals another platform, its numbers as comments.

    Raises:
        InputError: no such platform.
    """
    lines = [_HEADER.format(title=name, base=base)]
    for role, part in load_platform(base).roles.items():
        lines += [f"# [{role}]  # {part.title}", *_commented(part), ""]
    return "\n".join(lines)


def _commented(part: Part) -> Iterator[str]:
    """Each number of a part as a comment in its short form."""
    for key, number in part.numbers.items():
        short = f"{number.value:.10g}"
        if number.unit != "1":
            short = f'"{number.value:.10g} {number.unit}"'
        yield f"# {key} = {short}"


def problems(path: Path) -> list[str]:
    """All that is wrong with a part or platform file, a sentence each; none where it loads.

    Raises:
        InputError: the file cannot be read as TOML.
    """
    table = read_toml(path, "part or platform")
    if "kind" in table:
        kind = str(table["kind"])
        faults = list(wrong_numbers(table, KINDS.get(kind, {}), path))
        return faults or refusal(load_part, path)
    faults = []
    for role, entry in table.items():
        if isinstance(entry, dict):
            keys = _keys_of_role(role, entry)
            faults += wrong_numbers(entry, keys, path, role)
    return faults or refusal(load_platform, path)


def _keys_of_role(role: str, entry: Mapping[str, Any]) -> Mapping[str, Key]:
    """Keys that a role may hold; none where its part is not known."""
    if role == "derate":
        return dict.fromkeys(entry, DERATE)
    if role in KINDS:
        return KINDS[role]
    try:
        return KINDS[load_part(str(entry["part"])).kind]
    except (InputError, KeyError):
        return {}


def wrong_numbers(
    table: Mapping[str, Any], keys: Mapping[str, Key], path: Path, role: str = ""
) -> Iterator[str]:
    """A sentence for each number of a table that cannot be read.

    Args:
        table: of the file; what is no number of a part is left to whoever reads the part.
        keys: numbers that the part may have.
        path: of the file.
        role: whose table it is, in a platform.
    """
    where = f"{path}: {role}: " if role else f"{path}: "
    for name, entry in table.items():
        if name not in keys:
            continue
        try:
            quantity(entry, keys[name], f"{where}{name}")
        except InputError as problem:
            yield str(problem)


def refusal(load: Any, path: Path) -> list[str]:
    """Why a file does not load; nothing where it does."""
    try:
        load(str(path))
    except InputError as problem:
        return [str(problem)]
    return []

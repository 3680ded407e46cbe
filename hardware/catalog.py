"""Read and check parts, platforms and models, by catalogue name or from a user's file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, a_few, check_known, unknown, warn
from nearkv.hardware.files import (
    FileTable,
    check_exists,
    check_types,
    has_own,
    is_known,
    model_like,
    names,
    path_of,
    read_toml,
)
from nearkv.hardware.platform import (
    Part,
    Platform,
    check_part,
    check_role,
    check_shape,
    with_dense_layers_between,
    with_siblings,
)
from nearkv.hardware.schema import (
    NARROW_OPERANDS,
    PART_TYPES,
    PARTLESS,
    ROLES,
    Quantity,
    check_complete,
    check_factor,
    keys_of,
    numbers_of,
    source_names,
)

__all__ = [
    "Part",
    "Platform",
    "load_llm",
    "load_part",
    "load_platform",
    "names",
]

FileVersion = tuple[str, int, int]
_PLATFORM_KEYS = {"title", "cite", "base", "without"}
MOST_BASES = 16
"""Platforms that may build on one another."""
_MISSPELT = 0.8
"""Similarity, as `difflib` measures it, from which one name of a role is taken for a slip."""
_PART_KEYS = {"kind", "title", "cite", "hub", "config", "form", "maker", "generation"}
_SERVER_KEYS = {"platform", "includes", "sold", "slots"}
"""Keys of a server's file beside its numbers; `server` reads them."""


def load_part(name: str, what: str = "part") -> Part:
    """Read a part, a model (`what="model"`) or a trace, by name or from a user's .toml file.

    Rates of kernels that were not measured on a chip are those of its nearest sibling.

    Raises:
        InputError: unknown name, unreadable file, or a number that fails `quantity`.
    """
    path = path_of(what, name)
    if name.endswith(".toml"):
        return with_siblings(_read_part(path, name, what), _chips)
    return _read_once(path, name, what, _version(path))


def _version(path: Path) -> FileVersion:
    """The identity of a file and its content: path, time and size."""
    status = path.stat()
    return str(path.absolute()), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=1024)
def _read_once(path: Path, name: str, what: str, _: FileVersion) -> Part:
    """A part of a folder, read again once its file has another time or size."""
    return with_siblings(_read_part(path, name, what), _chips)


@cache
def _chips(part_type: str) -> tuple[Part, ...]:
    """Parts of the catalogue of a type that state what siblings take, as their own files do."""
    taken = [name for name, key in PART_TYPES[part_type].items() if key.sibling]
    states = re.compile(rf"^\[?({'|'.join(taken)})\b", re.MULTILINE)
    parts = []
    for path in sorted((Path(__file__).parent / "parts").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        # most state none, and need not be read as TOML
        if f'kind = "{part_type}"\n' in text and states.search(text):
            parts.append(_read_part(path, path.stem, "part"))
    return tuple(parts)


def _read_part(path: Path, name: str, what: str) -> Part:
    where = str(path)
    table = read_toml(path, what)
    if "kind" not in table:
        raise InputError(
            f"{where} states no part type; add kind = ..., one of {a_few(PART_TYPES)}"
        )
    part_type = str(table["kind"])
    check_known("part type", [part_type], PART_TYPES, f"{where}: kind")
    if (part_type == "llm") != (what == "model"):
        raise InputError(f"{where}: kind = {part_type!r} is not a {what}")
    title = str(table.get("title", name))
    no_numbers = _PART_KEYS | _SERVER_KEYS if part_type == "server" else _PART_KEYS
    entries = {key: entry for key, entry in table.items() if key not in no_numbers}
    if "base" in entries:
        raise InputError(
            f"{where}: a part has no base: state all of its numbers, or change those of another "
            "in a platform, below part = ..."
        )
    numbers = numbers_of(entries, PART_TYPES[part_type], where)
    if "config" in table:
        return _from_config(table, path.stem, title, numbers, where)
    check_complete(numbers, part_type, where)
    part = Part(
        path.stem,
        part_type,
        title,
        numbers,
        form=str(table.get("form", "")),
        maker=str(table.get("maker", "")),
        generation=str(table.get("generation", "")),
    )
    if part_type == "llm":
        check_shape(part.si, where)
        part = with_dense_layers_between(part)
    check_part(part, where, is_own=name.endswith(".toml"))
    return part


def _from_config(
    table: FileTable,
    name: str,
    title: str,
    numbers: Mapping[str, Quantity],
    where: str,
) -> Part:
    """A model whose sizes are those of its published config.json, quoted below `config`."""
    from nearkv.hardware.huggingface import part_of_config

    cite = _cite(table, where)
    if not cite:
        raise InputError(
            f"{where}: quotes a config; name its source as cite = ... (sources.toml)"
        )
    check_types(table, {"config": dict}, where)
    part = part_of_config(table["config"], name, where, source=cite)
    return replace(part, title=title, numbers={**part.numbers, **numbers})


def load_llm(name: str) -> Part:
    """Read a model by catalogue name, from a .toml file, or from a Hugging Face config.json.

    Raises:
        InputError: unknown name, unreadable file, or a key that is missing.
    """
    if name.endswith(".json"):
        from nearkv.hardware.huggingface import load_config

        return load_config(Path(name))
    if name.endswith(".toml") or is_known("model", name):
        return load_part(name, "model")
    return load_part(model_like(name), "model")


def load_platform(name: str, heirs: tuple[str, ...] = ()) -> Platform:
    """Read a platform by name or from a user's .toml file.

    Every table is a role. It names the part that fills it and its `count`, and may replace any of
    the part's numbers; roles without a part (precision, policy, derate) hold all their own. With
    `follows = { count = "gpu.count" }` a number is always that of another role, and with
    `launch = { like = "aipc-4090" }` it is what that platform states of the role. A file
    may start from another platform (`base`), change numbers of its roles, fill them with other
    parts and leave roles out (`without`), which a table of the role then starts anew. A part is
    looked for beside the file and in `parts` there, then by name in the folders of `NEARKV_PATH`,
    in `./parts` and in the catalogue.

    One of the catalogue is read once a process, unless the user has files of his own, which may
    change and stand in for the catalogue's.

    Args:
        name: catalogue name or path.
        heirs: platforms that build on this one, to refuse circles.

    Raises:
        InputError: unknown name, unreadable file, or a number that fails `quantity`.
    """
    if name.endswith(".toml") or has_own("platform") or has_own("part"):
        return _read_platform(name, heirs)
    return _platform_once(name, heirs)


def _read_platform(name: str, heirs: tuple[str, ...]) -> Platform:
    path = path_of("platform", name)
    where = str(path)
    is_own = name.endswith(".toml")
    table = read_toml(path, "platform") if is_own else _table_once(path, _version(path))
    tables = {key: entry for key, entry in table.items() if isinstance(entry, dict)}
    fields = {key: entry for key, entry in table.items() if key not in tables}
    if not table:
        raise InputError(f"{where}: is empty; name a base, or the part of each role")
    check_known("key", fields, _PLATFORM_KEYS, where)
    roles = _inherited(name, fields, heirs, where)
    for role in _left_out(fields, roles, where):
        del roles[role]
    for role, entry in tables.items():
        _check_spelling(role, roles, where)
        complete = _with_numbers_of_others(role, entry, (*heirs, name), where)
        roles[role] = _role(role, complete, roles.get(role), path)
        check_part(roles[role], f"{where}: {role}", is_own=is_own)
    _check_follows(roles, where)
    return Platform(
        name,
        title=str(fields.get("title", name)),
        cite=_cite(fields, where),
        roles=roles,
    )


_platform_once = lru_cache(maxsize=256)(_read_platform)


@lru_cache(maxsize=256)
def _table_once(path: Path, _: FileVersion) -> FileTable:
    """The tables of a platform of a folder, which callers must not change."""
    return read_toml(path, "platform")


def _cite(fields: FileTable, where: str) -> str:
    cite = str(fields.get("cite", ""))
    if "cite" in fields and cite not in source_names():
        raise unknown("source", cite, source_names(), f"{where}: cite: (sources.toml)")
    return cite


def _inherited(
    name: str,
    fields: FileTable,
    heirs: tuple[str, ...],
    where: str,
) -> dict[str, Part]:
    """Roles of the base; without a base, how tokens choose experts, and vLLM as the engine."""
    if name in heirs:
        through = " and ".join(heirs)
        raise InputError(
            f"{where}: base: is its own base, by way of {through}; name another platform"
        )
    if len(heirs) > MOST_BASES:
        raise InputError(
            f"{where}: base: builds on more than {MOST_BASES} bases; copy what it needs"
        )
    if "base" not in fields:
        return {
            "router": Part("router", "router", "router", {}),
            "engine": load_part("vllm"),
        }
    base = str(fields["base"])
    check_exists("platform", base, f"{where}: base")
    return dict(load_platform(base, (*heirs, name)).roles)


def _left_out(fields: FileTable, inherited: Mapping[str, Part], where: str) -> set[str]:
    """Roles of the base that a platform does without."""
    without = fields.get("without", [])
    is_list = isinstance(without, list) and all(isinstance(role, str) for role in without)
    if not is_list or not set(without) <= inherited.keys():
        roles = a_few(sorted(inherited))
        raise InputError(
            f"{where}: without = {without!r} must list roles of the base: {roles}"
        )
    return {str(role) for role in without}


def _with_numbers_of_others(
    role: str, entry: FileTable, heirs: tuple[str, ...], where: str
) -> dict[str, Any]:
    """A table of a platform with the numbers that it has from others, `{ like = "PLATFORM" }`.

    Args:
        role, entry: the table and its name.
        heirs: platforms that read this one.
        where: the file, put in front of the sentence.

    Raises:
        InputError: no such platform, or it does not state the number.
    """
    numbers = dict(entry)
    for key, value in entry.items():
        if isinstance(value, dict) and value.keys() == {"like"}:
            at, other = f"{where}: {role}: {key}: like", str(value["like"])
            check_exists("platform", other, at)
            roles = load_platform(other, heirs).roles
            stated = roles[role].numbers if role in roles else {}
            check_known("number", [key], stated, f"{at} = {other!r}")
            numbers[key] = stated[key]
    return numbers


def _check_follows(roles: Mapping[str, Part], where: str) -> None:
    """Refuse to follow a number that the platform does not state.

    Raises:
        InputError: naming those that it states.
    """
    stated = [
        f"{role}.{key}"
        for role, part in roles.items()
        for key in part.numbers
        if key not in part.follows
    ]
    for role, part in roles.items():
        check_known("number", part.follows.values(), stated, f"{where}: {role}: follows")


def _check_spelling(role: str, inherited: Mapping[str, Part], where: str) -> None:
    """Refuse a new role whose name is nearly that of another; a number behind a name is no slip.

    Raises:
        InputError: naming the other.
    """
    known = {*ROLES, *PARTLESS, *inherited}
    if role in known or role.rstrip("0123456789") in known:
        return
    if get_close_matches(role.lower(), known, n=1, cutoff=_MISSPELT):
        raise unknown("role", role, known, where)


def _role(role: str, entry: FileTable, inherited: Part | None, path: Path) -> Part:
    """A role of a platform.

    A part in place of the base's keeps what its place adds, as its count; without a part of its
    own the role changes that of the base.
    """
    where = f"{path}: {role}"
    follows = entry.get("follows", {})
    own = {key: value for key, value in entry.items() if key not in ("part", "follows")}
    for name in own if role == "derate" else ():
        check_factor(name, where)
    if "part" in entry:
        name = part_name(str(entry["part"]), path)
        check_exists("part", name, f"{where}: part")
        part = load_part(name)
        check_role(part, role, f"{where}: part")
        if inherited is not None:
            part = part.in_place_of(inherited)
    elif inherited is not None:
        part = inherited
        _warn_of_factors(part, own, path)
    elif role in PARTLESS:
        numbers = numbers_of(own, keys_of(role, own), where)
        check_complete(numbers, role, where)
        return Part(role, role, role, numbers)
    else:
        types = ROLES.get(role, PART_TYPES)
        fitting = [name for name in names("part") if load_part(name).type in types]
        parts = a_few(fitting, like=role)
        raise InputError(f'{where}: names no part; add part = "...", one of {parts}')
    changed = _changed(part, own, where)
    placed = replace(changed, follows={**changed.follows, **follows})
    if "count" in PART_TYPES[part.type] and "count" not in {**placed.numbers, **follows}:
        raise InputError(f"{where} needs a count of its part")
    return placed


def part_name(name: str, platform: Path) -> str:
    """A part as a platform or server names it: a file beside its own, or in `parts`, goes first."""
    file = name if name.endswith(".toml") else f"{name}.toml"
    for beside in (platform.parent / file, platform.parent / "parts" / file):
        if beside != platform and beside.is_file():
            return str(beside)
    return name


def _warn_of_factors(part: Part, own: FileTable, path: Path) -> None:
    """Warn of factors that a user's platform adds to its base; a plugin may read any."""
    added = own.keys() - part.numbers.keys()
    if part.type == "derate" and added and Path(__file__).parent not in path.parents:
        factors = ", ".join(sorted(added))
        warn(
            f"{path}: derate: {factors}: the base has no such factor; few systems read it, or none"
        )


def _changed(part: Part, own: FileTable, where: str) -> Part:
    """A part with the numbers that a platform replaces or adds."""
    keys = keys_of(part.type, [*part.numbers, *own])
    placed = part.placed | (own.keys() - part.numbers.keys())
    part = part.with_numbers(numbers_of(own, keys, where))
    changed = dict(part.numbers)
    if narrow := [
        key for key in NARROW_OPERANDS if "flops" in own and key in changed.keys() - own
    ]:
        rates = " and ".join(narrow)
        left_out = f"flops is stated, {rates} is not; products of those widths run at flops"
        warn(f"{where}: {left_out} (state it, too, where the part has such a rate)")
        changed = {key: number for key, number in changed.items() if key not in narrow}
    return replace(part, numbers=changed, placed=placed)

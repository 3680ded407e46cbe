"""Read, check and override specifications: parts, platforms and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.folders import names, path_of
from nearkv.hardware.huggingface import load_config
from nearkv.hardware.machine import Machine
from nearkv.hardware.part import Part, check_shape
from nearkv.hardware.quantity import Quantity, unit_of
from nearkv.hardware.reading import check_complete, numbers_of, read_toml, sources
from nearkv.hardware.schema import DERATE, KINDS, PARTLESS, Key

__all__ = ["Part", "Platform", "load_llm", "load_part", "load_platform", "names"]

_PLATFORM_KEYS = {"title", "cite", "base", "without"}


@dataclass(frozen=True)
class Platform:
    """A test bed: its roles, each filled by a part.

    Attributes:
        name: kebab-case, or the path of a user's file.
        title: for readers.
        cite: key into sources.toml.
        roles: role -> part in its place; `derate` holds the correction factors.
    """

    name: str
    title: str
    cite: str
    roles: Mapping[str, Part]

    def machine(self) -> Machine:
        """The same numbers in SI, as cost models read them."""
        return Machine(
            self.name, {r: {k: q.si for k, q in p.numbers.items()} for r, p in self.roles.items()}
        )

    def key(self, address: str) -> Key:
        """The schema of a number named as `role.key`.

        Raises:
            InputError: no such role, or no such number in it.
        """
        role, dot, key = address.partition(".")
        if not dot:
            roles = ", ".join(sorted(self.roles))
            raise InputError(f"{address!r} is not ROLE.KEY, as in csd.count; the roles are {roles}")
        if role not in self.roles:
            raise unknown("part", role, self.roles, f"platform {self.name!r}")
        if role == "derate":
            if key not in self.roles[role].numbers:
                raise unknown("derate", key, self.roles[role].numbers, f"platform {self.name!r}")
            return DERATE
        keys = KINDS[self.roles[role].kind]
        if key not in keys:
            raise unknown(
                "number", address, [f"{role}.{k}" for k in keys], f"platform {self.name!r}"
            )
        return keys[key]

    def override(self, address: str, value: float, requested: str = "set by the user") -> Platform:
        """A copy with one number replaced by a value in SI units."""
        key = self.key(address)
        role, _, name = address.partition(".")
        number = Quantity(value / unit_of(key.unit)[1], key.unit, "assumed", "user", requested)
        part = self.roles[role]
        changed = replace(part, numbers={**part.numbers, name: number})
        return replace(self, roles={**self.roles, role: changed})


def _kind(table: Mapping[str, Any], where: str) -> str:
    kind = table.get("kind")
    if kind not in KINDS:
        raise unknown("kind of part", str(kind), KINDS, where)
    return str(kind)


def load_part(name: str, what: str = "part") -> Part:
    """Read a part, a model (`what="model"`) or a trace, by name or from a user's .toml file.

    Raises:
        InputError: unknown name, unreadable file, or a number that fails `quantity`.
    """
    path = path_of(what, name)
    table = read_toml(path, what)
    kind = _kind(table, str(path))
    entries = {key: value for key, value in table.items() if key not in ("kind", "title")}
    numbers = numbers_of(entries, KINDS[kind], str(path))
    check_complete(numbers, kind, str(path))
    if (kind == "llm") != (what == "model"):
        raise InputError(f"{path}: is a {kind}, not a {what}")
    if kind == "llm":
        check_shape({name: number.si for name, number in numbers.items()}, str(path))
    return Part(path.stem, kind, str(table.get("title", name)), numbers)


def load_platform(name: str, heirs: tuple[str, ...] = ()) -> Platform:
    """Read a platform by name or from a user's .toml file.

    Every table is a role. It names the part that fills it and its `count`, and may replace any of
    the part's numbers; roles without a part (precision, policy, derate) hold all their own. A file
    may start from another platform (`base`), replace whole roles and leave some out (`without`).

    Args:
        name: catalogue name or path.
        heirs: platforms that build on this one, to refuse circles.

    Raises:
        InputError: unknown name, unreadable file, or a number that fails `quantity`.
    """
    path = path_of("platform", name)
    table = read_toml(path, "platform")
    for key, entry in table.items():
        if not isinstance(entry, dict) and key not in _PLATFORM_KEYS:
            raise unknown("key", key, _PLATFORM_KEYS, str(path))
    own = {
        role: _role(role, entry, str(path))
        for role, entry in table.items()
        if isinstance(entry, dict)
    }
    if name in heirs:
        raise InputError(
            f"{path}: is its own base, by way of {' and '.join(heirs)}; name another platform"
        )
    inherited = load_platform(str(table["base"]), (*heirs, name)).roles if "base" in table else {}
    without = table.get("without", [])
    if not isinstance(without, list) or not set(without) <= inherited.keys():
        roles = ", ".join(sorted(inherited))
        raise InputError(f"{path}: without = {without!r} must list roles of the base: {roles}")
    if "cite" in table and table["cite"] not in sources():
        raise unknown("source", str(table["cite"]), sources(), f"{path}: cite: (sources.toml)")
    kept = {role: part for role, part in {**inherited, **own}.items() if role not in without}
    return Platform(name, str(table.get("title", name)), str(table.get("cite", "")), kept)


def _role(role: str, entry: Mapping[str, Any], where: str) -> Part:
    where = f"{where}: {role}"
    own = {key: value for key, value in entry.items() if key != "part"}
    if "part" not in entry:
        if role not in PARTLESS:
            raise InputError(
                f'{where}: names no part; add part = "...", one of {", ".join(names("part"))}'
            )
        keys = KINDS[role] or dict.fromkeys(own, DERATE)
        numbers = numbers_of(own, keys, where)
        check_complete(numbers, role, where)
        return Part(role, role, role, numbers)
    part = load_part(str(entry["part"]))
    if "count" not in own:
        raise InputError(f"{where}: needs a count of its part")
    return replace(part, numbers={**part.numbers, **numbers_of(own, KINDS[part.kind], where)})


def load_llm(name: str) -> Part:
    """Read a model by catalogue name, from a .toml file, or from a Hugging Face config.json.

    Raises:
        InputError: unknown name, unreadable file, or a key that is missing.
    """
    if name.endswith(".json"):
        return load_config(Path(name))
    return load_part(name, "model")

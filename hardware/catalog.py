"""Find, read, check and override specifications: parts, platforms and models, every number with its source."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hardware.errors import InputError, unknown
from hardware.machine import Machine
from hardware.quantity import KINDS as ORIGINS
from hardware.quantity import LARGEST, SMALLEST, Quantity, unit_of
from hardware.schema import DERATE, KINDS, PARTLESS, Key

HERE = Path(__file__).parent
FOLDERS = {
    "part": HERE / "parts",
    "platform": HERE / "platforms",
    "model": HERE.parent / "costmodel" / "llms",
    "trace": HERE.parent / "sweeps" / "traces",
}

_REQUIRED = {"value", "unit", "kind", "source", "at"}
_ALLOWED = _REQUIRED | {"note", "range"}
_PLATFORM_KEYS = {"title", "cite", "base", "without"}


@dataclass(frozen=True)
class Part:
    """A part in its place: what it is and all of its numbers."""

    name: str
    kind: str
    title: str
    numbers: Mapping[str, Quantity]


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
        return Machine(self.name, {r: {k: q.si for k, q in p.numbers.items()} for r, p in self.roles.items()})

    def key(self, address: str) -> Key:
        """The schema of a number named as `role.key`.

        Raises:
            InputError: no such role, or no such number in it.
        """
        role, dot, key = address.partition(".")
        if not dot:
            raise InputError(
                f"{address!r} is not PART.KEY, as in csd.count; the parts are {', '.join(sorted(self.roles))}"
            )
        if role not in self.roles:
            raise unknown("part", role, self.roles, f"platform {self.name!r}")
        if role == "derate":
            if key not in self.roles[role].numbers:
                raise unknown("derate", key, self.roles[role].numbers, f"platform {self.name!r}")
            return DERATE
        keys = KINDS[self.roles[role].kind]
        if key not in keys:
            raise unknown("number", address, [f"{role}.{k}" for k in keys], f"platform {self.name!r}")
        return keys[key]

    def override(self, address: str, value: float, said: str = "set by the user") -> Platform:
        """A copy with one number replaced by a value in SI units."""
        key = self.key(address)
        role, _, name = address.partition(".")
        number = Quantity(value / unit_of(key.unit)[1], key.unit, "assumed", "user", said)
        part = self.roles[role]
        changed = replace(part, numbers={**part.numbers, name: number})
        return replace(self, roles={**self.roles, role: changed})


def names(what: str) -> list[str]:
    """All names of a catalogue: `part`, `platform` or `model`."""
    return sorted(path.stem for path in FOLDERS[what].glob("*.toml"))


def path_of(what: str, name: str) -> Path:
    """The file of a catalogue name, or the user's own file where `name` ends in .toml.

    Raises:
        InputError: no such name or file.
    """
    if name.endswith(".toml"):
        path = Path(name)
    else:
        known = names(what)
        if name not in known:
            raise unknown(what, name, known)
        path = FOLDERS[what] / f"{name}.toml"
    if not path.is_file():
        raise InputError(f"{what} file {name!r} does not exist; check the path")
    return path


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: unreadable, too large to be a specification, or not TOML.
    """
    try:
        if path.stat().st_size > 1 << 20:
            raise InputError(f"{path}: larger than 1 MiB, which no {what} file is; check the path")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:  # also what is no TOML, no UTF-8, or a number of 5,000 digits
        raise InputError(f"{path}: not a valid TOML file ({problem}); correct it there") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}); check the path and its permissions") from None


@cache
def sources() -> dict[str, dict[str, Any]]:
    """Every cited paper and datasheet, by key."""
    return read_toml(HERE / "sources.toml", "sources")


def quantity(entry: object, key: Key, where: str) -> Quantity:
    """Check one number of a specification.

    Args:
        entry: the inline table as TOML reads it.
        key: what the schema says of it.
        where: file and key, put in front of every error.

    Raises:
        InputError: a field is missing or unknown, the number is not finite or negative, the unit
            does not fit, the source is not in sources.toml, an assumption lacks note or range.
    """
    if not isinstance(entry, dict):
        raise InputError(f"{where}: must be {{ value, unit, kind, source, at }}, not {entry!r}")
    missing = sorted(_REQUIRED - entry.keys())
    if missing:
        raise InputError(f"{where}: has no {', '.join(missing)}; every number needs {', '.join(sorted(_REQUIRED))}")
    for extra in entry.keys() - _ALLOWED:
        raise unknown("field", extra, _ALLOWED, where)
    value, unit, kind, source = entry["value"], entry["unit"], entry["kind"], entry["source"]
    if not _plain(value) or not (value == 0 or SMALLEST <= value <= LARGEST):
        raise InputError(f"{where}: value must be zero or a finite number from {SMALLEST:g} to {LARGEST:g}")
    if kind not in ORIGINS:
        raise unknown("kind", str(kind), ORIGINS, where)
    if str(source) not in sources():
        raise unknown("source", str(source), sources(), f"{where}: (sources.toml)")
    if not isinstance(entry["at"], str) or not entry["at"]:
        raise InputError(f'{where}: at must say where in the source, such as "Table 1"')
    dimension, size = _unit(unit, where)
    if dimension != unit_of(key.unit)[0]:
        raise InputError(f"{where}: unit {unit!r} does not measure this; it needs {key.unit!r}")
    if fault := key.fault(value * size):
        raise InputError(f"{where}: value {value!r} {fault}")
    low, high = _range(entry, where) if kind in ("assumed", "fitted") else (None, None)
    note = str(entry.get("note", ""))
    return Quantity(float(value), str(unit), kind, str(source), str(entry["at"]), note, low, high)


def _plain(value: object) -> bool:
    """Whether TOML read a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unit(unit: object, where: str) -> tuple[str, float]:
    try:
        return unit_of(str(unit))
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None


def _range(entry: Mapping[str, Any], where: str) -> tuple[float, float]:
    if not entry.get("note") or "range" not in entry:
        raise InputError(f"{where}: an {entry['kind']} number needs a note and a range = [low, high]")
    bounds = entry["range"]
    numeric = isinstance(bounds, list) and len(bounds) == 2 and all(_plain(b) and math.isfinite(b) for b in bounds)
    if not numeric or not bounds[0] <= entry["value"] <= bounds[1]:
        raise InputError(f"{where}: range {bounds!r} must be [low, high] around the value {entry['value']}")
    return float(bounds[0]), float(bounds[1])


def _numbers(entries: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> dict[str, Quantity]:
    for name in entries:
        if name not in keys:
            raise unknown("key", name, keys, where)
    return {name: quantity(entry, keys[name], f"{where}: {name}") for name, entry in entries.items()}


def _complete(numbers: Iterable[str], kind: str, where: str) -> None:
    lacking = [name for name, key in KINDS[kind].items() if not key.optional and name not in set(numbers)]
    if lacking:
        raise InputError(f"{where}: a {kind} needs {', '.join(lacking)}")


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
    numbers = _numbers(entries, KINDS[kind], str(path))
    _complete(numbers, kind, str(path))
    if (kind == "llm") != (what == "model"):
        raise InputError(f"{path}: is a {kind}, not a {what}")
    if kind == "llm":
        check_shape({name: number.si for name, number in numbers.items()}, str(path))
    return Part(path.stem, kind, str(table.get("title", name)), numbers)


def check_shape(shape: Mapping[str, float], where: str) -> None:
    """Refuse a model whose sizes contradict one another.

    Raises:
        InputError: heads are no multiple of KV heads, or more experts are active than there are.
    """
    if shape["heads"] % shape["kv_heads"]:
        raise InputError(f"{where}: {shape['heads']:g} heads are no multiple of {shape['kv_heads']:g} KV heads")
    if shape["active_experts"] > shape["experts"]:
        raise InputError(f"{where}: {shape['active_experts']:g} active experts of only {shape['experts']:g}")


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
    own = {role: _role(role, entry, str(path)) for role, entry in table.items() if isinstance(entry, dict)}
    if name in heirs:
        raise InputError(f"{path}: is its own base, by way of {' and '.join(heirs)}; name another platform")
    inherited = load_platform(str(table["base"]), (*heirs, name)).roles if "base" in table else {}
    without = table.get("without", [])
    if not isinstance(without, list) or not set(without) <= inherited.keys():
        raise InputError(f"{path}: without = {without!r} must list roles of the base: {', '.join(sorted(inherited))}")
    if "cite" in table and table["cite"] not in sources():
        raise unknown("source", str(table["cite"]), sources(), f"{path}: cite: (sources.toml)")
    roles = {role: part for role, part in {**inherited, **own}.items() if role not in without}
    return Platform(name, str(table.get("title", name)), str(table.get("cite", "")), roles)


def _role(role: str, entry: Mapping[str, Any], where: str) -> Part:
    where = f"{where}: {role}"
    own = {key: value for key, value in entry.items() if key != "part"}
    if "part" not in entry:
        if role not in PARTLESS:
            raise InputError(f'{where}: names no part; add part = "...", one of {", ".join(names("part"))}')
        keys = KINDS[role] or dict.fromkeys(own, DERATE)
        numbers = _numbers(own, keys, where)
        _complete(numbers, role, where)
        return Part(role, role, role, numbers)
    part = load_part(str(entry["part"]))
    if "count" not in own:
        raise InputError(f"{where}: needs a count of its part")
    return replace(part, numbers={**part.numbers, **_numbers(own, KINDS[part.kind], where)})


def load_llm(name: str) -> Part:
    """Read a model by catalogue name, from a .toml file, or from a Hugging Face config.json.

    Raises:
        InputError: unknown name, unreadable file, or a key that is missing.
    """
    if name.endswith(".json"):
        from hardware.huggingface import load_config

        return load_config(Path(name))
    return load_part(name, "model")

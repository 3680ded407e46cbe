"""Write results, and where each of their numbers comes from.

A file takes its name once complete, so that an interrupted run loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from nearkv.hardware.catalog import Part, Platform, load_part, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.schema import sources
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.tables.table import Rows, plain

_PACKAGE_FOLDER = Path(__file__).parents[2]
_COUNTED = (".py", ".toml", ".csv")
"""Files that hold formulas and numbers."""


@cache
def package_digest() -> str:
    """Digest of nearkv's own formulas and numbers: what changes an answer under one version."""
    digest = hashlib.sha256()
    files = [
        Path(folder, name)
        for folder, _, names in os.walk(_PACKAGE_FOLDER, followlinks=True)
        for name in names
        if name.endswith(_COUNTED)
    ]
    for file in sorted(files):
        name = file.relative_to(_PACKAGE_FOLDER).as_posix()
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def commit() -> str:
    """Commit of the checkout that tracks nearkv, "+" where files differ; empty elsewhere."""
    here = Path(__file__).resolve()
    described = ""
    # an installed copy may lie inside a checkout of something else, which does not track it
    for ask in (
        ["ls-files", "--error-unmatch", here.name],
        ["describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
    ):
        try:
            answer = subprocess.run(
                ["git", *ask], cwd=here.parent, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        described = answer.stdout.strip()
    return described


def place_of(name: str | Path) -> Path:
    """The path that an output is written to.

    Symbolic links are followed, so that they stay. A device or a pipe is never replaced.

    Raises:
        InputError: the path is neither a file nor a folder, or its links go in a circle.
    """
    try:
        path = Path(name).resolve()
        special = path.exists() and not path.is_file() and not path.is_dir()
    except (OSError, RuntimeError) as problem:
        reason = "its symbolic links go in a circle"
        if isinstance(problem, OSError):
            reason = str(problem.strerror)
        raise InputError(
            f"{name}: cannot be written ({reason}); choose another place"
        ) from None
    if special:
        raise InputError(
            f"{name} is a device or a pipe, which no output may replace; choose a file"
        )
    return path


def check_writable(path: Path) -> None:
    """Check that a file can be written there, before any work is done for it.

    Raises:
        InputError: the folder is missing, or may not be written.
    """
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be written ({problem.strerror}); choose another place"
        ) from None


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open a file to write, which takes its name only once complete.

    Raises:
        InputError: the folder is missing or full, or may not be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as problem:
        raise InputError(
            f"{path}: cannot be written ({problem.strerror}); choose another place"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, which appears only once complete.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(text)


def numbers(name: str, part: Part) -> Rows:
    """One row per number of a part, with its unit, SI value, kind and source."""
    return [
        {
            "part": name,
            "key": key,
            "value": plain(number.value),
            "unit": number.unit,
            "si": plain(number.si),
            "kind": number.kind,
            "source": number.source,
            "at": number.at,
            "range": " .. ".join(f"{bound:g}" for bound in number.range or ()),
            "note": number.note,
        }
        for key, number in part.numbers.items()
    ]


def platform_numbers(platform: Platform) -> Rows:
    """One row per number of a platform, role by role."""
    return [row for role, part in platform.roles.items() for row in numbers(role, part)]


def command() -> str:
    """The command line, without `--resume`."""
    return shlex.join(["nearkv", *(word for word in sys.argv[1:] if word != "--resume")])


def provenance(parts: Iterable[Block]) -> dict[str, Any]:
    """Sources of every number of a study.

    Returns:
        Version, digest and commit of the code, command, plugins, platforms, models, traces,
        sources and axes, as tables for JSON.
    """
    parts = list(parts)
    platforms = {block.platform.label: block.platform for block in parts}
    models: dict[str, Part] = {}
    for block in parts:
        # labels tell models apart that are of one name, as two folders with a config.json
        labels = block.grid.axes[0].labels
        models |= zip(labels, block.parts, strict=True)
    named = {trace.name for block in parts for trace in block.traces}
    drawn = named & set(names("trace"))
    traces = {name: load_part(name, "trace") for name in sorted(drawn)}
    used = [part for platform in platforms.values() for part in platform.roles.values()]
    used += [*models.values(), *traces.values()]
    cited = {number.source for part in used for number in part.numbers.values()}
    plugins = [block.system.plugin for block in parts if block.system.plugin]
    origin = {
        "nearkv": version("nearkv"),
        "digest": package_digest(),
        "commit": commit(),
        "command": command(),
        "plugins": {plugin.file: plugin.digest for plugin in plugins},
        "platforms": {
            name: platform_numbers(platform) for name, platform in platforms.items()
        },
        "models": {name: numbers(name, part) for name, part in models.items()},
        "traces": {name: numbers(name, part) for name, part in traces.items()},
        "sources": {key: source for key, source in sources().items() if key in cited},
        "axes": _axes(parts),
    }
    if any(block.band for block in parts):
        from nearkv.sweeps.uncertainty.made_of import made_of

        origin["band"] = made_of(parts)
    return origin


def _axes(parts: Iterable[Block]) -> dict[str, list[Any]]:
    """The values of every axis of a study, by name, as columns show them."""
    axes: dict[str, dict[Any, None]] = {}
    for block in parts:
        for axis in block.display_grid.axes:
            values = [plain(value) for value in axis.values]
            if axis.labels:
                values = [axis.labels[int(place)] for place in axis.values]
            axes.setdefault(axis.name, {}).update(dict.fromkeys(values))
    return {name: list(values) for name, values in axes.items()}


def as_json(table: Mapping[str, Any]) -> str:
    """A table as indented JSON."""
    return json.dumps(table, indent=1) + "\n"

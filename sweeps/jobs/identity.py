"""What the bytes of an output depend on, as digests, so that no sweep goes on with other rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from nearkv.sweeps.study.study import Block

_CALLED = {"parts": "models", "sets": "numbers", "requested": "knobs", "grid": "axes"}
"""What people call a field of a block."""
_ROOT = Path(__file__).parents[2]
"""The package."""


def identity(
    blocks: Sequence[Block], kinds: Mapping[str, str], form: str
) -> dict[str, str]:
    """Digests, by name, of all that decides the rows of a sweep and their bytes.

    Every field of every block counts, down to each number of each layer of a model, so that
    nothing must be thought of here when a block gets another field.

    Args:
        blocks: what is evaluated.
        kinds: columns in order, and what each holds.
        form: of the file, and all else that decides how rows become bytes.
    """
    digests = {}
    for field in fields(Block):
        values = [getattr(block, field.name) for block in blocks]
        digests[_CALLED.get(field.name, field.name)] = _digest(values)
    digests["columns"] = _digest(kinds)
    digests["form"] = _digest(form)
    digests["code"] = source_digest()
    for package in ("numpy", "pyarrow"):
        digests[package] = version(package)
    return digests


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """In what two identities differ, in words; empty where they are equal."""
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    if "code" in names:
        return "by another version of nearkv"
    for package in ("numpy", "pyarrow"):
        if package in names:
            return f"with {package} {before.get(package)}"
    return f"with other {' and '.join(names)}" if names else ""


@cache
def source_digest(root: Path = _ROOT) -> str:
    """Digest of nearkv's own code: a changed formula changes it, under the same version, too."""
    # folder by folder, because a search does not follow the links of a checkout
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir())
    files = [
        *sorted(root.glob("*.py")),
        *(f for d in folders for f in sorted(d.rglob("*.py"))),
    ]
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _digest(value: object) -> str:
    text = json.dumps(value, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    """What JSON holds in place of a value that it has no form for, equal for equal values alone.

    Raises:
        TypeError: there is no such form.
    """
    if is_dataclass(value):
        compared = [item.name for item in fields(value) if item.compare]
        return {
            "": type(value).__name__,
            **{name: getattr(value, name) for name in compared},
        }
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.ndarray | np.generic):
        return [value.dtype.str, value.shape, value.tobytes().hex()]
    if callable(value):  # what it does is in the code of nearkv or of the plugin
        return [value.__module__, value.__qualname__]
    raise TypeError(f"{type(value).__name__} has no digest")

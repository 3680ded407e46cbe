"""One digest of all that decides an output's bytes, so that no sweep goes on with other rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).parents[2]
"""The package."""


def digest_of(study: object) -> str:
    """Digest of a study, and of the packages that turn it into bytes.

    Every field counts, down to each number of each layer of a model, so that nothing must be
    thought of here when a block gets another field.

    Args:
        study: blocks, columns and all else that the rows depend on.
    """
    packages = [package_digest(), version("numpy"), version("pyarrow")]
    text = json.dumps([study, packages], default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def package_digest(root: Path = _ROOT) -> str:
    """Digest of nearkv's own code: a changed formula changes it, under the same version, too."""
    digest = hashlib.sha256()
    files = [
        Path(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.endswith(".py")
    ]
    for file in sorted(files):
        name = file.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _plain(value: Any) -> Any:
    """What JSON holds in place of a value that it has no form for, equal for equal values alone.

    Raises:
        TypeError: there is no such form.
    """
    if is_dataclass(value):
        compared = [item.name for item in fields(value) if item.compare]
        named = {name: getattr(value, name) for name in compared}
        return {"": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.ndarray | np.generic):
        return [value.dtype.str, value.shape, value.tobytes().hex()]
    if callable(value):  # what it does is in the code of nearkv or of the plugin
        return [value.__module__, value.__qualname__]
    raise TypeError(f"{type(value).__name__} has no digest")

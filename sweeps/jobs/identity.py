"""One digest of all that decides an output's bytes, so that no sweep goes on with other rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from nearkv.sweeps.evaluate.provenance import package_digest

__all__ = ["digest_of", "package_digest"]


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


def _plain(value: Any) -> Any:
    """Form of a value for which JSON has none, equal for equal values alone.

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

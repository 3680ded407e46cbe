"""What evaluates: versions of packages and a digest of nearkv's own code."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("nearkv", "numpy", "pyarrow")
"""Packages whose version the bytes of an output may depend on."""
CODE = "code"
"""What `versions` calls the digest of nearkv's own code."""
_FOLDERS = ("costmodel", "hardware", "solvers", "sweeps")


@cache
def versions() -> dict[str, str]:
    """Versions by package, and the digest of the code."""
    numbers = {name: version(name) for name in PACKAGES}
    return {**numbers, CODE: code_digest()}


@cache
def code_digest() -> str:
    """Digest of every module that takes part in evaluating: a changed formula changes it."""
    root = Path(__file__).parent.parent.parent
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]

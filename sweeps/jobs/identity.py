"""What the bytes of a sweep's output depend on, option by option, so that two can be told apart in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nearkv.sweeps.evaluation.provenance import provenance
from nearkv.sweeps.jobs.manifest import CODE, VERSIONS
from nearkv.sweeps.jobs.plan import Plan
from nearkv.sweeps.space.study import Block

_OPTIONS = {
    "model": "--model",
    "trace": "--trace",
    "batch": "--batch",
    "context_tok": "--context",
    "output_tok": "--output",
}
"""Axes of the workload, and where their values come from."""


def identity(rows: Plan, only: Sequence[str], form: str) -> dict[str, str]:
    """What the bytes of an output depend on, by name: versions, options, and all of it at once.

    Args:
        rows: what is evaluated.
        only: columns chosen.
        form: of the file, and whatever else decides how rows become bytes.
    """
    told = provenance(rows.laid)
    laid = [_said(block) for block in rows.laid]
    requested: dict[str, dict[str, None]] = {}
    for block in laid:
        for option, value in block.items():
            requested.setdefault(option, {})[_digest(value)] = None
    requested["--platform"] = {_digest(told["platforms"]): None}
    requested["--model"][_digest(told["models"])] = None
    if only:
        requested["--columns"] = {_digest(list(only)): None}
    whole = [
        form,
        list(rows.kinds.items()),
        [told[name] for name in ("platforms", "models", "traces")],
        laid,
    ]
    options = {name: _digest(list(values)) for name, values in requested.items()}
    return {**tool(), **options, "study": _digest(whole)}


@cache
def tool() -> dict[str, str]:
    """What evaluates: versions, and a digest of nearkv's own code."""
    return {**{name: version(name) for name in VERSIONS}, CODE: code()}


@cache
def code() -> str:
    """Digest of every module that has a part in evaluating: whoever changes a formula has another tool."""
    root, found = Path(__file__).parent.parent.parent, hashlib.sha256()
    for package in ("costmodel", "hardware", "solvers", "sweeps"):
        for file in sorted((root / package).rglob("*.py")):
            found.update(
                file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0"
            )
    return found.hexdigest()[:32]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _said(block: Block) -> dict[str, Any]:
    """What a block evaluates, by option."""
    found: dict[str, Any] = {"--system": block.system.name}
    for axis in block.grid.axes:
        option = _OPTIONS.get(axis.name, "--set" if "." in axis.name else "--knob")
        found.setdefault(option, []).append((axis.name, axis.labels, axis.values.tolist()))
    if block.requested:
        found.setdefault("--knob", []).extend(
            sorted((name, str(value)) for name, value in block.requested.items())
        )
    if block.traces:
        requests = [(trace.prompt.tolist(), trace.output.tolist()) for trace in block.traces]
        found["--trace"] += [requests]
        found["--method"] = block.method
    return found

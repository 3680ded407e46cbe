"""What the bytes of an output depend on, option by option, so that a difference has a name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nearkv.sweeps.evaluate.provenance import provenance
from nearkv.sweeps.jobs.plan import Plan
from nearkv.sweeps.jobs.versions import CODE, PACKAGES, versions
from nearkv.sweeps.study.study import Block

_OPTIONS = {
    "model": "--model",
    "trace": "--trace",
    "batch": "--batch",
    "context_tok": "--context",
    "output_tokens": "--output-tokens",
}
"""Axes of the workload, and the option that gives their values."""


def identity(rows: Plan, only: Sequence[str], form: str) -> dict[str, str]:
    """What the bytes of an output depend on, by name: versions, options, and all of it at once.

    Args:
        rows: what is evaluated.
        only: columns chosen.
        form: of the file, and whatever else decides how rows become bytes.
    """
    origin = provenance(rows.blocks)
    blocks = [_by_option(block) for block in rows.blocks]
    digests: dict[str, list[str]] = {}
    for block in blocks:
        for option, value in block.items():
            digests.setdefault(option, []).append(_digest(value))
    digests["--platform"] = [_digest(origin["platforms"])]
    digests["--model"].append(_digest(origin["models"]))
    if only:
        digests["--columns"] = [_digest(list(only))]
    options = {}
    for name, values in digests.items():
        distinct = list(dict.fromkeys(values))
        options[name] = _digest(distinct)
    numbers = [origin[name] for name in ("platforms", "models", "traces")]
    whole = [form, list(rows.kinds.items()), numbers, blocks]
    return {**versions(), **options, "study": _digest(whole)}


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """In what two identities differ, in words; empty where they are the same."""
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    for name in names:
        if name in PACKAGES:
            return f"with {name} {before.get(name)}"
    if CODE in names:
        return "before nearkv's own code was changed"
    options = [name for name in names if name.startswith("--")]
    if options:
        which = "another" if len(options) == 1 else "other"
        return f"with {which} {' and '.join(options)}"
    return "for another study" if names else ""


def _digest(value: Any) -> str:
    text = json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _by_option(block: Block) -> dict[str, Any]:
    """What a block evaluates, by option."""
    values: dict[str, Any] = {"--system": block.system.name}
    if block.platform.swapped:
        values["--part"] = [sorted(block.platform.swapped.items())]
    if block.system.plugin:
        values["--plugin"] = block.system.plugin.digest
    for axis in block.grid.axes:
        option = "--set" if "." in axis.name else "--knob"
        option = _OPTIONS.get(axis.name, option)
        axis_values = (axis.name, axis.labels, axis.values.tolist())
        values.setdefault(option, []).append(axis_values)
    if block.requested:
        knobs = sorted((name, str(value)) for name, value in block.requested.items())
        values.setdefault("--knob", []).extend(knobs)
    if block.band is not None:
        band = block.band
        values["--band"] = [band.level, band.samples, band.seed, list(band.names)]
    if block.traces:
        requests = [
            (trace.prompt.tolist(), trace.output.tolist()) for trace in block.traces
        ]
        values["--trace"] += [requests]
        values["--method"] = block.method
    return values

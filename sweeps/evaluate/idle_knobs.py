"""Knobs that a user states and on which no answer of the study depends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nearkv.hardware.errors import InputError, warn
from nearkv.sweeps.evaluate.evaluate import Columns, table
from nearkv.sweeps.study.study import Block, Study

_POINTS = 4096
"""Design points of a study that are all looked at; of more, none is."""


def warn_of_idle_knobs(study: Study, study_blocks: Sequence[Block]) -> None:
    """Warn of each knob that is stated and changes nothing: answers are the same all over.

    Args:
        study: names the knobs; which values it gives them does not matter.
        study_blocks: those of the study.
    """
    points = sum(block.grid.size for block in study_blocks)
    if points > _POINTS or study.method != "fluid":
        return
    for name in study.knobs:
        tried = _ends(name, study_blocks)
        if len(tried) > 1 and _is_idle(study, name, tried):
            at = ", ".join(tried)
            warn(f"--knob {name} changes nothing here: answers are the same at {at}")


def _ends(name: str, study_blocks: Sequence[Block]) -> list[str]:
    """All choices of a knob, or its ends and its middle; none of what stands for hardware."""
    knobs = [
        block.system.knobs[name] for block in study_blocks if name in block.system.knobs
    ]
    texts: list[str] = []
    for knob in knobs:
        if knob.choices:
            texts += knob.choices
        elif not knob.sets:
            middle = (knob.low + knob.high) / 2
            inside = middle if knob.kind == "share" else np.floor(middle)
            texts += [f"{number:g}" for number in (knob.low, inside, knob.high)]
    return list(dict.fromkeys(texts))


def _is_idle(study: Study, name: str, tried: Sequence[str]) -> bool:
    """Whether some points have answers, and all are the same at each value tried."""
    first: Columns = {}
    for value in tried:
        alike = replace(study, band=0.0, knobs={**study.knobs, name: value})
        try:
            answers = table(alike)
        except InputError:  # not every value goes with all others, so there is a difference
            return False
        answers.pop(name, None)
        first = first or answers
        if not _are_equal(first, answers):
            return False
    return bool(np.any(first["status"] == "ok"))


def _are_equal(one: Columns, other: Columns) -> bool:
    """Whether two tables hold the same, blanks included."""
    if one.keys() != other.keys():
        return False
    return all(
        np.array_equal(column, other[name], equal_nan=column.dtype.kind == "f")
        for name, column in one.items()
    )

"""Values of knobs that a search tries: first all, or some of very many, then closer ones.

Ranges of some thousands are divided at equal distances, wider ones at equal ratios.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, System
from nearkv.hardware.machine import Machine

ZOOMS = 7
"""Rounds in which values around the best are tried: to 1e-10 of the range."""
_VALUES = 33
"""Values of a continuous knob that are tried at a time."""
_EACH = 2048
"""Values of a whole number up to which every one is tried."""
_RATIOS = 400
"""Values that are tried of a wider range, at equal ratios."""
_FINEST = 1e-7
"""The least of these, where it is no whole number, as a share of the largest."""


def is_sampled(knob: Knob) -> bool:
    """True if a knob has too many values to try each."""
    return knob.is_continuous or (knob.kind == "count" and _is_wide(knob))


def _is_wide(knob: Knob) -> bool:
    """True if values of a knob are tried at equal ratios."""
    return knob.high - knob.low > _EACH


def _least(knob: Knob) -> float:
    """The least value of a wide range that is tried, but for its lower end."""
    return max(knob.low, knob.high * _FINEST if knob.is_continuous else 1.0)


def first_values(knob: Knob) -> Numbers:
    """The values of a knob that are tried first: (values,)."""
    if not is_sampled(knob):
        return np.arange(knob.low, knob.high + 1.0)
    if not _is_wide(knob):
        return np.linspace(knob.low, knob.high, _VALUES)
    ratios = np.geomspace(_least(knob), knob.high, _RATIOS)
    values = ratios if knob.is_continuous else np.round(ratios)
    return np.unique([knob.low, *values])


def closer_values(knob: Knob, best: Numbers, zoom: int) -> Numbers:
    """Values between the neighbours of the best: (values, *points).

    Args:
        knob: a sampled one.
        best: its best value so far: (points).
        zoom: round, from 0; each looks closer.
    """
    reach = np.full(np.shape(best), (knob.high - knob.low) / (_VALUES - 1))
    if _is_wide(knob):
        reach = best * np.log(knob.high / _least(knob)) / (_RATIOS - 1)
    reach = reach / ((_VALUES - 1) / 2) ** zoom
    offsets = np.linspace(-1.0, 1.0, _VALUES).reshape(-1, *(1,) * np.ndim(best)) * reach
    if knob.kind == "count":
        offsets = np.round(offsets)
    return np.clip(best + offsets, knob.low, knob.high)


def tried_in_words(knob: Knob) -> str:
    """Number of the values of a sampled knob that are tried, and their distance, in words."""
    count = len(first_values(knob)) + ZOOMS * _VALUES
    spacing = "ratios" if _is_wide(knob) else "distances"
    limits = f"from {knob.low:,.10g} to {knob.high:,.10g}"
    return f"{count} values {limits}, at equal {spacing} and then closer"


def tried_together(
    system: System, hw: Machine, llm: LLM, settings: Mapping[str, Real | str]
) -> dict[str, Numbers]:
    """Values of the knobs that a system tries together and that are `auto`, by name.

    Args:
        system: a registered system.
        hw, llm: of several counts of a machine, the largest decides.
        settings: of every knob; combinations that contradict a stated number are left out.

    Returns:
        As many values of each as there are combinations; nothing where the system names none.
    """
    if not system.combinations:
        return {}
    values = system.combinations(hw, llm)
    joint = {name: settings[name] for name in values}
    names = [name for name, one in joint.items() if isinstance(one, str) and one == "auto"]
    if not names:
        return {}
    allowed = np.ones(len(values[names[0]]), bool)
    for name, each in values.items():
        stated = joint[name]
        if not isinstance(stated, str) and np.size(stated) == 1:
            allowed &= each == stated
    chosen = np.unique([values[name][allowed] for name in names], axis=1)
    # what is stated may fit none of them: the system then says why
    return dict(
        zip(names, chosen if chosen.size else np.ones((len(names), 1)), strict=True)
    )

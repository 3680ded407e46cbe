"""Paired axes: values that go together, as the workloads of a figure do."""

from __future__ import annotations

from collections.abc import Mapping

from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.sizes import comma_list

LENGTHS = ("batch", "context", "output_tokens")
NAMES = {"model": "models", "platform": "platforms", "trace": "traces"}
"""Axes that list names -> field of a study."""


def pairings(zipped: Mapping[str, str]) -> list[dict[str, str]]:
    """One value of every paired axis, for each place in their lists.

    Raises:
        InputError: lists of different lengths.
    """
    lists = {axis: comma_list(text) for axis, text in zipped.items()}
    lengths = {axis: len(values) for axis, values in lists.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} of {axis}" for axis, count in lengths.items())
        raise InputError(f"--zip: pairs values one by one, and there are {counts}")
    rows = zip(*lists.values(), strict=True)
    return [dict(zip(lists, row, strict=True)) for row in rows]


def field_of(axis: str) -> str:
    """The field of a study that an axis replaces."""
    if axis in LENGTHS:
        return axis
    if axis in NAMES:
        return NAMES[axis]
    return "sets" if "." in axis else "knobs"

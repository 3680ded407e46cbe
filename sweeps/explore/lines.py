"""The values of one axis or hardware number along which an answer is searched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, warn
from nearkv.hardware.schema import Key
from nearkv.hardware.units import unit_of
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.sizes import number, size, values
from nearkv.sweeps.study.study import Study, blocks

WORKLOAD_COLUMNS = {
    "batch": "batch",
    "context": "context_tok",
    "output_tokens": "output_tokens",
}
"""Axes of a workload -> their columns."""
MOST_LINE_POINTS = 100_000
"""More design points than this are not searched at once."""


@dataclass(frozen=True)
class AxisLine:
    """Values of one axis that are looked at before crossings between them are refined.

    Attributes:
        axis: `batch`, `context`, `output_tokens` or `role.key`.
        values: rising, in SI.
        whole: True where only whole numbers count.
        unit: for display.
    """

    axis: str
    values: Numbers
    whole: bool
    unit: str

    @property
    def scale(self) -> float:
        """Size of `unit` in SI."""
        return unit_of(self.unit)[1]

    @property
    def resolution(self) -> float:
        """Largest relative distance of neighbours with values between them that are unseen."""
        low, high = self.values[:-1], self.values[1:]
        skips = high - low > (1 if self.whole else 0)
        distances = high[skips] / low[skips] - 1
        return float(np.max(distances, initial=0.0))

    @property
    def note(self) -> str:
        """Sentence on what may go unseen between two values."""
        if not self.resolution:
            return ""
        return f"two changes within {self.resolution:.1%} of {self.axis} may go unseen"


def line(
    axis: str, limits: tuple[float, float], looks: int, whole: bool, unit: str
) -> AxisLine:
    """A line of values evenly apart on a logarithmic scale, or of all whole ones."""
    low, high = limits
    places = np.geomspace(low, high, looks)
    if whole and high - low < looks:
        places = np.arange(np.ceil(low), high + 1)
    elif whole:
        places = np.unique(np.round(places))
    return AxisLine(axis, places, whole, unit)


def limits_of(text: str, block: Block, axis: str, option: str) -> tuple[float, float]:
    """Read `LOW:HIGH` of an axis.

    Raises:
        InputError: not two values, or values out of order.
    """
    form = f"{axis}=LOW:HIGH"
    if text.count(":") > 1:
        raise InputError(
            f"{option}: write the range as {form}; it is searched, not stepped"
        )
    read = size if axis in WORKLOAD_COLUMNS else number(block.platform.key(axis))
    edges = values(text.replace(":", ","), read, f"{option} {axis}")
    low, high = edges[0], edges[-1]
    if not low < high:
        raise InputError(f"{option}: write the range as {form}, low before high")
    if axis not in WORKLOAD_COLUMNS:
        block.platform.check({axis: (low, high)}, f"{option.split(maxsplit=1)[0]} ")
    return low, high


def number_stated(block: Block, address: str) -> tuple[Key, float | None, str]:
    """Schema of a hardware number, its value where the platform states one, and its unit."""
    key = block.platform.key(address)
    quantity = block.platform.numbers.get(address)
    if quantity is None:
        return key, None, key.unit
    return key, quantity.si, quantity.unit


def searched(study: Study) -> list[Block]:
    """Blocks of a study whose points are all searched at once.

    Raises:
        InputError: the study cannot be evaluated, or has too many design points.
    """
    study_blocks = blocks(study)
    points = sum(block.grid.size for block in study_blocks)
    if points > MOST_LINE_POINTS:
        raise InputError(
            f"{points:,} design points are too many for one search (at most {MOST_LINE_POINTS:,}); "
            "give fewer values"
        )
    return study_blocks


def refuse_set(study: Study, block: Block, address: str, option: str) -> None:
    """Refuse a study that sets the very number that is searched.

    Raises:
        InputError: it is set by --set or by a knob that stands for it.
    """
    for axis, number_set in block.sets.items():
        if number_set == address:
            option_set = f"--set {axis}" if axis in study.sets else f"--knob {axis}"
            raise InputError(f"{option_set} cannot be set: {option} searches it")


def warn_of_idle(study: Study, read: set[str], reader: str) -> None:
    """Warn of each hardware number that a study sets and nothing reads.

    Args:
        study: that was evaluated.
        read: the numbers that were read, `role.key`.
        reader: what would have read them.
    """
    for address in sorted(study.sets.keys() - read):
        warn(f"--set {address} changes nothing: no {reader} reads it")

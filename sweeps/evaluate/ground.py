"""Columns on what makes rows unequal: the parts that a system owns, its bits, and who attends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nearkv.costmodel.algebra.span import Real, sum_by_key
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.metrics import Evaluated
from nearkv.hardware.platform import Platform
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.tables.table import EVERYWHERE, Categories

ORIGIN, MACHINE, ATTENTION, BITS = "origin", "machine", "attention_on", "bits"
GROUND = (ORIGIN, MACHINE, ATTENTION, BITS)
"""Columns of this module."""


def ground(answer: Evaluated, block: Block, llm: LLM) -> dict[str, Categories]:
    """Columns of a box of design points that say what its numbers were reached with.

    Args:
        answer: of a system.
        block: the system, and the platform whose parts it owns.
        llm: the models, for the widths of elements.

    Returns:
        Where the system comes from, what it owns, the roles that attend, and bits of weights, KV
        and activations.
    """
    devices = answer.devices
    parts = [part_in(block.platform, role) for role in devices]

    def machine(counts: Sequence[float]) -> str:
        number = sum_by_key(zip(parts, counts, strict=True))
        return ", ".join(f"{count:g} {part}" for part, count in number.items())

    attention = answer.estimate.attention

    def attending(shares: Sequence[float]) -> str:
        roles = zip(attention, shares, strict=True)
        return " and ".join(role for role, share in roles if share > 0)

    widths = (llm.weight_width, llm.kv_width, llm.activation_width)
    return {
        ORIGIN: Categories(EVERYWHERE, (block.system.origin,)),
        MACHINE: texts([part.count for part in devices.values()], machine),
        ATTENTION: texts(list(attention.values()), attending),
        BITS: texts(widths, bits),
    }


def bits(widths: Sequence[float]) -> str:
    """Bits of elements of some widths [B], one number where they are alike."""
    each = [f"{8 * width:.3g}" for width in widths]
    return each[0] if len({*each}) == 1 else "/".join(each)


def part_in(platform: Platform, role: str) -> str:
    """Name of the part in a role; memory that is another part's own is named after that."""
    part = platform.roles[role]
    leader = part.follows.get("memory", "").partition(".")[0]
    return f"{role} of {platform.roles[leader].name}" if leader else part.name


def texts(numbers: Sequence[Real], text: Callable[[Sequence[float]], str]) -> Categories:
    """A text for each different tuple of numbers among design points.

    Args:
        numbers: as long as the text takes; they broadcast.
        text: of the numbers of one point.
    """
    each = np.broadcast_arrays(*numbers)
    stacked = np.stack([np.ravel(values) for values in each], axis=1)
    distinct, places = np.unique(stacked, axis=0, return_inverse=True)
    return Categories(places.reshape(each[0].shape), tuple(map(text, distinct.tolist())))

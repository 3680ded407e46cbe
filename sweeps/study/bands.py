"""Components of a band: its level, its draws, and the numbers that are uncertain."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from nearkv.hardware.errors import InputError
from nearkv.hardware.platform import Platform

FEWEST, MOST = 16, 1 << 16
"""Samples of a band."""
MODEL_ERROR = "model error"
RATIO_ERROR = "model error of a ratio"
"""Draws beside those of hardware numbers."""
FASTER_SHARES = {"speedup": "faster_share", "total_speedup": "total_faster_share"}
"""Ratio -> column of the share of a band's draws in which a row has the highest rate of all."""


@dataclass(frozen=True)
class Band:
    """Computation of the range of each answer.

    Attributes:
        level: share of the draws inside [%].
        samples: how many draws [1].
        seed: of the draws.
        names: of everything that is drawn anywhere in the study, so that all its answers share
            their draws.
    """

    level: float
    samples: int
    seed: int
    names: tuple[str, ...] = ()

    @property
    def shares(self) -> tuple[float, float, float]:
        """Share of the draws below the lower end, the middle and the upper end [1]."""
        outside = (100 - self.level) / 200
        return outside, 0.5, 1 - outside

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Ends of the names of the columns of both ends and the middle, as `p05`."""
        return tuple(_suffix(share) for share in self.shares)


def _suffix(share: float) -> str:
    whole, point, rest = f"{100 * share:.10g}".partition(".")
    return f"p{whole:0>2}{point}{rest}"


def draws_of(platform: Platform, stated: Collection[str] = ()) -> dict[str, str]:
    """The uncertain numbers of a platform, and the name of the draw that each takes.

    What is chosen is not unknown: counts, memory that is installed, widths of numbers.
    Numbers of one role and key share a draw over all platforms, and so do numbers that state in
    their file what they have in common.

    Args:
        platform: the machine.
        stated: `role.key` of numbers that the user chose, which are exact.

    Returns:
        `role.key` -> name of the draw.
    """
    names = {}
    for role, part in platform.roles.items():
        for key, number in part.numbers.items():
            address = f"{role}.{key}"
            spread = number.range_si is not None or number.quantiles_si is not None
            is_own = not platform.key(address).chosen and key not in part.follows
            if spread and is_own and address not in stated:
                names[address] = number.shares or address
    return names


def check_band(band: Band, method: str) -> None:
    """Refuse a band that cannot be computed.

    Raises:
        InputError: an impossible number of samples, or a simulated queue.
    """
    if not FEWEST <= band.samples <= MOST:
        limits = f"from {FEWEST} to {MOST:,}"
        raise InputError(f"--samples {band.samples:,}: give a number {limits}")
    if method != "fluid":
        raise InputError(
            f"--band: --method {method} has no band; the fluid model has, leave one of them out"
        )

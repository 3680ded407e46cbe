"""What writing blocks to flash costs: drive writes a day, years, money a byte."""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Real

DAY = 86_400.0
"""Seconds of a day."""
YEAR = 365 * DAY
"""Seconds of a year, as drives' endurance counts it."""


def drive_writes_a_day(written: Real, capacity: Real) -> Real:
    """DWPD: times the capacity is written a day [1].

    Args:
        written: to all drives, what the flash adds included [B/s].
        capacity: of all drives [B].
    """
    return written * DAY / capacity


def years(written: Real, endurance: Real) -> Real:
    """Life of drives at a rate [years].

    Args:
        written: to all drives [B/s].
        endurance: of all drives [B].
    """
    return endurance / (written * YEAR)


def write_price(price: Real, endurance: Real) -> Real:
    """What writing a byte costs of the drives' life [USD/B].

    Args:
        price: of all drives [USD].
        endurance: of all drives [B].
    """
    return price / endurance

"""Hardware numbers of a block, drawn together from their laws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.platform import Platform
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.schema import Key
from nearkv.hardware.units import unit_of
from nearkv.solvers.uncertainty.draws import ranks
from nearkv.solvers.uncertainty.laws import Law, Measured, Ranged, listed
from nearkv.sweeps.study.bands import Band
from nearkv.sweeps.study.study import Block

Numbers = NDArray[np.float64]


def law_of(number: Quantity, key: Key) -> Law:
    """The law of an uncertain number [SI].

    Measured quantiles go before a range. Shares of something are uniform; times, rates, sizes and
    prices err by factors, so their logarithms are.
    """
    if number.quantiles_si is not None:
        _, most = key.limits
        return Measured(*number.quantiles_si, most=most)
    exact = (number.si, number.si)
    low, high = number.range_si or exact
    is_share = number.unit == "1"
    is_log = not is_share and low > 0
    return Ranged(low, number.si, high, is_log)


def drawn_number(platform: Platform, address: str, rank: Numbers) -> Numbers:
    """A number of a platform at each rank [SI]."""
    role, _, name = address.partition(".")
    part = platform.roles[role]
    key = platform.key(address)
    law = law_of(part.numbers[name], key)
    drawn = law.at(rank)
    if key.only:
        _, size = unit_of(key.unit)
        values = np.array(key.only, dtype=float)
        return listed(drawn, size * values)
    return np.round(drawn) if key.whole else drawn


def across(platform: Platform, address: str, count: int) -> Numbers:
    """Values of a number from one end of what it may be to the other [SI]."""
    role, _, name = address.partition(".")
    number = platform.roles[role].numbers[name]
    law = law_of(number, platform.key(address))
    low, high = law.extremes
    return drawn_number(platform, address, np.linspace(low, high, count))


def drawn_numbers(block: Block, band: Band) -> dict[str, Numbers]:
    """All uncertain numbers of a block by `role.key`, one value a draw [SI]."""
    common = ranks(band.names, band.samples, band.seed)
    numbers = {}
    for address, name in block.draws.items():
        numbers[address] = drawn_number(block.platform, address, common[name])
    return numbers

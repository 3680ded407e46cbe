"""DIMMs that compute: bandwidth at banks, ranks and bus from channels, ranks, banks and timing.

Symbols: BL clock cycles of a burst, CCD_L between bursts of one bank, R ranksets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, choose
from nearkv.costmodel.model.registry import choice
from nearkv.costmodel.model.workload import Skew
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine

KV_PLACEMENT = choice(
    "ranksets of a request's KV: a random one, all alike, or in each layer the least loaded one",
    ("random", "balanced", "layerwise"),
)
"""In one layer a request lies on one rankset, by random unless L3 spreads layers (sec. 5.1,
fig. 6b); `balanced` is an ideal."""


@dataclass(frozen=True)
class Dimms:
    """Memory of all channels, its units working as one.

    Attributes:
        banks: attention at the banks, in KV bytes [B].
        ranks: attention at the ranks, in KV bytes [B].
        bus: the channels, in either direction [B].
        capacity: all DIMMs [B].
        power: all processing units while they work [W].
    """

    banks: Port
    ranks: Port
    bus: Port
    capacity: Real
    power: Real


def dimms(hw: Machine) -> Dimms:
    """Build the DIMM-PIM memory (L3 sec. 2.2, 4.4, 5.1, Table 2)."""
    part = hw.dimm
    bus = bus_bandwidth(hw)
    all_ranks = part.ranksets * bus
    awake = awake_share(hw)
    streaming = bank_bandwidth(hw) * row_efficiency(hw) * awake
    return Dimms(
        banks=Port("dimm.banks", "read", streaming),
        ranks=Port("dimm.ranks", "read", all_ranks * awake),
        bus=Port("dimm.bus", "move", bus),
        capacity=part.count * part.capacity,
        power=part.count * unit_power(hw),
    )


def awake_share(hw: Machine) -> Real:
    """Share of the time in which no refresh blocks the banks, 1 - tRFC / tREFI [1].

    Raises:
        InputError: a refresh takes as long as the interval between two, or longer.
    """
    refresh, interval = hw.dimm.refresh, hw.dimm.refresh_interval
    if np.any(refresh >= interval):
        longest, shortest = 1e9 * np.max(refresh), 1e9 * np.min(interval)
        raise InputError(
            f"dimm.refresh: {longest:g} ns is not below dimm.refresh_interval, {shortest:g} ns; "
            "shorten it (DDR4 needs 350 ns every 7,800 ns)"
        )
    return 1 - refresh / interval


def bus_bandwidth(hw: Machine) -> Real:
    """All channels as the host sees them [B/s].

    16 x 64 bit x 3.2 GT/s = 409.6 GB/s; L3 Table 2 prints 406.
    """
    return hw.dimm.channels * hw.dimm.bus * hw.dimm.transfers


def bank_bandwidth(hw: Machine) -> Real:
    """Peak at the banks: bus x ranks x banks x BL / CCD_L [B/s].

    A bank alone cannot use CCD_S. L3 Table 2 prints 13.0 TB/s.
    """
    part = hw.dimm
    rank_banks = part.ranksets * part.bank_groups * part.banks
    return bus_bandwidth(hw) * rank_banks * part.burst / part.ccd_l


def row_efficiency(hw: Machine) -> Real:
    """Share of its peak a bank reaches when it streams whole rows, from Table 2's timing [1].

    A row is row / 64 B bursts of CCD_L cycles; then RP and RCD, and the banks of a rank may only
    be activated RRD_S apart. The paper prints the timing and no efficiency.
    """
    part = hw.dimm
    burst_bytes = part.bus * 2 * part.burst
    reading = part.row / burst_bytes * part.ccd_l
    turning = part.rp + part.rcd + part.bank_groups * part.banks * part.rrd_s
    return reading / (reading + turning)


def fullest_rankset(hw: Machine, homes: Real, at_once: Callable[[Real], Real]) -> Skew:
    """Load of the fullest rankset over the mean, as they share the KV of a batch (L3 sec. 5.1).

    Args:
        hw: the DIMMs.
        homes: 0 random, 1 balanced, 2 the least loaded rankset in each layer [1].
        at_once: sequences -> those whose KV is read at once [1].
    """
    balanced = homes == 1

    def skew(sequences: Real, sizes: Real) -> Real:
        """Load of the fullest rankset over the mean, by sequences and spread of their sizes [1]."""
        if np.all(balanced):  # no fullest rankset to solve for at any design point
            return 1.0
        read = at_once(sequences)
        random = imbalance(read, hw.dimm.ranksets, sizes)
        layerwise = least_loaded(read, hw.dimm.ranksets, sizes)
        by_layer = np.where(balanced, 1.0, layerwise)
        return choose(homes == 0, random, by_layer)

    return skew


def imbalance(requests: Real, ranksets: Real, size_square: Real) -> Real:
    """Load of the fullest rankset over the mean, each request on a random one (L3 sec. 5.1) [1].

    The largest of R loads lies about z((R - 3/8) / (R + 1/4)) deviations above the mean (Blom),
    each of variance m E[x^2] / R around m E[x] / R. Few requests make a load lean to the right: a
    skewness of q sqrt(R / m), q = E[x^2] / E[x]^2, moves z by (z^2 - 1) / 6 of it (Cornish and
    Fisher, the first term; from z = 1 on, four ranksets). A sum of m / R sizes has
    E[x^3] / E[x^2]^1.5 for q, within 6 % for equal, uniform and exponential sizes.

    Args:
        requests: sequences placed (m) [1].
        ranksets: R [1].
        size_square: mean square over squared mean of their sizes, E[x^2] / E[x]^2 [1].

    Returns:
        At least 1, where placement is even, and at least what one request makes of its rankset; at
        most R, where all lies on one.
    """
    deviations = normal_quantile_above(0.625 / (ranksets + 0.25))
    # of one rankset's; fewer than one request fill one, too
    one_request = ranksets / np.maximum(requests, 1.0)
    deviation = np.sqrt(size_square * one_request)
    skewness = size_square * np.sqrt(one_request)
    shifted = deviations + np.maximum(deviations**2 - 1, 0.0) / 6 * skewness
    at_least = np.maximum(one_request, 1.0)
    return np.clip(1 + shifted * deviation, at_least, ranksets)


def least_loaded(requests: Real, ranksets: Real, size_square: Real) -> Real:
    """Load of the fullest rankset over the mean, each request on the least loaded one [1].

    In any one layer a request lies on one rankset (L3 fig. 6b); ranksets rotate over layers, which
    evens bytes, not a layer's time. Choosing by load leaves an excess of about one third of a
    request a doubling of ranksets; with fewer requests than ranksets the longest decides.

    Args:
        requests: sequences placed (m) [1].
        ranksets: R [1].
        size_square: mean square over squared mean of their sizes, E[x^2] / E[x]^2 [1].
    """
    m = np.maximum(requests, 1.0)
    several = 1 + np.log2(ranksets) * ranksets / (3 * m)
    deviation = np.sqrt(np.maximum(size_square - 1, 0.0))
    longest = 1 + normal_quantile_above(0.625 / (m + 0.25)) * deviation
    few = ranksets / m * np.maximum(longest, 1.0)
    skew = np.where(m >= ranksets, several, few)
    return np.clip(skew, 1.0, ranksets)


def normal_quantile_above(tail: Real) -> Real:
    """Standard deviations that a normal variable exceeds with a small probability [1].

    Args:
        tail: the probability, at most 0.5 [1].

    Source: Abramowitz and Stegun 26.2.23; its error is below 4.5e-4.
    """
    t = np.sqrt(-2 * np.log(tail))
    numerator = 2.515517 + 0.802853 * t + 0.010328 * t**2
    denominator = 1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3
    quantile: Real = t - numerator / denominator
    return quantile


def rank_unit_area(hw: Machine) -> Real:
    """Re-layout, adder and softmax units of one rank (L3 Table 5) [m2]."""
    return hw.dimm.relayout_area + hw.dimm.adder_area + hw.dimm.softmax_area


def unit_power(hw: Machine) -> Real:
    """Units of one DIMM: of its ranks, and of every bank of every chip (L3 Table 5) [W]."""
    part = hw.dimm
    ranks = part.channels * part.ranksets / part.count
    of_rank = part.relayout_power + part.adder_power + part.softmax_power
    of_banks = part.chips * part.bank_groups * part.banks * part.bank_power
    return ranks * (of_rank + of_banks)

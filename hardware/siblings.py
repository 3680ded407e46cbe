"""What kernels reach on a chip on which nobody measured it: what they reach on its nearest sibling.

That is the chip of its maker and generation that is nearest in bandwidth, else the nearest of its
maker; for a maker of which nothing is known, the one in the middle of all. Chips that were measured
go before those of which a file assumes the number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from nearkv.hardware.part import Part
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.schema import PART_TYPES


def with_siblings(part: Part, catalogue: Callable[[str], Sequence[Part]]) -> Part:
    """A part with the numbers of its siblings where kernels decide them and it states none.

    Args:
        part: with what its own file states.
        catalogue: type of part -> parts with what their own files state.
    """
    keys = PART_TYPES[part.type].items()
    missing = [name for name, key in keys if key.sibling and name not in part.numbers]
    if not missing:
        return part
    others = [other for other in catalogue(part.type) if other.name != part.name]
    taken = {name: _of_sibling(part, name, others) for name in missing}
    return replace(part, numbers={**part.numbers, **taken})


def _of_sibling(part: Part, name: str, catalogue: Sequence[Part]) -> Quantity:
    """A number of the nearest sibling that states it, with the range over all of them."""
    others = [other for other in catalogue if name in other.numbers]
    of_maker = [other for other in others if other.maker == part.maker != ""]
    siblings = [other for other in of_maker if other.generation == part.generation]
    siblings = siblings or of_maker or others
    measured = [other for other in siblings if other.numbers[name].kind != "assumed"]
    siblings = measured or siblings
    if of_maker:
        nearest = min(siblings, key=lambda other: (_distance(part, other), other.name))
    else:
        in_order = sorted(siblings, key=lambda other: (other.si[name], other.name))
        nearest = in_order[len(in_order) // 2]
    number = nearest.numbers[name]
    bounds = [bound for other in siblings for bound in _bounds(other.numbers[name])]
    return replace(
        number,
        kind="assumed",
        low=min(bounds),
        high=max(bounds),
        quantiles=None,
        note=f"Taken from {nearest.name}; nobody measured it on {part.name}.",
        sibling=nearest.name,
    )


def _distance(part: Part, other: Part) -> float:
    """Of the bandwidths of two parts, in their logarithm [1]."""
    return abs(math.log(part.si["bandwidth"] / other.si["bandwidth"]))


def _bounds(number: Quantity) -> tuple[float, ...]:
    """Ends of the range of a number, itself where none is stated, in its unit."""
    if number.low is None or number.high is None:
        return (number.value,)
    return number.low, number.high

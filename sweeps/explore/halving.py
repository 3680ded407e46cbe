"""Boxes cut in two, and how far that raises their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.bounds import Boxes
from nearkv.sweeps.explore.ideals import Ideals

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """Boxes cut in two along an axis.

    Attributes:
        parents: which.
        halves: all first ones, then all second ones.
        width: share of all its axes' extent that is cut, far less than any gain [1].
    """

    parents: Indices
    halves: Boxes
    width: Numbers


def cuts_of(boxes: Boxes) -> list[Cut]:
    """The boxes cut along each axis that has more than one value in them."""
    extents = boxes.last - boxes.first
    cuts = []
    for axis in np.flatnonzero(extents.any(axis=0)):
        parents = np.flatnonzero(extents[:, axis])
        whole = boxes.take(parents)
        along = np.full(len(parents), axis)
        own = extents[parents]
        width = own[:, axis] / own.sum(axis=1)
        cut = Cut(parents, _halves(whole, along), 1e-9 * width)
        cuts.append(cut)
    return cuts


def gain_of(parents: Ideals, halves: Ideals) -> Numbers:
    """How far bounds rise from boxes to their halves [1]."""
    before = np.concatenate([parents.costs, parents.costs])
    with np.errstate(all="ignore"):
        rise = halves.costs - before
        share = rise / np.abs(before)
    share = np.nan_to_num(share, posinf=1.0, neginf=0.0)
    share = np.clip(share, 0.0, 1.0)
    share[halves.are_blank] = 1.0
    both = share.sum(axis=1).reshape(2, -1)
    gain: Numbers = both.sum(axis=0)
    return gain


def _halves(boxes: Boxes, axes: Indices) -> Boxes:
    """Boxes cut in two, each along one axis: all first halves, then all second ones."""
    each = np.arange(len(boxes))
    first = boxes.first[each, axes]
    last = boxes.last[each, axes]
    middle = (first + last) // 2
    lower = boxes.last.copy()
    lower[each, axes] = middle
    upper = boxes.first.copy()
    upper[each, axes] = middle + 1
    return Boxes(boxes.first, lower) + Boxes(upper, boxes.last)


def parts_of(boxes: Boxes, most: int) -> Iterator[Boxes]:
    """The boxes in parts of about so many points, those that are larger cut."""
    while np.any(boxes.sizes > most):
        is_large = boxes.sizes > most
        large = boxes.take(is_large)
        longest = np.argmax(large.extents, axis=1)
        boxes = boxes.take(~is_large) + _halves(large, longest)
    before = np.cumsum(boxes.sizes) - 1
    part = before // most
    for number in np.unique(part):
        yield boxes.take(part == number)

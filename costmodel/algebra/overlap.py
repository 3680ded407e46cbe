"""Spans at the same time: the longest branch or queue, and the leaves it is attributed to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.masks import Mask, plain, seconds_where
from nearkv.costmodel.algebra.resource_names import in_several
from nearkv.costmodel.algebra.span import Group, Leaves, Real, join
from nearkv.costmodel.algebra.sums import longest_of


class Overlap(Group):
    """At the same time, one resource serving one part at a time."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Resources that more than one part needs."""
        return in_several(self._users)

    @cached_property
    def seconds(self) -> Real:
        """The longest part, or the longest queue for a shared resource [s]."""
        return longest_of(self._branches())

    def _branches(self) -> list[Real]:
        """Seconds of every part, overlaps among them opened, and of every queue [s].

        Their maximum is the same, with fewer operations on all design points.
        """
        queues = [self.busy_of(resource) for resource in self.shared]
        parts = [branch for part in self.parts.values() for branch in part._branches()]
        return parts + queues

    def _active_of(self, role: str) -> Real:
        """The longest part's, or the longest queue within the role [s]."""
        queues = [name for name in self.shared if name.startswith(f"{role}.")]
        parts = [part.active_of(role) for part in self.parts.values()]
        return longest_of(parts + [self.busy_of(name) for name in queues])

    def _candidates(self) -> list[Real]:
        """Seconds of every part, then of every queue; the longest lasts as long as the overlap."""
        parts = [part.seconds for part in self.parts.values()]
        return parts + [self.busy_of(resource) for resource in self.shared]

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        masks = iter(self._longest(where))
        for name, part in self.parts.items():
            yield from part._attribute(join(path, name), times, next(masks))
        for resource in self.shared:
            queues = next(masks)
            if queues is False:
                continue
            for leaf_path, leaf, runs in self._count(path, 1.0):
                if leaf.resource == resource:
                    seconds = seconds_where(queues, times, runs, leaf.seconds)
                    yield leaf_path, leaf, seconds

    def _longest(self, where: Mask) -> Iterator[Mask]:
        """Yield where each candidate is the longest, of equals the first.

        argmax on stacked copies would materialise every branch at full size; compare instead. The
        last candidate is the longest where no other is.
        """
        *others, _ = self._candidates()
        attributed: Mask = False
        for candidate in others:
            if where is False or attributed is True:
                yield False
                continue
            longest = first = np.equal(candidate, self.seconds)
            if attributed is not False:  # longest, and none before it is
                first = np.greater(longest, attributed)
                longest = np.logical_or(attributed, longest)
            attributed = plain(longest)
            yield plain(first if where is True else np.logical_and(where, first))
        yield plain(np.greater(where, attributed))


class Stream(Overlap):
    """The same bytes through a chain of resources, as fast as the slowest lets them."""

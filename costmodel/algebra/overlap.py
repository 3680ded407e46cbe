"""Spans at the same time: the longest branch or queue, and the leaves it is attributed to."""

from __future__ import annotations

from functools import cached_property, reduce

import numpy as np

from nearkv.costmodel.algebra.span import Group, Leaves, Mask, Real, join


class Overlap(Group):
    """At the same time, one resource serving one part at a time."""

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Resources that more than one part needs."""
        used, shared = set[str](), set[str]()
        for part in self.parts.values():
            shared |= used & part.resources
            used |= part.resources
        return tuple(sorted(shared))

    @cached_property
    def seconds(self) -> Real:
        """The longest part, or the longest queue for a shared resource [s]."""
        parts = [part.seconds for part in self.parts.values()]
        queues = [self.busy_of(resource) for resource in self.shared]
        return _longest(parts + queues)

    def _active_of(self, role: str) -> Real:
        parts = [part.active_of(role) for part in self.parts.values()]
        queues = [self.busy_of(name) for name in self.shared if name.startswith(f"{role}.")]
        return _longest(parts + queues)

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        # argmax over stacked candidates would copy each at full size; compare one by one instead
        for name, part in self.parts.items():
            longest = where & np.equal(part.seconds, self.seconds)
            yield from part._attribute(join(path, name), times, longest)
            where = where & ~longest  # of equals the first counts
        for resource in self.shared:
            longest = where & np.equal(self.busy_of(resource), self.seconds)
            for leaf_path, leaf, runs in self.leaves():
                if leaf.resource == resource:
                    yield from leaf._attribute(join(path, leaf_path), times * runs, longest)
            where = where & ~longest


class Stream(Overlap):
    """Bytes through a chain of resources, at the rate of the slowest."""


def _longest(seconds: list[Real]) -> Real:
    """The largest of several times, 0 of none [s]."""
    # small arrays first: few operations then meet the full grid of design points
    smallest_first = sorted(seconds, key=np.size)
    return reduce(np.maximum, smallest_first) if seconds else 0.0

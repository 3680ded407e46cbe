"""Spans of which only seconds are known: they are built when more is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from nearkv.costmodel.masks import Mask
from nearkv.costmodel.span import Leaves, Real, Span


class Deferred(Span):
    """A span that is built once its parts, its leaves or what works in it are asked for.

    Args:
        seconds: of the span [s].
        resources: names of all that work in it.
        build: builds the span.
    """

    def __init__(
        self, seconds: Real, resources: frozenset[str], build: Callable[[], Span]
    ) -> None:
        self._seconds = seconds
        self._resources = resources
        self._build = build

    @cached_property
    def seconds(self) -> Real:
        """Wall-clock time [s], broadcast over design points."""
        return self._seconds

    @cached_property
    def _span(self) -> Span:
        return self._build()

    def __mul__(self, times: Real) -> Span:
        seconds = times * self.seconds
        return Deferred(seconds, self.resources, lambda: times * self._span)

    __rmul__ = __mul__

    @property
    def parts(self) -> Mapping[str, Span]:  # type: ignore[override]
        """The named spans it is composed of."""
        return self._span.parts

    @property
    def resources(self) -> frozenset[str]:
        """Names of all resources that work in this span."""
        return self._resources

    def busy_of(self, resource: str) -> Real:
        """Seconds one resource works in this span [s]."""
        return self._span.busy_of(resource)

    def _active_of(self, role: str) -> Real:
        return self._span.active_of(role)

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        yield from self._span._attribute(path, times, where)

    def _count(self, path: str, times: Real) -> Leaves:
        yield from self._span._count(path, times)

"""Repetitions whose seconds are known before their span is built: it is once it is looked into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from nearkv.costmodel.algebra.span import Real, Repeat, Span


class Deferred(Repeat):
    """A span several times in a row, built once its parts, leaves or resources are asked for.

    Args:
        times: how often it runs [1].
        build: builds the span.
        seconds: of the span, once [s].
    """

    def __init__(self, times: Real, build: Callable[[], Span], seconds: Real) -> None:
        self.times = times
        self._build = build
        self._once = seconds

    @cached_property
    def seconds(self) -> Real:
        """Times x seconds of the span [s]."""
        return self.times * self._once

    @cached_property
    def span(self) -> Span:  # type: ignore[override]
        """What is repeated."""
        return self._build()

    @property
    def parts(self) -> Mapping[str, Span]:  # type: ignore[override]
        """The named spans it is composed of."""
        return self.span.parts

    def __mul__(self, times: Real) -> Span:
        return Deferred(times * self.times, lambda: self.span, self._once)

    __rmul__ = __mul__

"""Columns of the time of whole requests by the resource it is attributed to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.sweeps.evaluate.notes import Names
from nearkv.sweeps.evaluate.requested import BOTTLENECK, TIMES

Cell = Real | NDArray[np.bool_] | Names
"""A column of a box of design points before it is spread over them: it broadcasts to the box."""
Where = Literal[True] | NDArray[np.bool_]
"""Where there is an answer; True is everywhere, and saves a look at every point."""
Offered = dict[str, Callable[[], Cell]]
"""Columns by name, each computed when called."""


@dataclass(frozen=True)
class Times:
    """Seconds of whole requests by the resource they are attributed to, computed once."""

    estimate: Estimate
    where: Where

    def most(self) -> Offered:
        """The resource with most of the time, and its share."""
        return {BOTTLENECK: self._bottleneck, f"{BOTTLENECK}_share": self._share}

    def by_resource(self) -> Offered:
        """Seconds of each resource."""
        names = sorted(self.estimate.total.resources)
        return {f"{TIMES}{name}": partial(self._seconds, name) for name in names}

    @cached_property
    def _attribution(self) -> dict[str, Real]:
        return self.estimate.total.attribution()

    @cached_property
    def _stacked(self) -> NDArray[np.float64]:
        return np.stack(np.broadcast_arrays(*self._attribution.values()))

    def _bottleneck(self) -> Names:
        most = np.argmax(self._stacked, axis=0) + 1
        places = np.where(self.where, most, 0)
        return Names(places, ("", *self._attribution))

    def _share(self) -> Real:
        most = np.max(self._stacked, axis=0)
        return np.where(self.where, most / self.estimate.total.seconds, np.nan)

    def _seconds(self, resource: str) -> Real:
        return np.where(self.where, self._attribution.get(resource, 0.0), np.nan)

"""Weights in host memory that nobody pinned, which the driver stages on their way to the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.mechanisms.weights.weights import WeightStream


@dataclass(frozen=True)
class PageableStream(WeightStream):
    """Weights of which a share in host memory is not pinned; those on drives pass pinned buffers.

    Attributes:
        pageable: how bytes that are not pinned come to the GPU [B].
        unpinned: share of the weights in host memory [1].
    """

    pageable: Port
    unpinned: Real

    def over_link(self, amount: Real) -> Span:
        """Weights that are not on the GPU, what is not pinned at its own rate.

        Args:
            amount: weights, wherever they live [B].
        """
        slow = self.unpinned * (self.home.host * amount)
        pinned = (1 - self.home.gpu) * amount - slow
        return serial(
            pinned=self.link.inward(pinned, "weights"),
            pageable=self.pageable(slow, "weights that are not pinned"),
        )

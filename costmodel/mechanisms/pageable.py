"""Weights in host memory that nobody pinned, which the driver stages on their way to the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.mechanisms.weights import WeightStream
from nearkv.costmodel.span import Port, Real, Span


@dataclass(frozen=True)
class PageableStream(WeightStream):
    """Weights of which a share in host memory is not pinned; those on drives pass pinned buffers.

    Attributes:
        pageable: how bytes that are not pinned come to the GPU [B].
        unpinned: share of the weights in host memory [1].
    """

    pageable: Port
    unpinned: Real

    def load(self, amount: Real) -> Span:
        """Bring weights to the GPU, what is not pinned at its own rate.

        Args:
            amount: weights, wherever they live [B].
        """
        stored = self.home.storage * amount
        in_dram = self.home.host * amount
        slow = self.unpinned * in_dram
        pinned = (1 - self.home.gpu) * amount - slow
        return overlap(
            storage=stream(stored, "weights on storage", **self.storage),
            dram=self.host.read(in_dram, "weights in DRAM"),
            link=serial(
                pinned=self.link.inward(pinned, "weights"),
                pageable=self.pageable(slow, "weights that are not pinned"),
            ),
        )

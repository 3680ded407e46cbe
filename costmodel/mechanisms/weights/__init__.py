"""Placement of weights, and how they are streamed, dequantised and pinned."""

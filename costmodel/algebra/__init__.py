"""The time algebra: leaves, serial, overlap, stream, pipeline."""

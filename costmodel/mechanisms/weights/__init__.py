"""Where weights live and how they are streamed, dequantised and pinned."""

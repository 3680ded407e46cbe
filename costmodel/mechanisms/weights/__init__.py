"""Where weights live and how they are streamed, unpacked and pinned."""

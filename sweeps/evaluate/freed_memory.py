"""Memory that NumPy frees, kept for the next array: a setting of glibc."""

from __future__ import annotations

import numpy as np

_KEPT = 31 << 20
"""Bytes below the largest block that glibc's malloc learns from [B]."""


def keep_freed_memory() -> None:
    """Have the C library keep what NumPy frees.

    A box of design points takes a few hundred arrays of half a megabyte one after the other, which
    glibc's malloc would fetch anew from the kernel each. Once a block of this size was freed, it
    keeps blocks of up to twice that.
    """
    np.empty(_KEPT, np.uint8)

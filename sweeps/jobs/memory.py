"""Keep freed memory in the process; giving pages back and fetching them anew halves the speed."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_* of <malloc.h>
_KEPT = 1 << 29
"""Bytes of freed memory a process may keep [B]."""


@cache
def keep_freed_memory() -> None:
    """Tell glibc's malloc to reuse what NumPy frees; does nothing with another C library.

    A chunk of design points takes a few hundred arrays of half a megabyte one after the other.
    Malloc would map each anew and the kernel clear its pages: twice the time of the arithmetic.
    """
    _malloc("mallopt", _TRIM_THRESHOLD, _KEPT)
    _malloc("mallopt", _MMAP_THRESHOLD, _KEPT)


def return_freed_memory() -> None:
    """Give what was kept back to the system once: for a while other work needs it."""
    _malloc("malloc_trim", 0)


def _malloc(name: str, *arguments: int) -> None:
    """Call a function of glibc's malloc; other C libraries lack it."""
    with suppress(AttributeError, OSError, TypeError):
        getattr(ctypes.CDLL(None), name)(*arguments)

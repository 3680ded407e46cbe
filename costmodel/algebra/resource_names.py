"""Names of the resources that work in the parts of a span.

Spans are built anew for each box of design points, most of them with the same resources as before:
sets of names are computed once.
"""

from __future__ import annotations

from functools import lru_cache

Names = frozenset[str]

_KEPT = 1 << 12
"""Sets kept at a time; a system has some dozens."""


@lru_cache(_KEPT)
def only(resource: str) -> Names:
    """The set of one name."""
    return frozenset((resource,))


@lru_cache(_KEPT)
def union(parts: tuple[Names, ...]) -> Names:
    """Names in any of the parts."""
    return frozenset().union(*parts)


@lru_cache(_KEPT)
def in_several(parts: tuple[Names, ...]) -> tuple[str, ...]:
    """Names in more than one of the parts, in order."""
    used, shared = set[str](), set[str]()
    for names in parts:
        shared |= used & names
        used |= names
    return tuple(sorted(shared))


@lru_cache(_KEPT)
def roles_of(names: Names) -> Names:
    """The roles whose ports some resources are: `csd` of `csd.flash`."""
    return frozenset(name.partition(".")[0] for name in names)

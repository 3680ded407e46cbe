"""Text at every design point, and the note of what differs there from the question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PARTLY = "fits in some draws alone (fits_share), and the band is of these"
"""The note of a design that does not fit in every draw of its band."""


@dataclass(frozen=True)
class Names:
    """Text at every design point, as places in a list of names.

    Attributes:
        places: broadcast over design points.
        names: the text of each place.
    """

    places: NDArray[np.intp]
    names: tuple[str, ...]


def note(notes: Mapping[str, NDArray[np.bool_]]) -> Names:
    """Sentences that hold at each design point, semicolons between them."""
    names = Names(np.zeros((), int), ("",))
    for sentence, where in notes.items():
        names = lengthened(names, sentence, where)
    return names


def lengthened(before: Names, sentence: str, where: NDArray[np.bool_]) -> Names:
    """The same text, with a sentence more where that holds."""
    longer = [f"{text}; {sentence}" if text else sentence for text in before.names]
    shift = np.where(where, len(longer), 0)
    return Names(before.places + shift, (*before.names, *longer))

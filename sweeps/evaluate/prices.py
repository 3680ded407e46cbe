"""Say in a comparison where machines do not cost the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.tables.text_columns import three_digits

_ROUNDING = 1e-9


def with_prices(
    notes: NDArray[np.generic], prices: NDArray[np.generic]
) -> NDArray[np.str_]:
    """Notes with one sentence more where a price differs from that of the first row.

    Args:
        notes: of each row.
        prices: cost_usd over that of the first row; NaN where either has none [1].
    """
    before = notes.astype(str)
    ratios = np.nan_to_num(prices.astype(float), nan=1.0)
    distinct, places = np.unique(ratios, return_inverse=True)
    sentences = [_sentence(price) for price in distinct]
    sentence = np.array(sentences)[places]
    is_longer = (before != "") & (sentence != "")
    joint = np.where(is_longer, "; ", "")
    beginning = np.strings.add(before, joint)
    return np.strings.add(beginning, sentence)


def _sentence(price: float) -> str:
    """What a price says; nothing where it is that of the first row."""
    differs = abs(price - 1) > _ROUNDING
    return f"costs {three_digits(price)} times as much" if differs else ""

"""How well each source of independent measurements is predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearkv.sweeps.validation.validate import Row


def by_source(rows: Sequence[Row]) -> list[Row]:
    """Median and largest error of each source, and at the end the median of the medians.

    The source of a row is the part of its address before the semicolon.
    """
    sources: dict[str, list[Row]] = {}
    for line in rows:
        source, _, _ = line["where"].partition(";")
        sources.setdefault(source, []).append(line)
    lines = []
    medians = []
    for source in sorted(sources):
        line = _of_source(source, sources[source])
        lines.append(line)
        if line["rows"]:
            medians.append(line["median_error"])
    middle = float(np.median(medians)) if medians else None
    last = dict.fromkeys(
        ("source", "rows", "not_modelled", "median_error", "largest_error")
    )
    lines.append({**last, "source": "median of the medians", "median_error": middle})
    return lines


def _of_source(source: str, rows: Sequence[Row]) -> Row:
    errors = [line["error"] for line in rows if line["error"] is not None]
    return {
        "source": source,
        "rows": len(errors),
        "not_modelled": len(rows) - len(errors),
        "median_error": float(np.median(errors)) if errors else None,
        "largest_error": max(errors, default=None),
    }

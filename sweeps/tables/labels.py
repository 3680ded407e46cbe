"""Axis labels: a column's name as a reader of a paper expects it, with its unit in brackets."""

from __future__ import annotations

import math
from collections.abc import Mapping

UNITS: Mapping[str, str] = {
    "tok_s": "tok/s",
    "j_tok": "J/tok",
    "gb_s": "GB/s",
    "ms": "ms",
    "us": "us",
    "gb": "GB",
    "usd": "USD",
    "tok": "tokens",
    "s": "s",
    "w": "W",
}
"""Unit by the ending of a column's name, the longest endings first."""

COLUMN_LABELS: Mapping[str, str] = {
    "speedup": "Speed-up of decoding",
    "total_speedup": "Speed-up of whole requests",
    "context_tok": "Context (tokens)",
    "output_tokens": "Output (tokens)",
    "batch": "Batch (sequences)",
    "per_round": "Sequences of a round",
    "rate_req_s": "Requests per second",
    "users": "Users",
    "ttft_s": "Time to first token (s)",
    "tpot_ms": "Time per output token (ms)",
    "batch_run": "Sequences served together",
    "tok_s_per_kusd": "Throughput per kUSD (tok/s)",
    "alpha": "X-cache share",
    "interval": "Spill interval (tokens)",
    "chunk": "Chunk of a prompt (tokens)",
    "beta": "Share of KV off the GPU in the SmartSSD",
}
"""Columns whose names say too little."""


def label_of(column: str) -> str:
    """Return the label of an axis that shows a column, its unit in brackets.

    >>> label_of("step_ms")
    'Step (ms)'
    >>> label_of("throughput_tok_s")
    'Throughput (tok/s)'
    >>> label_of("uplink.bandwidth_gb_s"), label_of("csd.count")
    ('uplink.bandwidth (GB/s)', 'csd.count')
    """
    if column in COLUMN_LABELS:
        return COLUMN_LABELS[column]
    stem, unit = stem_and_unit(column)
    # a hardware number is named by its address, as --set takes it
    words = stem if "." in stem else stem[:1].upper() + stem[1:].replace("_", " ")
    return f"{words} ({unit})" if unit else words


def without_unit(label: str) -> str:
    """Return a label without its unit, as of a ratio.

    >>> without_unit("Throughput (tok/s)")
    'Throughput'
    """
    return label.partition(" (")[0]


def stem_and_unit(column: str) -> tuple[str, str]:
    """Return a column without its unit, and the unit, blank where it has none."""
    for ending, unit in UNITS.items():
        stem = column.removesuffix(f"_{ending}")
        if stem != column:
            return stem, unit
    return column, ""


def short_number(value: float) -> str:
    """Return a number as an axis shows it: sizes of contexts in binary thousands, `-` for none.

    >>> short_number(65536.0)
    '64k'
    >>> short_number(1.5)
    '1.5'
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else f"{value:g}"
    for factor, suffix in ((1 << 20, "M"), (1 << 10, "k")):
        if value >= factor and value % factor == 0:
            return f"{value / factor:g}{suffix}"
    return f"{value:g}" if value == round(value) else f"{value:.4g}"

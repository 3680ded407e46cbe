"""Components of a band: the numbers that are drawn, and the error of the models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from nearkv.hardware.schema import Quantity
from nearkv.sweeps.study.grid import Block, shape_of
from nearkv.sweeps.tables.table import Row, Rows
from nearkv.sweeps.uncertainty.model_error import RATIO, VALUE, find_error, slowest

MOST_LISTED = 4096
"""Design points whose model errors are listed."""


def made_of(blocks: Iterable[Block]) -> Row:
    """Level, draws, numbers and model errors of the bands of a study, for JSON."""
    blocks = list(blocks)
    band = blocks[0].band
    assert band is not None
    return {
        "level": band.level,
        "samples": band.samples,
        "seed": band.seed,
        "numbers": _distinct(row for block in blocks for row in number_rows(block)),
        "model_errors": _distinct(row for block in blocks for row in error_rows(block)),
    }


def _distinct(rows: Iterable[Row]) -> Rows:
    """Rows that differ, each once, in their order."""
    return list({str(row): row for row in rows}.values())


def number_rows(block: Block) -> Rows:
    """A row for each number of a block that is drawn: its law and the draw that it takes."""
    rows = []
    for address, draw in block.draws.items():
        role, _, key = address.partition(".")
        number = block.platform.roles[role].numbers[key]
        rows.append(
            {
                "platform": block.platform.label,
                "number": address,
                "value": number.value,
                "unit": number.unit,
                "drawn": _law(number),
                "shares": draw if draw != address else "",
                "source": number.source,
            }
        )
    return rows


def _law(number: Quantity) -> str:
    if number.quantiles is not None:
        low, middle, high = number.quantiles
        return f"p10 {low:g}, p50 {middle:g}, p90 {high:g}"
    low, high = number.range or (number.value, number.value)
    return f"{low:g} to {high:g}"


def error_rows(block: Block) -> Rows:
    """The model errors of a block: by what takes most of the time at its first design points."""
    box = next(block.grid.boxes(MOST_LISTED))
    estimate = block.resolved(box).estimate
    places, names = slowest(block, estimate, shape_of(box))
    rows = []
    for place, name in enumerate(names):
        if not (places == place).any():
            continue
        for of in (VALUE, RATIO):
            error = find_error(name, of, block.system.cite)
            row: Row = {"system": block.system.name, "platform": block.platform.label}
            row |= asdict(error)
            rows.append({**row, **row.pop("law")})
    return rows


def coverage_told(blocks: Iterable[Block], of: Iterable[str]) -> str:
    """Say how many rows of sources left out lie in their 90 % bands, a share a kind of error.

    Args:
        blocks: of a study with a band.
        of: `value`, `ratio` or both: what is shown.
    """
    shares = {}
    for block in blocks:
        for row in error_rows(block):
            if row["of"] in of:
                kind = "ratios" if row["of"] == RATIO else f"most time: {row['pool']}"
                shares[kind] = f"{100 * row['inside']:.0f} %"
    shares_inside = ", ".join(f"{shares[kind]} ({kind})" for kind in sorted(shares))
    return f"Of sources left out, {shares_inside} of rows lie inside their 90 % band."

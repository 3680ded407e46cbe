"""Every registered system at four design points: the times and energies that people compare.

`python tests/golden/pins.py` (or `make golden`) writes `pins.csv` beside this file;
`--against FILE [SYSTEM ...]` compares with the pins of another commit instead, also with those of
every column, every breakdown leaf and every choice and rule of a knob that earlier commits hold.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from nearkv.costmodel.model.registry import System, systems
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.columns import columns
from nearkv.sweeps.study.study import Study, blocks

PINS = Path(__file__).with_name("pins.csv")
HEADER = ("system", "case", "quantity", "value")
PINNED = ("status", "step_ms", "prefill_s", "total_s", "energy_j_tok")
"""Quantities in `pins.csv`: few enough that a reviewer reads each one that changes."""

SIZES = {
    "small": ("llama2-7b", "1", "1k", "16"),
    "grouped": ("mixtral-8x7b", "8", "16k", "64"),
    "typical": ("opt-66b", "16", "32k", "64"),
    "extreme": ("gpt3-175b", "64", "128k", "256"),
}
"""Model, batch, context and output tokens of each case."""

Row = tuple[str, str, str, str]


def sizes(system: System) -> Iterator[tuple[str, Study]]:
    """The design points of one system that `pins.csv` holds."""
    for case, (model, batch, context, output) in SIZES.items():
        yield case, Study((system.name,), (model,), batch, context, output)


def cases(system: System) -> Iterator[tuple[str, Study]]:
    """The design points of one system: every size, then every choice and every rule of a knob."""
    yield from sizes(system)
    for name, knob in system.knobs.items():
        for value in (*knob.choices, *knob.rules):
            for case in ("small", "typical"):
                model, batch, context, output = SIZES[case]
                study = Study((system.name,), (model,), batch, context, output, knobs={name: value})
                yield f"{case} {name}={value}", study


def shown(value: object) -> str:
    """A value as text that reads back to the same number."""
    number = np.asarray(value).ravel()[0]
    if isinstance(number, np.floating | np.integer):
        return repr(float(number))
    return str(number)


def rows_of(system: System, case: str, study: Study) -> Iterator[Row]:
    """Every column, then every breakdown leaf, of one design point."""
    for block in blocks(study):
        for name, column in columns(block, block.grid.whole).items():
            yield system.name, case, name, shown(column)
        hw, llm, work, asked = block.inputs(block.grid.whole)
        estimate = resolve_knobs(block.system, hw, llm, work, asked).estimate
        for phase, span in (("prefill", estimate.prefill), ("step", estimate.step)):
            for path, seconds in span.breakdown().items():
                yield system.name, case, f"{phase}/{path}", shown(seconds)


def pins() -> Iterator[Row]:
    """All rows of `pins.csv`: a design point that does not fit has a status and no numbers."""
    for system in systems().values():
        for case, study in sizes(system):
            for row in rows_of(system, case, study):
                if row[2] in PINNED and row[3] != "nan":
                    yield row


def read(file: Path) -> dict[tuple[str, ...], str]:
    """Values of a file of pins, by system, case and quantity."""
    with file.open(newline="") as rows:
        _, *pinned = csv.reader(rows)
    return {tuple(row[:3]): row[3] for row in pinned}


def differences(pinned: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """Differences from pins, a line each; a system or case without pins is not compared."""
    now: dict[tuple[str, ...], str] = {}
    names = {key[0] for key in pinned}
    every_case = {key[:2] for key in pinned}
    for system in systems().values():
        for case, study in cases(system) if system.name in names else ():
            if (system.name, case) in every_case:
                now |= {row[:3]: row[3] for row in rows_of(system, case, study)}
    for key, value in pinned.items():
        found = now.get(key, "missing")
        if not agree(found, value):
            yield f"{' '.join(key)}: {value}, now {found}"


def agree(value: str, pinned: str) -> bool:
    """True if two values are the same text, or numbers equal within 1e-12."""
    if value == pinned:
        return True
    try:
        return math.isclose(float(value), float(pinned), rel_tol=1e-12, abs_tol=1e-15)
    except ValueError:
        return False


def compare(file: Path, names: Collection[str]) -> int:
    """Compare with the pins in a file; print what differs.

    Args:
        file: pins of another commit.
        names: systems to compare; all where empty.

    Returns:
        The number of pins that differ or are missing.
    """
    pinned = {key: value for key, value in read(file).items() if not names or key[0] in names}
    off = 0
    for line in differences(pinned):
        off += 1
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(pinned):,} pins compared, {off:,} differ\n")
    return off


def main(words: Sequence[str]) -> int:
    """Write the pins, or compare with those of another commit."""
    if words and words[0] == "--against":
        return min(compare(Path(words[1]), words[2:]), 1)
    with PINS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(pins())
    sys.stdout.write(f"{PINS.name}: {sum(1 for _ in PINS.open()) - 1} rows\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

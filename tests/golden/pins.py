"""Every registered system at a few design points: columns and breakdown leaves, all digits.

`python tests/golden/pins.py` (or `make golden`) writes `pins.csv` beside this file.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nearkv.costmodel.registry import System, systems
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluation.evaluate import columns
from nearkv.sweeps.space.study import Study, blocks

PINS = Path(__file__).with_name("pins.csv")
HEADER = ("system", "case", "quantity", "value")

SIZES = {
    "small": ("llama2-7b", "1", "1k", "16"),
    "grouped": ("mixtral-8x7b", "8", "16k", "64"),
    "typical": ("opt-66b", "16", "32k", "64"),
    "extreme": ("gpt3-175b", "64", "128k", "256"),
}
"""Model, batch, context and output tokens of each case."""

Row = tuple[str, str, str, str]


def cases(system: System) -> Iterator[tuple[str, Study]]:
    """The design points of one system: every size, then every choice and every rule of a knob."""
    for case, (model, batch, context, output) in SIZES.items():
        yield case, Study((system.name,), (model,), batch, context, output)
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
    """All rows of `pins.csv`."""
    for system in systems().values():
        for case, study in cases(system):
            yield from rows_of(system, case, study)


if __name__ == "__main__":
    with PINS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(pins())
    sys.stdout.write(f"{PINS.name}: {sum(1 for _ in PINS.open()) - 1} rows\n")

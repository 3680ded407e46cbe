"""Targets that a design is to reach, as a user writes them.

Examples: `throughput_tok_s=1.0`, `step_ms<=200`, `speedup:flexgen-ssd>=5`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.units import measure
from nearkv.sweeps.evaluate.catalogue import HIGHER_IS_BETTER
from nearkv.sweeps.tables.labels import stem_and_unit
from nearkv.sweeps.tables.table import cell_text

RATIOS = {"speedup": "decode_tok_s", "total_speedup": "throughput_tok_s"}
"""Quantities that compare with another system, and the rate that each compares."""
FAR = 1e3
"""The largest distance from a target, on a logarithmic scale; any larger one counts as this."""
_BAND = re.compile(r"_p\d+(\.\d+)?$")
"""The end of the name of a column of a band."""
_SPANS = {
    "prefill": ("prefill_s",),
    "step": ("step_ms", "decode_tok_s", "speedup", "tpot_ms"),
    "total": ("total_s", "throughput_tok_s", "total_speedup"),
}


def span_of(quantity: str) -> str:
    """The span that a quantity measures: `prefill`, `step` or `total`; empty for any other."""
    return next((span for span, quantities in _SPANS.items() if quantity in quantities), "")


def higher_is_better(name: str) -> bool:
    """True if a higher value of a column or of its band is better, as the column states.

    Of numbers that no column states, as knobs and parts, a lower one is.
    """
    column = _BAND.sub("", name)
    if column in COLUMNS:
        return COLUMNS[column].higher_is_better
    return column in HIGHER_IS_BETTER


@dataclass(frozen=True)
class Target:
    """A quantity and the least or largest value it may have.

    Attributes:
        quantity: a column, or one of `RATIOS`.
        against: the system that a ratio compares with.
        at_least: True for `>=`, False for `<=`.
        value: the limit, in the column's unit.
        option: where a user wrote it.
    """

    quantity: str
    against: str
    at_least: bool
    value: float
    option: str

    @property
    def name(self) -> str:
        """The quantity as a column name."""
        return f"{self.quantity}_over_{self.against}" if self.against else self.quantity

    @property
    def text(self) -> str:
        """The limit in words."""
        return f"{self.name} {'>=' if self.at_least else '<='} {cell_text(self.value)}"

    def margin(self, values: Numbers) -> Numbers:
        """Distance of values beyond the target, logarithmic; `-FAR` where there is none."""
        sign = 1 if self.at_least else -1
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = sign * np.log(values / self.value)
        known = np.nan_to_num(distance, nan=-FAR)
        limited: Numbers = np.clip(known, -FAR, FAR)
        return limited


def parse_targets(texts: Sequence[str], option: str = "--slo") -> tuple[Target, ...]:
    """Read targets; `=` stands for `>=` where a higher value is better, else for `<=`.

    Raises:
        InputError: a text is not a target, its column is unknown, or two targets contradict.
    """
    targets = tuple(_target(text, option) for text in texts)
    if not targets:
        raise InputError(
            f"no {option}; write what to reach, as in {option} throughput_tok_s=1.0"
        )
    check_agreement(targets, option)
    return targets


def check_agreement(targets: Sequence[Target], option: str) -> None:
    """Refuse two targets that contradict each other.

    Raises:
        InputError: there are such targets.
    """
    for low in targets:
        for high in targets:
            same = (low.quantity, low.against) == (high.quantity, high.against)
            if same and low.at_least and not high.at_least and low.value > high.value:
                raise InputError(
                    f"{option}: {low.quantity} cannot be at least {low.value:g} "
                    f"and at most {high.value:g}; drop one"
                )


def _target(text: str, option: str) -> Target:
    match = re.fullmatch(
        r"\s*([a-z0-9_.]+)(?::([A-Za-z0-9.\-]+))?\s*(>=|<=|=)\s*(\S+)\s*", text
    )
    if match is None:
        raise InputError(
            f"{option} {text!r}: write it as COLUMN>=VALUE, COLUMN<=VALUE or COLUMN=VALUE"
        )
    quantity, against, side = match[1], match[2] or "", match[3]
    if (quantity in RATIOS) != bool(against):
        example = f"{quantity}{side}{match[4]}"
        if quantity in RATIOS:
            example = f"{quantity}:flexgen-ssd>=5"
        raise InputError(
            f"{option} {text!r}: only {' and '.join(RATIOS)} compare with a system; "
            f"write {example}"
        )
    at_least = higher_is_better(quantity) if side == "=" else side == ">="
    value = _in_unit_of(quantity, match[4], f"{option} {text!r}")
    if not value:
        raise InputError(f"{option} {text!r}: the value must be above zero")
    return Target(quantity, against, at_least, value, option)


def _in_unit_of(quantity: str, text: str, where: str) -> float:
    """Read a limit, which is in the unit of its column.

    Raises:
        InputError: it has a unit of its own, or is no number.
    """
    value, dimension = measure(text, where)
    if dimension == "1":
        return value
    _, unit = stem_and_unit(quantity)
    own = f"the number is in {unit}, the unit of {quantity}" if unit else "is a number"
    raise InputError(f"{where}: {own}; leave out the unit, as in {quantity}<=20")


def check_quantities(targets: Iterable[Target], own: Iterable[str]) -> None:
    """Refuse targets of columns that neither every system nor this one has.

    Raises:
        InputError: there is such a target.
    """
    known = [*COLUMNS, *own, *RATIOS]
    for target in targets:
        check_known("column", [target.quantity], known, target.option)

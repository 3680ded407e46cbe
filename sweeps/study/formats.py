"""Names of formats in `--set` and `--zip`, as the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearkv.hardware.errors import InputError
from nearkv.hardware.formats import FORMATTED, widths_of_format
from nearkv.hardware.units import unit_of
from nearkv.sweeps.study.sizes import Amount, KnobValue

KnobValues = Mapping[str, tuple[KnobValue, ...]]


def in_numbers(sets: KnobValues, zipped: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The axes `sets` and `zipped` of a study with numbers in place of formats.

    Of several formats of weights, the numbers go together, as paired axes do.

    Raises:
        InputError: an unknown format, formats beside numbers, or several of weights beside `--zip`.
    """
    numbers: dict[str, Any] = {}
    paired: dict[str, Any] = {}
    for address, values in sets.items():
        widths = _widths(address, values, "--set")
        go_together = len(widths) > 1 and len(values) > 1
        if go_together and zipped:
            raise InputError(
                f"--set {address}: name several formats in --zip, as its axes are"
            )
        (paired if go_together else numbers).update(widths)
    for address, values in zipped.items():
        paired |= _widths(address, values, "--zip")
    # what is stated of activations goes before what a format of weights implies
    for axes, option in ((sets, "--set"), (zipped, "--zip")):
        if _has_formats(axes.get("precision.activation", ())):
            stated = _widths("precision.activation", axes["precision.activation"], option)
            for others in (numbers, paired):
                others.pop("precision.operand", None)
            (numbers if option == "--set" else paired).update(stated)
    return {"sets": numbers, "zipped": paired}


def _has_formats(values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, str) for value in values)


def _widths(
    address: str, values: tuple[Any, ...], option: str
) -> dict[str, tuple[Any, ...]]:
    """The numbers that values of an axis stand for; the axis itself where they are no formats."""
    if address not in FORMATTED or not _has_formats(values):
        return {address: values}
    where = f"{option} {address}"
    if not all(isinstance(value, str) for value in values):
        raise InputError(f"{where}: give formats, as in fp8, or bits, as in 8bit, not both")
    tables = [widths_of_format(address, name, where) for name in values]
    numbers = dict.fromkeys(number for table in tables for number in table)
    # a format without a width of attention has one for all weights
    return {
        number: tuple(_bits(table.get(number, table.get(address, 0.0))) for table in tables)
        for number in numbers
    }


def _bits(width: float) -> Amount:
    return Amount(width * unit_of("bit")[1], "B", f"{width:g}bit")

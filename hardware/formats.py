"""Formats of numbers by name, and the numbers of a platform's `precision` that each stands for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nearkv.hardware.errors import check_known
from nearkv.hardware.files import FileTable, read_toml
from nearkv.hardware.schema import PART_TYPES, Quantity, numbers_of

NATIVE_BITS = 16.0
FORMATTED = ("precision.weight", "precision.kv", "precision.activation")
"""Numbers that take the name of a format."""


@cache
def _tables() -> FileTable:
    return read_toml(Path(__file__).with_name("formats.toml"), "formats")


@cache
def formats() -> Mapping[str, Mapping[str, Quantity]]:
    """Bits of a value, scales included, and of the operand of products, by name of the format."""
    widths = PART_TYPES["precision"]
    keys = {
        "bits": widths["weight"],
        "dense": widths["dense"],
        "head": widths["head"],
        "operand": widths["operand"],
        "native": widths["native"],
    }
    return {
        name: numbers_of({key: table[key] for key in keys if key in table}, keys, name)
        for name, table in _tables().items()
    }


def format_rows() -> list[dict[str, object]]:
    """A row a format: bits of a weight with its scales, of operands of its products, what it is."""
    rows: list[dict[str, object]] = []
    for name, stated in formats().items():
        bits = {
            f"{key}_bit": number.value for key, number in stated.items() if key != "bits"
        }
        what = _tables()[name].get("what", "")
        rows.append({"format": name, "bit": stated["bits"].value, **bits, "what": what})
    return rows


def widths_of_format(address: str, name: str, where: str) -> dict[str, float]:
    """Numbers that a format sets where it is named for weights, KV cache or activations [bit].

    Weights are stored as checkpoints store them, embeddings and output head in 16 bits at least,
    and meet operands as wide as the format's. A mix of llama.cpp states the bits of attention and
    of embeddings and output head itself. Activations keep their width in memory: their format
    is that of their operands, without a scale.

    Args:
        address: one of `FORMATTED`.
        name: of the format.
        where: put in front of errors.

    Raises:
        InputError: an unknown format.
    """
    check_known("format", [name], formats(), where)
    stated = {key: number.value for key, number in formats()[name].items()}
    bits, operand = stated["bits"], stated["operand"]
    if address == "precision.kv":
        return {address: bits}
    if address == "precision.activation":
        return dict.fromkeys(("precision.operand", "precision.native"), bits // 1)
    head = stated.get("head", max(bits, NATIVE_BITS))
    widths = {address: bits, "precision.head": head, "precision.operand": operand}
    for key in ("dense", "native"):
        if key in stated:
            widths[f"precision.{key}"] = stated[key]
    return widths

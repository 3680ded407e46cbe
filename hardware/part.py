"""A part: its kind, its title and all of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from nearkv.hardware.errors import InputError
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.schema import ROLES


@dataclass(frozen=True)
class Part:
    """A part, a model or a trace.

    Attributes:
        name: kebab-case, or the stem of a user's file.
        kind: key of `schema.KINDS`.
        title: for readers.
        numbers: key -> number with its source.
        placed: keys of numbers that a platform adds to its part: its count, what its place does.
        layer_kinds: of a model, its kinds of layer, each with all numbers a model has; empty where
            all layers are alike, with full attention.
    """

    name: str
    kind: str
    title: str
    numbers: Mapping[str, Quantity]
    layer_kinds: tuple[Part, ...] = ()
    placed: frozenset[str] = frozenset()

    @property
    def kinds_or_self(self) -> tuple[Part, ...]:
        """The kinds of layer, of which a model without any has one, of full attention."""
        return self.layer_kinds or (replace(self, name="full"),)

    @cached_property
    def si(self) -> dict[str, float]:
        """Every number in SI base units, by key."""
        return {key: number.si for key, number in self.numbers.items()}


def check_role(part: Part, role: str, where: str) -> None:
    """Refuse a part of another kind than a role takes.

    Raises:
        InputError: it is.
    """
    if part.kind not in ROLES.get(role, [part.kind]):
        kinds = " or ".join(ROLES[role])
        raise InputError(
            f"{where}: {part.name} is of kind {part.kind}; this role takes {kinds}"
        )


def check_shape(shape: Mapping[str, float], where: str) -> None:
    """Refuse a model whose sizes contradict one another.

    Raises:
        InputError: heads are no multiple of KV heads, or more experts are active than there are.
    """
    if shape["heads"] % shape["kv_heads"]:
        raise InputError(
            f"{where}: heads, {shape['heads']:g}, "
            f"are no multiple of kv_heads, {shape['kv_heads']:g}"
        )
    if shape["active_experts"] > shape["experts"]:
        raise InputError(
            f"{where}: active_experts, {shape['active_experts']:g}, "
            f"are more than experts, {shape['experts']:g}"
        )


def with_dense_layers_between(part: Part) -> Part:
    """The model as two kinds of layer where only one layer in `moe_every` has experts.

    Returns:
        The part itself where all layers are alike.
    """
    every = part.si.get("moe_every", 1.0)
    if every == 1 or part.si["experts"] == 1:
        return part
    layers = part.si["layers"]
    moe = float(layers // every)
    no_choice = {"experts": 1.0, "active_experts": 1.0}
    dense = _kind_of(part, "full_dense", {**no_choice, "layers": layers - moe})
    return replace(part, layer_kinds=(dense, _kind_of(part, "full_moe", {"layers": moe})))


def _kind_of(part: Part, name: str, sizes: Mapping[str, float]) -> Part:
    """A kind of layer that differs from its model in these sizes [1]."""
    numbers = dict(part.numbers)
    for key, size in sizes.items():
        numbers[key] = replace(numbers[key], value=size)
    return Part(name, "llm-layer", name, numbers)

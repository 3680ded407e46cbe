"""Build models from their specifications: one, or one of arrays along a model axis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Indices, Real, choose
from nearkv.costmodel.model.layers import LAYER_CLASS, Mixed, not_modelled
from nearkv.costmodel.model.llm import LLM, SHAPE, llm_of
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Role
from nearkv.hardware.platform import Part

SiNumbers = ByName

_PUBLISHED = 0.1
"""Largest relative distance between the parameters of a shape and the published ones."""
_SET_BY = {
    "weight": (
        "weight_width",
        "dense_width",
        "head_width",
        "operand_width",
        "native_width",
    ),
    "kv": ("kv_width",),
    "activation": ("activation_width", "operand_width", "native_width"),
    "dense": ("dense_width",),
    "head": ("head_width",),
    "operand": ("operand_width", "native_width"),
    "native": ("native_width",),
    "output_head": (),
}
"""Number of the `precision` role -> widths that it stands for."""


def llm_from_part(part: Part, widths: Role) -> LLM:
    """Build a model from its specification and a platform's element widths.

    Args:
        part: a part of type `llm`.
        widths: the platform's `precision` role [B].
    """
    return llms_from_parts((part,), None, widths)


def stated_widths(part: Part, role_key: str) -> list[str]:
    """Widths that a model states itself, of those that a number of `precision` stands for."""
    return [name for name in _SET_BY[role_key] if name in part.si]


def check_published(part: Part) -> None:
    """Refuse a model whose shape is far from the number of parameters that its file quotes.

    Raises:
        InputError: they differ by more than a tenth; norms, biases and rounded cards do not.
    """
    published = part.si.get("published")
    if published is None:
        return
    widths = Role("", "precision", {"weight": 2.0, "kv": 2.0, "activation": 2.0})
    parameters = float(llm_from_part(part, widths).parameters)
    if abs(parameters / published - 1) > _PUBLISHED:
        counts = f"its shape has {parameters:.4g} parameters, published are {published:.4g}"
        raise InputError(f"model {part.name}: {counts}; correct one of them")


def require_alike(llm: LLM, name: str, what: str, attends: Collection[str] = ()) -> None:
    """Refuse a model with other layers than full attention, all alike.

    Args:
        llm: the model.
        name: of the model or its option, for the error.
        what: what the solver does, for the error.
        attends: attention of layers that may stand beside each other, too.

    Raises:
        InputError: naming what is not modelled.
    """
    reasons = [
        sentence for sentence, where in not_modelled(llm, attends).items() if np.any(where)
    ]
    if reasons:
        raise InputError(f"{name}: {' and '.join(reasons)} by {what}; choose another model")


def llms_from_parts(
    parts: Sequence[Part],
    index: Indices | None,
    widths: Role,
    fixed: Collection[str] = (),
) -> LLM:
    """Build one LLM of arrays from the specifications along a model axis.

    Args:
        parts: the models.
        index: place in `parts` of every design point; None where there is one model [1].
        widths: the platform's `precision` role [B].
        fixed: numbers of that role that the user set: they override the model's own widths.
    """
    tables: list[SiNumbers] = [part.si for part in parts]
    llm = llm_of(_columns(tables, SHAPE, index), widths)
    ignored = {name for role_key in fixed for name in _SET_BY[role_key]}
    stated = {name for table in tables for name in table} - ignored
    own = [name for name in _optional(LLM) if name in stated]
    if own:
        complete = [{**_unstated(llm), **table} for table in tables]
        llm = replace(llm, **_columns(complete, own, index))
    if not any(part.layer_types for part in parts):
        return llm
    sizes = {field.name: getattr(llm, field.name) for field in fields(LLM)}
    return Mixed(**sizes, types_by_name=_layer_types(parts, llm, index))


def _optional(layer_type: type[LLM]) -> list[str]:
    """Fields of a layer type that a specification may state."""
    return [field.name for field in fields(layer_type) if field.name not in SHAPE]


def _unstated(llm: LLM) -> dict[str, Real]:
    """Fields of a model that states nothing: the platform's widths, no limit, nothing shared."""
    wider = dict.fromkeys(("operand_width", "native_width"), llm.activation_width)
    others = {"dense_width": llm.weight_width, "head_width": llm.weight_width, **wider}
    return {name: others.get(name, getattr(llm, name)) for name in _optional(LLM)}


def _columns(
    tables: Sequence[SiNumbers], names: Sequence[str], index: Indices | None
) -> dict[str, Real]:
    """Numbers by name: those of the only model, or of every design point's."""
    if index is None:
        return {name: tables[0][name] for name in names}
    return {name: _chosen([table[name] for table in tables], index) for name in names}


def _chosen(of_models: Sequence[Real], index: Indices) -> Real:
    """One number of every design point's model, which may itself vary over design points."""
    chosen = of_models[0]
    for place, number in enumerate(of_models):
        chosen = choose(index == place, number, chosen)
    return chosen


def _layer_types(parts: Sequence[Part], llm: LLM, index: Indices | None) -> dict[str, LLM]:
    """All layer types of several models; a model without a type has none of its layers."""
    by_model = [
        {layer_type.name: layer_type.si for layer_type in part.layer_types_or_self}
        for part in parts
    ]
    names = dict.fromkeys(name for layer_types in by_model for name in layer_types)
    return {name: _layer_type(name, by_model, llm, index) for name in names}


def _layer_type(
    name: str,
    by_model: Sequence[Mapping[str, SiNumbers]],
    llm: LLM,
    index: Indices | None,
) -> LLM:
    somewhere = next(layer_types[name] for layer_types in by_model if name in layer_types)
    absent = {**somewhere, "layers": 0.0}
    tables: list[SiNumbers] = []
    for layer_types in by_model:
        stated = layer_types.get(name, absent)
        tables.append({"shared_parameters": 0.0, "kv_projections": 2.0, **stated})
    layer_class = LAYER_CLASS[name.partition("_")[0]]
    common = _optional(LLM)
    own = [size for size in _optional(layer_class) if size not in common]
    sizes = _columns(tables, [*SHAPE, "shared_parameters", "kv_projections", *own], index)
    widths = {size: getattr(llm, size) for size in common if size.endswith("_width")}
    return layer_class(**sizes, **widths)
